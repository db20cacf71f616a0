"""Files of a workspace that a node does not share: both ends, over HTTP/2 in pipes, without kernels.

`tests/remote/test_files.py` has the rest, with a node of its own.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from ipybox.kernel_mgr.transfer import tar
from ipybox.kernel_mgr.transfer.file_transfer import uploads_to
from ipybox.remote.application import push
from ipybox.remote.application.link import NodeLink
from ipybox.remote.application.push import Push
from ipybox.remote.node import NodeFiles, NodeWorkspace
from ipybox.remote.wire import protocol
from ipybox.remote.wire.connection import Connection
from ipybox.remote.wire.protocol import PREAMBLE, Content, Exchange, Message, answer, platform_name
from ipybox.remote.wire.stream import Stream
from ipybox.sandbox.settings import SandboxSettings, load_settings

#: Seconds that a test waits for what must happen.
WAIT = 20.0

Files = dict[str, str]


class Ends:
    """An application and a node, each with a workspace."""

    def __init__(self, here: Path, there: Path):
        self.here = here
        self.there = there
        #: How many requests the node got.
        self.requests = 0
        self.link = NodeLink(lambda sock: sock.close())
        self._handler = NodeFiles(there, None).serve
        self._server = Connection(client=False, on_request=self._take)
        self._serving: set[asyncio.Task[None]] = set()
        self.push = self.new_push()

    def new_push(self, platform: str | None = None, settings: SandboxSettings | None = None) -> Push:
        return Push(self.here, self.link, settings=settings, platform=platform or platform_name())

    def be_hostile(self, given: "Message | bytes", content: bytes = b"") -> None:
        """Replaces the node by one that answers like this."""

        async def serve(exchange: Exchange) -> None:
            if isinstance(given, bytes):
                await exchange.stream.send(given)
            else:
                await exchange.send(given, content)

        self._handler = serve

    def be_silent(self) -> None:
        """Replaces the node by one that does not answer."""

        async def serve(_: Exchange) -> None:
            await asyncio.Event().wait()

        self._handler = serve

    def _take(self, stream: Stream) -> None:
        self.requests += 1
        task = asyncio.create_task(answer(stream, self._handler))
        self._serving.add(task)

    async def open(self) -> None:
        (read_here, write_there), (read_there, write_here) = os.pipe(), os.pipe()
        await self.link.open(read_here, write_here)
        await self._server.open(read_there, write_there)
        self._server.write_raw(PREAMBLE + version("ipybox").encode() + b"\n")
        self._server.start()
        assert await self.link.settled(WAIT)

    async def close(self) -> None:
        await self.link.close()
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)


@pytest.fixture
async def ends(tmp_path: Path) -> AsyncIterator[Ends]:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    ends = Ends(tmp_path / "here", tmp_path / "there")
    await ends.open()
    async with asyncio.timeout(WAIT):
        yield ends
    await ends.close()


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The files of each part that is sent."""
    parts: list[list[str]] = []
    pack = tar.pack

    def noted(items: Any, transfer: Any) -> bytes:
        parts.append(names := [])
        return pack((names.append("/".join(item.names)) or item for item in items), transfer)

    monkeypatch.setattr(push, "pack", noted)
    return parts


def put(root: Path, files: Files) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(root: Path) -> Files:
    """Returns the files of a workspace, without those of ipybox."""
    files = [path for path in root.rglob("*") if path.is_file() or path.is_symlink()]
    return {
        path.relative_to(root).as_posix(): "link" if path.is_symlink() else path.read_text()
        for path in files
        if not path.is_relative_to(root / ".ipybox")
    }


async def test_code_goes_to_the_node_and_later_changes_and_deletions_too(ends: Ends):
    given = {"mcptools/github/issue.py": "a", "mcpparse/x.py": "b", "gentools/a/b/api.py": "c"}
    put(ends.here, {**given, "images/old.png": "here", "private/data": "here", "gentools/a/__pycache__/x.pyc": "here"})
    assert await ends.push.send() == []
    assert found(ends.there) == given
    put(ends.here, {"mcpparse/x.py": "b2", "gentools/new/one/api.py": "e"})
    (ends.here / "gentools/a/b/api.py").unlink()
    put(ends.there, {"gentools/a/b/__pycache__/api.pyc": "of the interpreter"})
    assert await ends.push.send() == []
    expected = {"mcptools/github/issue.py": "a", "mcpparse/x.py": "b2", "gentools/new/one/api.py": "e"}
    assert found(ends.there) == expected
    assert not (ends.there / "gentools/a").exists()


async def test_nothing_comes_back_and_what_code_writes_stays_until_it_changes_here(ends: Ends):
    put(ends.here, {"gentools/a.py": "here", "gentools/b.py": "here"})
    await ends.push.send()
    of_code = {"gentools/a.py": "of code", "gentools/own.py": "of code", "images/plot.png": "p", "data.csv": "1"}
    put(ends.there, of_code)
    assert await ends.push.send() == []
    assert found(ends.here) == {"gentools/a.py": "here", "gentools/b.py": "here"}
    assert found(ends.there) == {**of_code, "gentools/b.py": "here"}
    put(ends.here, {"gentools/a.py": "changed here"})
    await ends.push.send()
    assert found(ends.there) == {**of_code, "gentools/a.py": "changed here", "gentools/b.py": "here"}


async def test_only_what_has_changed_is_sent(ends: Ends, packed: list[list[str]]):
    put(ends.here, {f"mcptools/s/tool_{n}.py": "x" * n for n in range(50)})
    await ends.push.send()
    put(ends.here, {"mcptools/s/tool_7.py": "changed"})
    await ends.push.send()
    await ends.push.send()
    assert [len(part) for part in packed] == [50, 1]
    assert packed[1] == ["mcptools/s/tool_7.py"]


async def test_many_and_large_files_go_in_parts(ends: Ends, packed: list[list[str]], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(push, "PART", 100)
    monkeypatch.setattr(push, "PART_FILES", 3)
    sizes = (250, 60, 30, 30, 1, 1, 1, 1)
    put(ends.here, {f"gentools/{n}": "x" * size for n, size in enumerate(sizes)})
    assert await ends.push.send() == []
    assert [[path.removeprefix("gentools/") for path in part] for part in packed] == [
        ["0"],
        ["1", "2"],
        ["3", "4", "5"],
        ["6", "7"],
    ]
    assert len(found(ends.there)) == len(sizes)
    monkeypatch.setattr(protocol, "MAX_REMOVED", 3)
    for n in range(8):
        (ends.here / f"gentools/{n}").unlink()
    await ends.push.send()
    assert found(ends.there) == {}


async def test_executable_files_stay_executable(ends: Ends):
    put(ends.here, {"gentools/run.sh": "x", "gentools/plain": "x"})
    (ends.here / "gentools/run.sh").chmod(0o755)
    await ends.push.send()
    assert [os.access(ends.there / "gentools" / name, os.X_OK) for name in ("run.sh", "plain")] == [True, False]
    (ends.here / "gentools/run.sh").chmod(0o644)
    await ends.push.send()
    assert not (ends.there / "gentools/run.sh").stat().st_mode & 0o100


async def test_secrets_and_links_stay_here_and_are_named_once(ends: Ends):
    put(ends.here, {"gentools/.env": "x", "gentools/.git/config": "url = https://a:b@c", "gentools/CLAUDE.md": "x"})
    (ends.here / "gentools/passwd").symlink_to("/etc/passwd")
    (ends.here / "mcpparse").symlink_to("/etc")
    notices = await ends.push.send()
    assert all(notice.startswith("Not sent to the node that runs code: ") for notice in notices)
    for reason in ("gentools/.env (it may contain secrets)", "gentools/passwd (a link)", "mcpparse (a link)"):
        assert any(reason in notice for notice in notices)
    assert found(ends.there) == {"gentools/CLAUDE.md": "x"}
    assert await ends.push.send() == []


async def test_settings_of_the_sandbox_hold_for_what_is_sent(ends: Ends):
    config = ends.here / "settings.json"
    config.write_text('{"filesystem": {"denyRead": ["gentools/hidden.py"]}}')
    put(ends.here, {"mcptools/tool.py": "a", "gentools/hidden.py": "secret"})
    (notice,) = await ends.new_push(settings=load_settings(config)).send()
    assert notice.endswith("gentools/hidden.py (the sandbox hides it).")
    assert found(ends.there) == {"mcptools/tool.py": "a"}


@pytest.mark.parametrize("made", ["link", "file"])
async def test_what_code_puts_in_place_of_a_directory_is_not_followed(ends: Ends, tmp_path: Path, made: str):
    (tmp_path / "elsewhere").mkdir()
    if made == "link":
        (ends.there / "gentools").symlink_to(tmp_path / "elsewhere")
    else:
        (ends.there / "gentools").write_text("of code")
    put(ends.here, {"gentools/a.py": "x", "mcptools/b.py": "y"})
    (notice,) = await ends.push.send()
    assert "gentools (on the node: " in notice
    assert "is not a directory" in notice
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert (ends.there / "mcptools/b.py").read_text() == "y"
    (ends.there / "gentools").unlink()
    assert await ends.push.send() == []
    assert (ends.there / "gentools/a.py").read_text() == "x"


async def test_deletion_follows_no_link_of_code(ends: Ends, tmp_path: Path):
    put(tmp_path / "elsewhere", {"a.py": "kept"})
    put(ends.here, {"gentools/x/a.py": "x"})
    await ends.push.send()
    (ends.there / "gentools/x/a.py").unlink()
    (ends.there / "gentools/x").rmdir()
    (ends.there / "gentools/x").symlink_to(tmp_path / "elsewhere")
    (ends.here / "gentools/x/a.py").unlink()
    (notice,) = await ends.push.send()
    assert "is a link, and ipybox doesn't follow" in notice
    assert (tmp_path / "elsewhere/a.py").read_text() == "kept"


async def test_file_that_is_too_large_is_named_and_the_others_arrive(ends: Ends, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(protocol, "MAX_PUSHED", 100)
    put(ends.here, {"mcptools/a.py": "x" * 100, "gentools/big": "x" * 101, "gentools/small": "x"})
    expected = (
        "Not sent to the node that runs code: gentools/big (its size is 101 bytes; the limit per file is 100 bytes)."
    )
    assert await ends.push.send() == [expected]
    assert sorted(found(ends.there)) == ["gentools/small", "mcptools/a.py"]


async def test_directory_with_too_many_files_is_named_and_deletes_nothing_there(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
):
    put(ends.here, {f"gentools/{n}.py": "x" for n in range(8)})
    await ends.push.send()
    monkeypatch.setattr(push, "MAX_ITEMS", 10)
    put(ends.here, {f"gentools/more-{n}.py": "x" for n in range(8)})
    (notice,) = await ends.push.send()
    assert "the limit per transfer is 10 files and directories" in notice
    assert len(found(ends.there)) == 8


async def test_directory_with_too_many_files_is_not_read_before_each_cell(ends: Ends, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(push, "MAX_ITEMS", 10)
    monkeypatch.setattr(push, "REST", 1_000_000)
    put(ends.here, {f"gentools/{n}.py": "x" for n in range(12)})
    assert len(await ends.push.send()) == 1
    for number in range(9):
        (ends.here / f"gentools/{number}.py").unlink()
    assert await ends.push.send() == []
    assert found(ends.there) == {}


async def test_name_that_is_not_unicode_is_named(ends: Ends):
    put(ends.here, {"gentools/fine.py": "x"})
    (Path(os.fsdecode(os.fsencode(ends.here) + b"/gentools/\xff.py"))).touch()
    (notice,) = await ends.push.send()
    assert notice.endswith("(its name is not valid UTF-8).")
    assert found(ends.there) == {"gentools/fine.py": "x"}


async def test_uploaded_files_go_to_the_node(ends: Ends):
    put(ends.here, {"data/a.csv": "1", "data/b.csv": "2", "one.csv": "3", "other": "4"})
    uploads = uploads_to(ends.here)
    for name in ("data", "one.csv", "missing", "gentools/x.py"):
        uploads[ends.here / name] = None
    uploads[ends.here.parent / "outside"] = None
    assert await ends.push.send() == []
    assert found(ends.there) == {"data/a.csv": "1", "data/b.csv": "2", "one.csv": "3"}
    (ends.here / "one.csv").unlink()
    uploads[ends.here / "other"] = None
    await ends.push.send()
    assert found(ends.there) == {"data/a.csv": "1", "data/b.csv": "2", "other": "4"}


async def test_installed_packages_go_to_a_node_of_the_same_platform(ends: Ends, packed: list[list[str]]):
    package = ends.here / ".ipybox/packages"
    put(package, {"tidy/__init__.py": "x", "tidy/.env": "y", "tidy-1.dist-info/METADATA": "Name: tidy\nVersion: 1\n"})
    for _ in range(2):
        assert await ends.push.send() == []
    assert [len(part) for part in packed] == [3]
    assert (ends.there / ".ipybox/packages/tidy/.env").read_text() == "y"
    other = ends.new_push("Python of Mars")
    (notice,) = await other.send()
    assert notice.startswith(f"Installed packages are not on the node: they are for {platform_name()}, and the node ")
    assert notice.endswith(" runs Python of Mars: install them there, in ipybox's environment.")
    assert await other.send() == []
    package.rename(ends.here / "old")
    put(package, {"neat/__init__.py": "x"})
    await ends.push.send()
    assert [path.name for path in (ends.there / ".ipybox/packages").iterdir()] == ["neat"]


async def test_after_another_installation_only_its_files_are_sent(ends: Ends, packed: list[list[str]]):
    package, new = ends.here / ".ipybox/packages", ends.here / ".ipybox/packages.new"
    put(package, {"tidy.py": "x"})
    await ends.push.send()
    put(new, {"neat.py": "y"})
    os.link(package / "tidy.py", new / "tidy.py")
    package.rename(ends.here / "old")
    new.rename(package)
    await ends.push.send()
    assert packed == [[".ipybox/packages/tidy.py"], [".ipybox/packages/neat.py"]]


async def test_files_and_directories_of_the_node_are_read(ends: Ends):
    put(ends.there, {"data/a.csv": "1", "data/b/c.csv": "2", "data/.env": "secret"})
    file = await ends.push.read("data/a.csv")
    assert (file.data, file.mime_type) == (b"1", "text/csv")
    directory = await ends.push.read("data")
    assert directory.mime_type == "application/x-tar"
    assert directory.omitted == (".env (it may contain secrets)",)
    for path, error in [("missing", FileNotFoundError), ("../x", PermissionError), ("data/.env", PermissionError)]:
        with pytest.raises(error, match="on the node: "):
            await ends.push.read(path)
    assert ends.link.problem is None


HOSTILE: dict[str, tuple[bytes, str]] = {
    "endless": (b"x" * (protocol.MAX_MESSAGE_BYTES + (1 << 20)), "a message larger than"),
    "no-json": (b"junk\n", "an invalid message"),
    "unknown": (b'{"size": 0, "then": 1}\n', "an invalid message"),
    "huge": (
        b'{"tar": true, "size": 99999999999}\n',
        "content of 99999999999 bytes|an invalid message",
    ),
    "request": (b'{"removed": []}\n', "an invalid message"),
    "names": (
        json.dumps(dict.fromkeys(map(str, range(protocol.MAX_VALUES + 1)))).encode() + b"\n",
        "a message of more",
    ),
}


@pytest.mark.parametrize(("given", "violation"), HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("reads", [True, False], ids=["read", "send"])
async def test_invalid_answer_cuts_the_node_off(ends: Ends, given: bytes, violation: str, reads: bool):
    put(ends.here, {"gentools/a.py": "x"})
    ends.be_hostile(given)
    if reads:
        with pytest.raises(OSError, match=r"^can't read the file on the node: it sent "):
            await ends.push.read("x")
    else:
        assert await ends.push.send() == []
    assert ends.link.closed.is_set()
    assert re.match(f"the node sent ({violation})", ends.link.problem or "")
    assert found(ends.here) == {"gentools/a.py": "x"}


async def test_answer_of_another_kind_to_what_is_sent_cuts_the_node_off(ends: Ends):
    put(ends.here, {"gentools/a.py": "x"})
    ends.be_hostile(Content(tar=True), b"x")
    assert await ends.push.send() == []
    assert ends.link.closed.is_set()
    assert (ends.link.problem or "").startswith("the node sent an invalid message")


async def test_answer_of_another_kind_is_no_file_and_cuts_the_node_off(ends: Ends):
    ends.be_hostile(Message())
    with pytest.raises(OSError, match="it sent an invalid message"):
        await ends.push.read("x")
    assert ends.link.closed.is_set()


@pytest.mark.parametrize("given", [b"", b'{"tar": fal', b'{"tar": false, "size": 10}\nshort'])
async def test_answer_that_breaks_off_is_not_a_file(ends: Ends, given: bytes):
    ends.be_hostile(given)
    with pytest.raises(OSError, match="it is not responding"):
        await ends.push.read("x")


async def test_node_that_does_not_answer_holds_nothing_up_for_ever(ends: Ends, monkeypatch: pytest.MonkeyPatch):
    put(ends.here, {"gentools/a.py": "x"})
    ends.be_silent()
    monkeypatch.setattr(push, "ANSWER_TIMEOUT", 0.2)
    monkeypatch.setattr(push, "SLOWEST", 1 << 60)
    assert await ends.push.send() == [
        "Not sent to the node that runs code: gentools (the node did not respond in time)."
    ]
    with pytest.raises(OSError, match="it is not responding"):
        await ends.push.read("x")


async def test_node_that_answers_slowly_has_one_deadline_for_all_that_is_sent(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
):
    put(ends.here, {f"{directory}/a.py": "x" for directory in push.CODE})
    ends.be_silent()
    monkeypatch.setattr(push, "ANSWER_TIMEOUT", 0.5)
    monkeypatch.setattr(push, "SLOWEST", 1 << 60)
    begun = time.monotonic()
    assert len(await ends.push.send()) == len(push.CODE) > 1
    assert time.monotonic() - begun < 2 * push.ANSWER_TIMEOUT


async def test_node_that_fails_is_named_as_text_of_its_own(ends: Ends):
    put(ends.here, {"gentools/a.py": "x"})
    ends.be_hostile(b'{"kind": "other", "reason": "full\\u001b[2J"}\n')
    (notice,) = await ends.push.send()
    assert notice.startswith("Not sent to the node that runs code: gentools (on the node: full")
    assert "\x1b" not in notice
    assert await ends.push.send() == []
    assert ends.requests == 2, "it is tried again"


def test_workspace_of_a_node_is_private_even_if_another_user_has_taken_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    taken = tmp_path / f"ipybox-nodes-{os.getuid()}"
    taken.mkdir(mode=0o755)
    taken.chmod(0o755)
    workspace = NodeWorkspace()
    assert not workspace.path.is_relative_to(taken)
    assert workspace.path.parent.stat().st_mode & 0o777 == 0o700
    workspace.remove()
    assert list(tmp_path.iterdir()) == [taken]


def test_workspace_of_a_killed_node_is_removed_and_that_of_another_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = NodeWorkspace()
    left = first.path.with_name("left")
    (left / "closed").mkdir(parents=True)
    (left / "closed").chmod(0o500)
    second = NodeWorkspace()
    assert sorted(first.path.parent.iterdir()) == sorted([first.path, second.path])
    for each in (first, second):
        each.remove()
