"""Files reach and leave a workspace by allowed paths only, whole or not at all, whatever is planted there."""

import io
import os
import socket
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, cast

import pytest

from ipybox.beneath import Directory
from ipybox.sandbox.settings import PROFILES, SandboxSettings
from ipybox.state import state_dir
from ipybox.transfer import files
from ipybox.transfer.files import MAX_DEPTH, TOLD, Item, Transfer, open_file, write_file, write_tree
from ipybox.transfer.places import Places
from ipybox.transfer.rules import Rules
from ipybox.transfer.workspace import Workspace
from tests.servers import ROOT, WAIT
from tests.test_beneath import names, planting

#: What programs of the host believe or execute.
PROTECTED = (
    *(".env", ".env.local", "a/.ENV", ".ipybox", ".ipybox/packages/x", ".git/hooks/pre-commit", "sub/.git/config"),
    *(".mcp.json", ".claude/settings.json", ".vscode/tasks.json", "sandbox-config.json", "ipybox.yaml"),
    *(".bashrc", "sub/.gitconfig"),
)
SECRET = (
    *(".env", ".env.local", "a/.Env", ".ipybox/seal", ".envrc", ".npmrc", "a/.mcp.json"),
    ".claude/settings.local.json",
)

#: Ways to name a file that is outside.
WAYS_OUT = {
    "parent": "../outside/file",
    "dots": "a/../../outside/file",
    "absolute": "OUTSIDE/file",
    "link": "link",
    "link to a directory": "directory/file",
    "link with dots": "a/up/../outside/file",
    "dangling link": "dangling",
    "link to a link": "chain/file",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "workspace"
    directory.mkdir()
    return directory


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Where nothing must change, and from where nothing must be read."""
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "file").write_text("outside")
    return directory


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return Workspace(root)


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


def of_type(kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo()
    member.type, member.linkname = kind, target
    return member


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


# Files


def test_file_arrives_with_the_directories_that_it_needs(workspace: Workspace, root: Path):
    done = workspace.upload("a/b/file", b"content")

    assert (done.path, done.files, done.size, done.replaced) == (root / "a/b/file", 1, 7, False)
    assert (root / "a/b/file").read_bytes() == b"content"
    assert names(root) == ["a", "a/b", "a/b/file"]
    assert (root / "a/b/file").stat().st_mode & 0o111 == 0


def test_file_takes_the_place_of_another_one_and_can_be_executed_as_that(workspace: Workspace, root: Path):
    (root / "script").write_text("old")
    (root / "script").chmod(0o755)

    assert workspace.upload(root / "script", b"").replaced
    assert (root / "script").read_bytes() == b""
    assert (root / "script").stat().st_mode & 0o100


@pytest.mark.parametrize("path", [".", "", "directory"])
def test_file_does_not_take_the_place_of_a_directory(path: str, workspace: Workspace, root: Path):
    (root / "directory/inner").mkdir(parents=True)

    with pytest.raises(IsADirectoryError, match="is a directory, where a file has to be: nothing was changed"):
        workspace.upload(path, b"content")
    assert names(root) == ["directory", "directory/inner"]


def test_nobody_ever_sees_half_a_file(workspace: Workspace, root: Path):
    versions = {letter * 1_000_000 for letter in (b"a", b"b")}
    workspace.upload("file", min(versions))
    done = threading.Event()
    seen: set[bytes] = set()

    def look() -> None:
        while not done.is_set():
            seen.add((root / "file").read_bytes())

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(20):
        for version in versions:
            workspace.upload("file", version)
    done.set()
    thread.join(WAIT)
    assert seen <= versions


def test_write_that_fails_changes_nothing(root: Path):
    class Broken(io.RawIOBase):
        parts = iter([b"new"])

        def read(self, size: int = -1) -> bytes:
            for part in self.parts:
                return part
            raise OSError(5, "Input/output error")

    (root / "file").write_text("old")
    directory = Places(root).locate(".")
    with directory.open() as opened, pytest.raises(OSError, match="Input/output error"):
        write_file(opened, Item(("file",), cast(IO[bytes], Broken())), Transfer())
    assert names(root) == ["file"]
    assert (root / "file").read_text() == "old"


def test_downloaded_file_is_its_content_and_what_its_name_says(workspace: Workspace, root: Path):
    (root / "data.json").write_bytes(b"{}")
    (root / "data.tar.gz").write_bytes(b"\x1f\x8b")

    assert workspace.download("data.json").data == b"{}"
    assert workspace.download("data.json").mime_type == "application/json"
    assert workspace.download("data.tar.gz").mime_type == "application/octet-stream"


def test_missing_file_is_named(workspace: Workspace, root: Path):
    with pytest.raises(FileNotFoundError, match=f"^{root}/a: No such file or directory$"):
        workspace.download("a/b")
    assert names(root) == []


# Places


@pytest.mark.parametrize("path", WAYS_OUT.values(), ids=WAYS_OUT)
def test_nothing_outside_is_read_or_written(path: str, workspace: Workspace, root: Path, outside: Path):
    (root / "a").mkdir()
    (root / "link").symlink_to(outside / "file")
    (root / "directory").symlink_to("../outside")
    (root / "a/up").symlink_to("..")
    (root / "dangling").symlink_to(outside / "new")
    (root / "chain").symlink_to("directory")
    path = path.replace("OUTSIDE", str(outside))

    with pytest.raises(PermissionError, match=f"is in none of the allowed directories: {root}$"):
        workspace.download(path)
    with pytest.raises(PermissionError, match="allowed directories"):
        workspace.upload(path, b"new")
    with pytest.raises(PermissionError, match="allowed directories"):
        workspace.upload(path, tar(("x", b"new")), "tar")
    assert names(outside) == ["file"]
    assert (outside / "file").read_text() == "outside"


def test_link_that_stays_inside_leads_where_it_does_elsewhere(workspace: Workspace, root: Path):
    (root / "real").mkdir()
    (root / "link").symlink_to("real")

    assert workspace.upload("link/file", b"content").path == root / "real/file"
    assert workspace.download("link/file").data == b"content"
    assert members(workspace.download("link").data) == {"file": "content"}


@pytest.mark.parametrize("swapped", ["a", "a/b"])
def test_link_that_appears_after_the_check_is_not_followed(swapped: str, root: Path, outside: Path):
    (root / "a/b").mkdir(parents=True)
    (outside / "b").mkdir()
    place = Places(root).locate("a/b/file")
    (root / swapped).rename(root / "away")
    (root / swapped).symlink_to(outside)

    for create in (False, True):
        with (
            pytest.raises(NotADirectoryError, match=f"^{root}/{swapped} is a link"),
            place.parent.open(create=create),
        ):
            pass
    assert names(outside) == ["b", "file"]


def test_directory_that_has_taken_the_place_of_an_allowed_one_is_refused(root: Path, outside: Path, tmp_path: Path):
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    workspace = Workspace(root, [allowed])
    allowed.rename(tmp_path / "away")
    allowed.symlink_to(outside)

    with pytest.raises(PermissionError, match="allowed director"):
        workspace.download(allowed / "file")
    place = Places(root, [tmp_path / "away"]).locate(tmp_path / "away")
    (tmp_path / "away").rename(tmp_path / "gone")
    (tmp_path / "away").symlink_to(outside)
    with pytest.raises(PermissionError, match="another directory than when ipybox was started"), place.open():
        pass


def test_nothing_outside_is_reached_while_links_come_and_go(workspace: Workspace, root: Path, outside: Path):
    (root / "a").mkdir()
    read: set[bytes] = set()
    with planting(lambda: [root / "a/file", root / "a"], outside) as planted:
        for number in range(300):
            with suppress(OSError):
                workspace.upload("a/file", b"inside")
            with suppress(OSError):
                workspace.upload("a", tar(("file", b"inside"), ("b/file", b"inside")), "tar")
            with suppress(OSError):
                read.add(workspace.download("a/file").data if number % 2 else workspace.download("a").data)
    assert planted
    assert not any(b"outside" in data for data in read)
    assert names(outside) == ["file"]
    assert (outside / "file").read_text() == "outside"


def test_only_allowed_directories_are_open(root: Path, outside: Path):
    (root / "file").touch()
    workspace = Workspace(root, ["in/new", outside])

    assert workspace.upload("in/new/a/file", b"").path == root / "in/new/a/file"
    assert workspace.download(outside / "file").data == b"outside"
    assert workspace.upload(outside / "b/file", b"").path == outside / "b/file"
    for path in ("file", "in", ".", "in/newer", outside.parent):
        with pytest.raises(PermissionError, match=f"allowed directories: {root}/in/new, {outside}$"):
            workspace.download(path)


def test_allowed_directory_that_is_a_planted_link_leads_nowhere(root: Path, outside: Path, tmp_path: Path):
    (root / "out").symlink_to(outside)
    (tmp_path / "alias").symlink_to(root)

    for allowed in ("out", root / "out", tmp_path / "alias/out"):
        workspace = Workspace(root, [allowed])
        with pytest.raises(PermissionError, match="allowed directories"):
            workspace.download("out/file")
        with pytest.raises(PermissionError, match="allowed directories"):
            workspace.download(outside / "file")


@pytest.mark.parametrize("directory", ["../missing", ".ipybox", ".git/hooks", "a/.env.d", "STATE"])
def test_directory_that_cannot_be_allowed_is_an_error_at_once(directory: str, root: Path):
    state_dir().mkdir(parents=True, exist_ok=True)
    with pytest.raises(ValueError, match=r"^the (allowed )?directory .* (is not a directory|can't be allowed)"):
        Workspace(root, [directory.replace("STATE", str(state_dir()))])


@pytest.mark.parametrize("path", ["a\0b", "x" * 2000, "d/" * 100])
def test_what_is_no_path_is_refused(path: str, workspace: Workspace, root: Path):
    with pytest.raises(ValueError, match="is too long for a path, or has a NUL"):
        workspace.upload(path, b"")
    with pytest.raises(ValueError, match="is too long for a path, or has a NUL"):
        workspace.download(path)
    assert names(root) == []


# Rules


@pytest.mark.parametrize("path", PROTECTED)
def test_protected_names_are_not_written(path: str, workspace: Workspace, root: Path, tmp_path: Path):
    (tmp_path / "source").write_text("new")

    for act in (
        lambda: workspace.upload(path, b"new"),
        lambda: workspace.upload(path, tar(("x", b"")), "tar"),
        lambda: workspace.copy_in(tmp_path / "source", path),
    ):
        with pytest.raises(PermissionError, match=r"can't be uploaded: it (is protected|may hold secrets)"):
            act()
    done = workspace.upload("", tar((path, b"new"), ("other", b"")), "tar")
    assert len(done.left_out) == 1
    assert names(root) == ["other"]


def test_protected_names_are_so_in_any_case_and_in_each_allowed_directory(root: Path, outside: Path):
    for path in (".GIT/config", "sub/.VScode/tasks.json", "claude.MD"):
        with pytest.raises(PermissionError, match="can't be uploaded: it is protected"):
            Workspace(root, [outside]).upload(outside / path, b"new")
    assert names(outside) == ["file"]


@pytest.mark.parametrize("path", SECRET)
def test_secrets_are_not_read(path: str, workspace: Workspace, root: Path, tmp_path: Path):
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_text("secret")
    (root / "link").symlink_to(path)

    for name in (path, "link"):
        with pytest.raises(PermissionError, match="can't be downloaded: it may hold secrets"):
            workspace.download(name)
        with pytest.raises(PermissionError, match="can't be downloaded: it may hold secrets"):
            workspace.copy_out(name, tmp_path / "copy")
    downloaded = workspace.download(".")
    assert b"secret" not in downloaded.data
    assert any("may hold secrets" in line for line in downloaded.transferred.left_out)


def test_configuration_that_is_no_secret_is_read(workspace: Workspace, root: Path):
    (root / ".git").mkdir()
    (root / ".git/config").write_text("[core]")

    assert workspace.download(".git/config").data == b"[core]"


def test_configuration_of_git_with_credentials_is_not_read(workspace: Workspace, root: Path):
    (root / ".git").mkdir()
    (root / ".git/config").write_text('[remote "origin"]\n\turl = https://me:secret@example.org/x\n')

    with pytest.raises(PermissionError, match="it may hold secrets"):
        workspace.download(".git/config")
    assert b"secret" not in workspace.download(".").data


def test_names_above_the_workspace_do_not_count(tmp_path: Path):
    root = tmp_path / ".claude/worktrees/.env.d"
    root.mkdir(parents=True)

    assert Workspace(root).upload("file", b"x").path == root / "file"
    assert Workspace(root).download("file").data == b"x"
    with pytest.raises(PermissionError, match="may hold secrets"):
        Workspace(root, [tmp_path]).download(tmp_path / ".claude/.env")


def test_keys_and_programs_of_ipybox_are_out_of_reach_in_directories_that_are_allowed():
    home = state_dir().parent
    rules = Rules(home, [home, ROOT])

    assert rules.reading(state_dir() / "seal.key")
    assert rules.writing(ROOT / "ipybox" / "cli.py")
    assert rules.writing(Path(os.path.realpath(sys.prefix)) / "lib" / "x.py")
    assert rules.writing(ROOT / "file") is None


def with_settings(root: Path, allowed: Path | str = ".", **changed: object) -> Workspace:
    settings = replace(SandboxSettings(source="test"), **changed)  # pyright: ignore[reportArgumentType]  a test's own
    return Workspace(root, [allowed], settings=lambda: settings)


def test_what_the_sandbox_hides_from_code_is_not_to_be_had_by_a_transfer(root: Path):
    for name in ("hidden", "fixed", "open"):
        (root / name).mkdir()
        (root / name / "file").write_text(name)
    (root / "settings.json").touch()
    workspace = with_settings(root, deny_read=("hidden",), deny_write=("fixed",), file=root / "settings.json")

    with pytest.raises(PermissionError, match="the sandbox hides it"):
        workspace.download("hidden/file")
    assert list(members(workspace.download(".").data)) == ["fixed", "fixed/file", "open", "open/file", "settings.json"]
    for path in ("hidden/file", "fixed/file", "settings.json"):
        with pytest.raises(PermissionError, match="can't be uploaded"):
            workspace.upload(path, b"")
    assert workspace.upload("open/file", b"").replaced


def test_allowed_directory_counts_as_named_in_the_settings(
    root: Path, outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    (outside / ".ssh").mkdir()
    workspace = Workspace(root, [outside], settings=lambda: PROFILES["workspace"])

    assert workspace.download(outside / "file").data == b"outside"
    assert workspace.upload(outside / "new", b"").path == outside / "new"
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/id").touch()
    with pytest.raises(PermissionError, match="the sandbox hides it"):
        Workspace(root, [tmp_path], settings=lambda: PROFILES["default"]).download(tmp_path / ".ssh/id")


# Kinds


def test_only_regular_files_are_opened_and_nobody_is_waited_for(workspace: Workspace, root: Path):
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(root / "socket"))
        for name, kind in (("pipe", "a pipe"), ("socket", "a socket"), ("loop", "a link")):
            with pytest.raises(PermissionError, match=f"{name} is {kind}: only files and directories"):
                within(WAIT, lambda name=name: workspace.download(name))
        downloaded = workspace.download(".").transferred
    assert downloaded.left_out == ("loop (a link)", "pipe (a pipe)", "socket (a socket)")
    with pytest.raises(PermissionError, match="zero is a device"):
        within(WAIT, lambda: Workspace(root, ["/dev"]).download("/dev/zero"))


def test_pipe_in_the_place_of_a_file_is_replaced(workspace: Workspace, root: Path):
    os.mkfifo(root / "pipe")

    within(WAIT, lambda: workspace.upload("pipe", b"content"))
    assert (root / "pipe").read_bytes() == b"content"


def test_unreadable_file_is_left_out_of_a_directory(root: Path, monkeypatch: pytest.MonkeyPatch):
    (root / "closed").touch()
    (root / "open").touch()
    transfer = Transfer()

    def closed(directory: object, name: str) -> object:
        if name == "closed":
            raise PermissionError(13, "Permission denied")
        return open_file(directory, name)  # pyright: ignore[reportArgumentType]  it is one

    monkeypatch.setattr(files, "open_file", closed)  # root can read everything
    with Places(root).locate(".").open() as directory:
        assert [item.names for item in files.walk(directory, transfer, lambda _: None)] == [("open",)]
    assert transfer.left_out == ("closed (can't be read)",)


# Sizes


def test_size_is_limited_and_the_error_says_to_what(root: Path):
    workspace = Workspace(root, max_bytes=1000)
    reason = "has 1001 bytes, and at most 1000 bytes are transferred at once"

    assert workspace.upload("file", bytes(1000)).size == 1000
    assert len(workspace.download("file").data) == 1000
    with pytest.raises(ValueError, match=reason):
        workspace.upload("file", bytes(1001))
    (root / "file").write_bytes(bytes(1001))
    with pytest.raises(ValueError, match=f"{root}/file {reason}"):
        workspace.download("file")
    with pytest.raises(ValueError, match=reason):
        workspace.download(".")
    with pytest.raises(ValueError, match=reason):
        workspace.copy_in(root / "file", "copy")
    with pytest.raises(ValueError, match=reason):
        workspace.copy_out("file", root / "copy")
    assert names(root) == ["file"]


def test_huge_file_is_refused_before_it_is_read(workspace: Workspace, root: Path):
    with (root / "huge").open("wb") as file:
        file.truncate(1024**4)

    with pytest.raises(ValueError, match=r"huge has 1.049e\+06 MiB, and at most 64 MiB"):
        within(WAIT, lambda: workspace.download("huge"))


def test_sizes_of_the_files_of_a_directory_add_up(root: Path, tmp_path: Path):
    for name in ("a", "b"):
        (root / name).write_bytes(bytes(600))
    workspace = Workspace(root, max_bytes=1000)

    with pytest.raises(ValueError, match="at b: these are more than the 1000 bytes"):
        workspace.download(".")
    with pytest.raises(ValueError, match="at b: these are more than the 1000 bytes"):
        workspace.copy_out(".", tmp_path / "copy")
    assert names(tmp_path / "copy") == []


def test_file_that_grows_while_it_is_read_does_not_get_past_the_limit():
    transfer = Transfer(max_bytes=1000)
    with pytest.raises(ValueError, match="more than the 1000 bytes"):
        b"".join(transfer.chunks(Item(("growing",), io.BytesIO(bytes(5000)))))


@pytest.mark.parametrize("deep", [False, True], ids=["many", "deep"])
def test_number_and_depth_of_files_are_limited(
    deep: bool, workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(files, "MAX_ITEMS", 50)
    source = root / "source"
    source.mkdir()
    if deep:
        source.joinpath(*["d"] * (MAX_DEPTH + 1)).mkdir(parents=True)
        packed = tar(("d/" * MAX_DEPTH + "file", b""))
    else:
        for number in range(51):
            (source / str(number)).touch()
        packed = tar(*((str(number), b"") for number in range(51)))
    limit = f"{MAX_DEPTH} levels|50 files"
    before = ["copy", *names(root)]  # made before what is to be in it is read

    for act in (
        lambda: workspace.download("source"),
        lambda: workspace.copy_in(source, "copy"),
        lambda: workspace.upload("copy", packed, "tar"),
    ):
        with pytest.raises(ValueError, match=limit):
            act()
    assert names(root) == before


# Directories


def test_directory_comes_back_as_it_was_sent(workspace: Workspace, root: Path):
    (root / "a/empty").mkdir(parents=True)
    (root / "a/script").write_text("#!")
    (root / "a/script").chmod(0o700)
    (root / "a/ä \n").write_text("ä")
    (root / os.fsdecode(b"a/\xff")).write_bytes(b"x")
    (root / "a/zeros").write_bytes(bytes(3_000_000))

    packed = workspace.download("a")
    assert (packed.mime_type, packed.transferred.files, packed.transferred.left_out) == ("application/x-tar", 4, ())
    done = workspace.upload("b", packed.data, "tar")
    assert (done.files, done.size) == (4, packed.transferred.size)
    assert names(root / "a") == names(root / "b")
    for path in (root / "a").iterdir():
        copy = root / "b" / path.name
        assert path.is_dir() or copy.read_bytes() == path.read_bytes()
        assert bool(copy.stat().st_mode & 0o100) == bool(path.stat().st_mode & 0o100)
    assert workspace.download("b").data == packed.data


def test_unpacking_keeps_what_else_is_there(workspace: Workspace, root: Path):
    (root / "d/sub").mkdir(parents=True)
    (root / "d/kept").write_text("kept")
    (root / "d/sub/file").write_text("old")

    workspace.upload("d", tar(("./sub/file", b"new"), ("./sub/more", b"more")), "tar")
    assert members(workspace.download("d").data) == {
        "kept": "kept",
        "sub": None,
        "sub/file": "new",
        "sub/more": "more",
    }


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_does_not_fit_changes_nothing(kind: str, workspace: Workspace, root: Path, outside: Path):
    match kind:
        case "file":
            (root / "z").touch()
            packed = tar(("a", b""), ("z/file", b""))
        case "directory":
            (root / "z/inner").mkdir(parents=True)
            packed = tar(("a", b""), ("z", b""))
        case _:
            (root / "z").symlink_to(outside)
            packed = tar(("a", b""), ("z/file", b""))
    before = names(root)

    with pytest.raises((IsADirectoryError, NotADirectoryError), match=f"{root}/z is .*: nothing was changed"):
        workspace.upload(".", packed, "tar")
    assert names(root) == before
    assert (outside / "file").read_text() == "outside"


def test_what_others_put_beside_it_meanwhile_takes_no_place(root: Path):
    def items() -> Iterator[Item]:
        yield Item(("d", "a"), io.BytesIO(b"a"))
        (scratch,) = root.glob(".transfer.*")
        (scratch / ".git/hooks").mkdir(parents=True)
        (scratch / "d/planted").touch()
        yield Item(("b",), io.BytesIO(b"b"))

    with Places(root).locate(".").open() as directory:
        write_tree(directory, items(), Transfer())
    assert names(root) == ["b", "d", "d/a"]


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_takes_the_place_of_a_file_that_was_seen_is_not_opened(kind: str, root: Path, outside: Path):
    class Late(Directory):
        """A directory whose state is told as it was a moment ago."""

        def stat(self, name: str) -> os.stat_result:
            return (outside / "file").stat()

    if kind == "link":
        (root / "file").symlink_to(outside / "file")
    else:
        os.mkfifo(root / "file")
    with Places(root).locate(".").open() as directory:
        late = Late(directory.fd, directory.path)

        def read() -> None:
            with open_file(late, "file"):
                raise AssertionError("it was opened")

        with pytest.raises(OSError, match=f"{root}/file"):
            within(WAIT, read)


def negative() -> bytes:
    packed = bytearray(tar(("a", b"x")))
    packed[124:136] = b"\xff" * 12  # minus one, in base 256
    packed[148:156] = b" " * 8
    packed[148:156] = b"%06o\0 " % sum(packed[:512])
    return bytes(packed)


def compressed() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a"))
    return packed.getvalue()


def long_names() -> bytes:
    """Thousands of headers about one member, each inside of the one before."""
    header = of_type(tarfile.GNUTYPE_LONGNAME)
    header.name = "x"
    return header.tobuf() * 5000


@pytest.mark.parametrize(
    ("packed", "problem"),
    [
        (tar(("a", b""), ("/etc/file", b"")), "leads out of it"),
        (tar(("a", b""), ("../file", b"")), "leads out of it"),
        (tar(("a", b""), ("b/../../file", b"")), "leads out of it"),
        (tar(("a", b""), ("a", b"")), "a twice"),
        (tar(("a", b""), ("a/b", b"")), "a as a file and as a directory"),
        (tar(("a/b", b""), ("a", b"")), "a twice"),
        (tar(("a", b"x" * 2000))[:1000], "cut off"),
        (tar((".", b"x")), "has no name"),
        (negative(), "cut off or sparse"),
        (tar(("a", of_type(tarfile.GNUTYPE_SPARSE))), "cut off or sparse"),
        (compressed(), "not an uncompressed tar"),
        (long_names(), "tar"),
        (b"text", "not an uncompressed tar"),
        (b"", "not an uncompressed tar"),
    ],
    ids=[
        *("absolute", "dots", "inner dots", "twice", "file first", "directory first", "cut off", "no name"),
        *("negative", "sparse", "compressed", "long names", "text", "empty"),
    ],
)
def test_tar_that_is_wrong_changes_nothing(packed: bytes, problem: str, workspace: Workspace, root: Path):
    with pytest.raises(ValueError, match=problem):
        within(WAIT, lambda: workspace.upload("d", packed, "tar"))
    assert names(root.parent) == ["workspace"]


def test_links_and_devices_in_a_tar_are_left_out(workspace: Workspace, root: Path, outside: Path):
    packed = tar(
        ("a", b"a"),
        ("link", of_type(tarfile.SYMTYPE, str(outside))),
        ("link/file", b"new"),
        ("hard", of_type(tarfile.LNKTYPE, str(outside / "file"))),
        ("pipe", of_type(tarfile.FIFOTYPE)),
        ("disk", of_type(tarfile.BLKTYPE)),
    )

    done = workspace.upload("d", packed, "tar")
    assert done.left_out == (
        "link (a link)",
        "hard (a link)",
        "pipe (a device or the like)",
        "disk (a device or the like)",
    )
    assert names(root) == ["d", "d/a", "d/link", "d/link/file"]
    assert (outside / "file").read_text() == "outside"


def test_what_is_left_out_is_told_in_few_words(workspace: Workspace, root: Path):
    (root / ".git/hooks").mkdir(parents=True)
    for number in range(TOLD + 5):
        (root / f"{number}\x1b\n").symlink_to(".")

    left_out = workspace.download(".").transferred.left_out
    assert len(left_out) == TOLD + 1
    assert left_out[0] == r"0\u001b\u000a (a link)"
    assert left_out[-1] == "5 more"


# The same machine


def test_host_files_are_copied_in_and_out(workspace: Workspace, root: Path, tmp_path: Path):
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub/script").write_text("#!")
    (source / "sub/script").chmod(0o755)
    (source / ".git").mkdir()
    (source / ".git/config").touch()
    (source / "link").symlink_to("sub")
    (tmp_path / "alias").symlink_to(source)

    done = workspace.copy_in(tmp_path / "alias", "copy")
    assert (done.path, done.files, done.size) == (root / "copy", 1, 2)
    assert done.left_out == (".git (it is protected, as programs of the host believe or execute it)", "link (a link)")
    assert names(root) == ["copy", "copy/sub", "copy/sub/script"]
    assert workspace.copy_in(source / "sub/script", "copy/sub/script").replaced

    back = workspace.copy_out("copy", tmp_path / "x/back")
    assert (back.path, back.files) == (tmp_path / "x/back", 1)
    assert (tmp_path / "x/back/sub/script").stat().st_mode & 0o100
    assert not workspace.copy_out("copy/sub/script", tmp_path / "y/script").replaced
    assert (tmp_path / "y/script").read_text() == "#!"


def test_copies_fail_with_the_name_of_what_is_missing(workspace: Workspace, tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=f"^{tmp_path}/missing: No such file or directory$"):
        workspace.copy_in(tmp_path / "missing", "file")
    with pytest.raises(FileNotFoundError, match=f"^{tmp_path}/workspace/missing: No such file or directory$"):
        workspace.copy_out("missing", tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_copy_to_the_workspace_itself_follows_no_link_there(workspace: Workspace, root: Path, outside: Path):
    (root / "file").touch()
    (root / "link").symlink_to(outside)

    for destination in (root / "link/file", root / "link/new/file"):
        with pytest.raises(NotADirectoryError, match=f"^{root}/link is a link"):
            workspace.copy_out("file", destination)
    assert names(outside) == ["file"]
    assert (outside / "file").read_text() == "outside"
