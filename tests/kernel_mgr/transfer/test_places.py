"""Nothing outside the workspace and the allowed directories is reached, whatever is planted there."""

from contextlib import suppress
from pathlib import Path

import pytest

from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer
from ipybox.kernel_mgr.transfer.paths import AllowedDirectories
from ipybox.support.state import state_dir
from tests.kernel_mgr.transfer.contents import members, tar
from tests.support.test_safe_directory import names, planting

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


@pytest.mark.parametrize("path", WAYS_OUT.values(), ids=WAYS_OUT)
def test_nothing_outside_is_read_or_written(path: str, workspace: FileTransfer, root: Path, outside: Path):
    (root / "a").mkdir()
    (root / "link").symlink_to(outside / "file")
    (root / "directory").symlink_to("../outside")
    (root / "a/up").symlink_to("..")
    (root / "dangling").symlink_to(outside / "new")
    (root / "chain").symlink_to("directory")
    path = path.replace("OUTSIDE", str(outside))

    with pytest.raises(PermissionError, match=f"is outside the allowed directories: {root}$"):
        workspace.download(path)
    with pytest.raises(PermissionError, match="allowed directories"):
        workspace.upload(path, b"new")
    with pytest.raises(PermissionError, match="allowed directories"):
        workspace.upload(path, tar(("x", b"new")), "tar")
    assert names(outside) == ["file"]
    assert (outside / "file").read_text() == "outside"


def test_link_that_stays_inside_leads_where_it_does_elsewhere(workspace: FileTransfer, root: Path):
    (root / "real").mkdir()
    (root / "link").symlink_to("real")

    assert workspace.upload("link/file", b"content").path == root / "real/file"
    assert workspace.download("link/file").data == b"content"
    assert members(workspace.download("link").data) == {"file": "content"}


@pytest.mark.parametrize("swapped", ["a", "a/b"])
def test_link_that_appears_after_the_check_is_not_followed(swapped: str, root: Path, outside: Path):
    (root / "a/b").mkdir(parents=True)
    (outside / "b").mkdir()
    place = AllowedDirectories(root).locate("a/b/file")
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
    workspace = FileTransfer(root, [allowed])
    allowed.rename(tmp_path / "away")
    allowed.symlink_to(outside)

    with pytest.raises(PermissionError, match="allowed director"):
        workspace.download(allowed / "file")
    place = AllowedDirectories(root, [tmp_path / "away"]).locate(tmp_path / "away")
    (tmp_path / "away").rename(tmp_path / "gone")
    (tmp_path / "away").symlink_to(outside)
    with pytest.raises(PermissionError, match="replaced by another directory after ipybox started"), place.open():
        pass


def test_nothing_outside_is_reached_while_links_come_and_go(workspace: FileTransfer, root: Path, outside: Path):
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
    workspace = FileTransfer(root, ["in/new", outside])

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
        workspace = FileTransfer(root, [allowed])
        with pytest.raises(PermissionError, match="allowed directories"):
            workspace.download("out/file")
        with pytest.raises(PermissionError, match="allowed directories"):
            workspace.download(outside / "file")


@pytest.mark.parametrize("directory", ["../missing", ".ipybox", ".git/hooks", "a/.env.d", "STATE"])
def test_directory_that_cannot_be_allowed_is_an_error_at_once(directory: str, root: Path):
    state_dir().mkdir(parents=True, exist_ok=True)
    with pytest.raises(ValueError, match=r"^the (allowed )?directory .* (is not a directory|can't be allowed)"):
        FileTransfer(root, [directory.replace("STATE", str(state_dir()))])


@pytest.mark.parametrize("path", ["a\0b", "x" * 2000, "d/" * 100])
def test_what_is_no_path_is_refused(path: str, workspace: FileTransfer, root: Path):
    with pytest.raises(ValueError, match="is not a valid path: it is too long or contains a NUL"):
        workspace.upload(path, b"")
    with pytest.raises(ValueError, match="is not a valid path: it is too long or contains a NUL"):
        workspace.download(path)
    assert names(root) == []
