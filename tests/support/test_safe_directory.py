"""Links that code plants in the workspace lead the host nowhere, whenever they appear."""

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from ipybox.mcp_apigen.package.files import render_package
from ipybox.mcp_apigen.package.manifest import MANIFEST
from ipybox.support.safe_directory import Directory, open_directory
from ipybox.workspace.registrations import ToolSpec
from tests.kernel_mgr.test_output_collector import Collector, collected, display, png
from tests.written_packages import write_package

#: How often the host writes while a link and a directory keep taking each other's place.
WRITES = 200

#: Ways to name `x/y` in a directory, beside which `alias` is a link to it.
SPELLINGS: dict[str, Callable[[Path], Path]] = {
    "plain": lambda root: root / "x" / "y",
    "dots": lambda root: root / "x" / "." / "z" / ".." / "y",
    "dots before the root": lambda root: root.parent / "z" / ".." / root.name / "x" / "y",
    "another link to the root": lambda root: root.parent / "alias" / "x" / "y",
    "relative": lambda root: Path(os.path.relpath(root / "x" / "y")),
}

#: Each use of a name in a directory.
ACTS: dict[str, Callable[[Directory, str], object]] = {
    "make": lambda directory, name: directory.make(name),
    "open": lambda directory, name: directory.open(name).__enter__(),
    "write": lambda directory, name: directory.write_new(name, b""),
    "stat": lambda directory, name: directory.stat(name),
    "rename": lambda directory, name: directory.rename(name, directory, "to"),
    "rename to": lambda directory, name: directory.rename("from", directory, name),
    "remove": lambda directory, name: directory.remove(name),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory that others write."""
    directory = tmp_path / "workspace"
    directory.mkdir()
    return directory


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Where links of the tests lead; it must stay as it is."""
    directory = tmp_path / "outside"
    directory.mkdir()
    return directory


def names(directory: Path) -> list[str]:
    """All that is in a directory and below it."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def picture() -> Collector:
    return collected(display(png(b"picture")))


@contextmanager
def planting(targets: Callable[[], list[Path]], outside: Path) -> Generator[list[Path]]:
    """Keeps moving the targets away, putting links in their places and removing these; tells where there were some."""
    away = outside.parent / "away"
    away.mkdir()
    done = threading.Event()
    planted: list[Path] = []

    def plant() -> None:
        number = 0
        while not done.is_set():
            for target in targets():
                number += 1
                with suppress(OSError):
                    target.rename(away / str(number))
                with suppress(OSError):
                    target.symlink_to(outside)
                    planted.append(target)
                with suppress(OSError):
                    target.unlink()

    thread = threading.Thread(target=plant)
    thread.start()
    try:
        yield planted
    finally:
        done.set()
        thread.join(60)


def test_missing_directories_are_made(root: Path) -> None:
    with open_directory(root / "a" / "b", untrusted_root=root) as directory:
        directory.write_new("file", b"data")
        assert directory.names() == ["file"]
        assert directory.path == root / "a" / "b"
    assert (root / "a" / "b" / "file").read_bytes() == b"data"


def test_missing_directory_is_not_made_unasked(root: Path) -> None:
    with (
        pytest.raises(FileNotFoundError, match=f"{root}/a"),
        open_directory(root / "a" / "b", untrusted_root=root, create=False),
    ):
        pass
    assert names(root) == []


def test_root_itself_is_opened_though_it_is_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    with open_directory(tmp_path / "link", untrusted_root=tmp_path / "link") as directory:
        directory.write_new("file", b"")
    assert names(root) == ["file"]


@pytest.mark.parametrize("place", ["last", "parent"])
@pytest.mark.parametrize("kind", ["link", "inner link", "dangling link", "loop", "file", "pipe"])
def test_what_is_no_directory_is_refused_by_name(kind: str, place: str, root: Path, outside: Path) -> None:
    match kind:
        case "link":
            (root / "x").symlink_to(outside)
        case "inner link":
            (root / "real").mkdir()
            (root / "x").symlink_to("real")
        case "dangling link":
            (root / "x").symlink_to(outside / "new")
        case "loop":
            (root / "x").symlink_to("x")
        case "file":
            (root / "x").touch()
        case _:
            os.mkfifo(root / "x")
    before = names(root)
    reason = "is a link" if kind.endswith(("link", "loop")) else "is not a directory"
    path = root / "x" if place == "last" else root / "x" / "y"
    with (
        pytest.raises(NotADirectoryError, match=rf"^{root}/x {reason}.*remove it$"),
        open_directory(path, untrusted_root=root),
    ):
        pass
    assert names(root) == before
    assert names(outside) == []


@pytest.mark.parametrize("spelled", SPELLINGS.values(), ids=SPELLINGS)
def test_directory_lies_beneath_however_it_is_spelled(
    spelled: Callable[[Path], Path], root: Path, outside: Path
) -> None:
    (root.parent / "alias").symlink_to(root)
    (root / "x").symlink_to(outside)
    with pytest.raises(NotADirectoryError, match="x is a link"), open_directory(spelled(root), untrusted_root=root):
        pass
    assert names(outside) == []


def test_links_are_followed_elsewhere_and_where_nobody_else_writes(root: Path, outside: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(outside)
    with open_directory(tmp_path / "link" / "a", untrusted_root=root) as directory:
        directory.write_new("elsewhere", b"")
    (root / "link").symlink_to(outside)
    with open_directory(root / "link" / "a") as directory:
        directory.write_new("plain", b"")
    assert names(outside) == ["a", "a/elsewhere", "a/plain"]


def test_directory_that_was_moved_is_still_the_one_that_is_written(root: Path, outside: Path) -> None:
    with open_directory(root / "x", untrusted_root=root) as directory:
        (root / "x").rename(root / "moved")
        (root / "x").symlink_to(outside)
        directory.write_new("file", b"")
        directory.make("made")
        directory.rename("file", directory, "renamed")
        directory.remove("made")
    assert names(root) == ["moved", "moved/renamed", "x"]
    assert names(outside) == []


@pytest.mark.parametrize("target", ["there", "missing"])
def test_file_is_not_written_through_a_link(target: str, root: Path, outside: Path) -> None:
    (outside / "there").write_text("kept")
    (root / "file").symlink_to(outside / target)
    with (
        open_directory(root, untrusted_root=root) as directory,
        pytest.raises(FileExistsError, match=f"{root}/file"),
    ):
        directory.write_new("file", b"data")
    assert names(outside) == ["there"]
    assert (outside / "there").read_text() == "kept"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\0b"], ids=ascii)
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_what_is_not_a_single_name_is_refused(act: Callable[[Directory, str], object], name: str, root: Path) -> None:
    with open_directory(root) as directory, pytest.raises(ValueError, match="not a file name"):
        act(directory, name)


def test_scratch_is_private_and_gone_in_the_end(root: Path) -> None:
    with open_directory(root) as directory, directory.scratch(".s") as scratch:
        scratch.write_new("file", b"")
        assert scratch.path.name.startswith(".s.")
        assert scratch.path.stat().st_mode & 0o777 == 0o700
    assert names(root) == []


def test_removing_follows_no_link_and_waits_for_no_pipe(root: Path, outside: Path) -> None:
    (outside / "kept").touch()
    tree = root / "tree" / "inner"
    tree.mkdir(parents=True)
    (tree / "link").symlink_to(outside)
    (tree / "file").touch()
    os.mkfifo(tree / "pipe")
    with open_directory(root) as directory:
        for name in ("tree", "missing"):
            directory.remove(name)
    assert names(root) == []
    (root / "link").symlink_to(outside)
    with open_directory(root) as directory:
        directory.remove("link")
    assert names(root) == []
    assert names(outside) == ["kept"]


def test_removing_ends_however_deep_directories_are_nested(root: Path) -> None:
    fd = os.open(root, os.O_RDONLY)
    for _ in range(5000):  # deeper than a path can be long, and than Python and descriptors allow
        os.mkdir("d", dir_fd=fd)
        os.mkfifo("pipe", dir_fd=fd)
        outer, fd = fd, os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(outer)
    os.close(fd)

    with open_directory(root) as directory:
        directory.remove("d")

    assert names(root) == ["pipe"]


def test_removing_ends_though_code_adds_directories_as_fast(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    added = count()

    def names_and_another(directory: Directory) -> list[str]:
        os.mkdir(str(next(added)), dir_fd=directory.fd)
        return os.listdir(directory.fd)

    monkeypatch.setattr(Directory, "names", names_and_another)
    (root / "d").mkdir()

    with open_directory(root) as directory:
        directory.remove("d", seconds=0.1)

    assert next(added) > 1


def test_images_go_where_they_should_and_through_no_link(root: Path, outside: Path) -> None:
    outputs = picture()
    (path,) = outputs.save(root / "images", untrusted_root=root).images
    assert path.parent == root / "images"
    assert path.read_bytes() == b"picture"
    (root / "images").rename(root / "old")
    (root / "images").symlink_to(outside)
    refused = outputs.save(root / "images", untrusted_root=root)
    assert refused.images == []
    assert "images is a link" in refused.notices[0]
    assert names(outside) == []
    assert outputs.save(root / "images").images[0].parent == root / "images"
    assert len(names(outside)) == 1


@pytest.mark.parametrize("link", ["mcptools", "mcptools/srv"])
def test_packages_go_through_no_link(link: str, root: Path, outside: Path) -> None:
    for package in (outside, outside / "srv"):
        package.mkdir(exist_ok=True)
        (package / MANIFEST).touch()
    before = names(outside)
    (root / link).parent.mkdir(exist_ok=True)
    (root / link).symlink_to(outside)
    with pytest.raises((NotADirectoryError, FileExistsError), match=f"{root}/{link}[ ,]"):
        write_package(root / "mcptools" / "srv", {MANIFEST: ""}, untrusted_root=root)
    assert names(outside) == before


def test_images_reach_nothing_outside_while_links_come_and_go(root: Path, outside: Path) -> None:
    outputs = picture()
    directory = root / "a" / "images"
    with planting(lambda: [directory, directory.parent], outside) as planted:
        for _ in range(WRITES):
            outputs.save(directory, untrusted_root=root)
    assert planted
    assert names(outside) == []


@pytest.mark.parametrize("target", ["root", "package", "scratch"])
def test_packages_reach_nothing_outside_while_links_come_and_go(target: str, root: Path, outside: Path) -> None:
    for package in (outside, outside / "srv"):
        package.mkdir(exist_ok=True)
        (package / MANIFEST).touch()
    before = names(outside)
    tools = root / "mcptools"

    versions = count()

    def write() -> None:
        specs = [ToolSpec(name, str(next(versions)), {}) for name in "ab"]  # what is the same would not be written
        write_package(tools / "srv", render_package("srv", {"command": "x"}, specs, "seal"), untrusted_root=root)

    def targets() -> list[Path]:
        match target:
            case "root":
                return [tools]
            case "package":
                return [tools / "srv"]
            case _:
                scratches = list(tools.glob(".srv.*.tmp"))
                return [*(scratch / "new" for scratch in scratches), *scratches]

    write()
    with planting(targets, outside) as planted:
        for _ in range(WRITES):
            with suppress(OSError):
                write()
    assert planted
    assert names(outside) == before
    assert not any(path.stat().st_size for path in outside.rglob("*") if path.is_file())


@pytest.mark.parametrize("planted", ["link", "pipe", "directory"])
def test_only_regular_files_are_opened(tmp_path: Path, planted: str):
    (tmp_path / "secret").write_text("secret")
    make: dict[str, Callable[[Path], object]] = {
        "link": lambda path: path.symlink_to(tmp_path / "secret"),
        "pipe": os.mkfifo,
        "directory": Path.mkdir,
    }
    make[planted](tmp_path / "planted")
    with open_directory(tmp_path) as directory:
        with pytest.raises(OSError, match=f"is a {planted}, not a regular file"):
            directory.read("planted", 10)
        assert directory.read("secret", 6) == b"secret"


def test_new_file_has_all_pieces_and_the_mode(tmp_path: Path):
    with open_directory(tmp_path) as directory:
        directory.write_new("file", (bytes([piece]) for piece in b"abc"), 0o700)
        with pytest.raises(FileExistsError):
            directory.write_new("file", b"x")
    assert (tmp_path / "file").read_bytes() == b"abc"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o700
