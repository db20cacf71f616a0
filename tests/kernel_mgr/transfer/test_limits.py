"""Which kinds of files are transferred, of which size and how many."""

import io
import os
import socket
from pathlib import Path

import pytest

from ipybox.kernel_mgr.transfer import files
from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer
from ipybox.kernel_mgr.transfer.files import MAX_DEPTH, Item, Transfer, open_item
from ipybox.kernel_mgr.transfer.paths import AllowedDirectories
from tests.kernel_mgr.transfer.contents import tar, within
from tests.servers import WAIT
from tests.support.test_safe_directory import names


def test_only_regular_files_are_opened_and_nobody_is_waited_for(workspace: FileTransfer, root: Path):
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(root / "socket"))
        for name, kind in (("pipe", "a pipe"), ("socket", "a socket"), ("loop", "a link")):
            with pytest.raises(OSError, match=f"{name}: is {kind}, not a regular file"):
                within(WAIT, lambda name=name: workspace.download(name))
        downloaded = workspace.download(".")
    assert downloaded.omitted == ("loop (a link)", "pipe (a pipe)", "socket (a socket)")
    with pytest.raises(OSError, match="zero: is a device"):
        within(WAIT, lambda: FileTransfer(root, ["/dev"]).download("/dev/zero"))


def test_pipe_in_the_place_of_a_file_is_replaced(workspace: FileTransfer, root: Path):
    os.mkfifo(root / "pipe")

    within(WAIT, lambda: workspace.upload("pipe", b"content"))
    assert (root / "pipe").read_bytes() == b"content"


def test_unreadable_file_is_left_out_of_a_directory(root: Path, monkeypatch: pytest.MonkeyPatch):
    (root / "closed").touch()
    (root / "open").touch()
    transfer = Transfer()

    def closed(directory: object, names: tuple[str, ...]) -> object:
        if names == ("closed",):
            raise PermissionError(13, "Permission denied")
        return open_item(directory, names)  # pyright: ignore[reportArgumentType]  it is one

    monkeypatch.setattr(files, "open_item", closed)  # root can read everything
    with AllowedDirectories(root).locate(".").open() as directory:
        assert [item.names for item in files.walk(directory, transfer, lambda _: None)] == [("open",)]
    assert transfer.omitted == ("closed (can't be read)",)


def test_size_is_limited_and_the_error_says_to_what(
    workspace: FileTransfer, root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(files, "MAX_BYTES", 1000)
    reason = "at file: the limit per transfer is 1000 bytes"

    assert workspace.upload("file", bytes(1000)).size == 1000
    assert len(workspace.download("file").data) == 1000
    with pytest.raises(ValueError, match=reason):
        workspace.upload("file", bytes(1001))
    (root / "file").write_bytes(bytes(1001))
    with pytest.raises(ValueError, match=reason):
        workspace.download("file")
    with pytest.raises(ValueError, match=reason):
        workspace.download(".")
    with pytest.raises(ValueError, match=reason):
        workspace.copy_in(root / "file", "copy")
    with pytest.raises(ValueError, match=reason):
        workspace.copy_out("file", root / "copy")
    assert names(root) == ["file"]


def test_huge_file_is_refused_before_all_of_it_is_read(workspace: FileTransfer, root: Path):
    with (root / "huge").open("wb") as file:
        file.truncate(1024**4)

    with pytest.raises(ValueError, match="at huge: the limit per transfer is 64 MiB"):
        within(WAIT, lambda: workspace.download("huge"))


def test_sizes_of_the_files_of_a_directory_add_up(
    workspace: FileTransfer, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(files, "MAX_BYTES", 1000)
    for name in ("a", "b"):
        (root / name).write_bytes(bytes(600))

    with pytest.raises(ValueError, match="at b: the limit per transfer is 1000 bytes"):
        workspace.download(".")
    with pytest.raises(ValueError, match="at b: the limit per transfer is 1000 bytes"):
        workspace.copy_out(".", tmp_path / "copy")
    assert names(tmp_path / "copy") == []


def test_file_that_grows_while_it_is_read_does_not_get_past_the_limit():
    transfer = Transfer(max_bytes=1000)
    with pytest.raises(ValueError, match="the limit per transfer is 1000 bytes"):
        b"".join(transfer.chunks(Item(("growing",), io.BytesIO(bytes(5000)))))


@pytest.mark.parametrize("deep", [False, True], ids=["many", "deep"])
def test_number_and_depth_of_files_are_limited(
    deep: bool, workspace: FileTransfer, root: Path, monkeypatch: pytest.MonkeyPatch
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
    before = names(root)

    for act in (
        lambda: workspace.download("source"),
        lambda: workspace.copy_in(source, "copy"),
        lambda: workspace.upload("copy", packed, "tar"),
    ):
        with pytest.raises(ValueError, match=limit):
            act()
    assert names(root) == before
