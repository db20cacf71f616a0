"""What the tests look at in tar archives and directories."""

import io
import tarfile
import threading
from collections.abc import Callable


def tar(*members: tuple[str, bytes | tarfile.TarInfo]) -> bytes:
    """A tar of files with their content, or of members as they are given."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, what in members:
            member = what if isinstance(what, tarfile.TarInfo) else tarfile.TarInfo(name)
            member.name = name
            content = b"" if isinstance(what, tarfile.TarInfo) else what
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def members(packed: bytes) -> dict[str, str | None]:
    """The names in a tar, with the content of files."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        found: dict[str, str | None] = {}
        for member in archive:
            file = archive.extractfile(member)
            found[member.name] = None if file is None else file.read().decode()
        return found


def within(seconds: float, act: Callable[[], object]) -> None:
    """Runs what must not wait for anybody, and raises what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as exc:
            raised.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it waits"
    if raised:
        raise raised[0]
