"""Files are put and read whole or not at all."""

import io
import threading
from pathlib import Path
from typing import IO, cast

import pytest

from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer
from ipybox.kernel_mgr.transfer.files import Item, Transfer, write_tree
from ipybox.kernel_mgr.transfer.paths import AllowedDirectories
from tests.servers import WAIT
from tests.support.test_safe_directory import names


def test_file_arrives_with_the_directories_that_it_needs(workspace: FileTransfer, root: Path):
    done = workspace.upload("a/b/file", b"content")

    assert (done.path, done.files, done.size) == (root / "a/b/file", 1, 7)
    assert (root / "a/b/file").read_bytes() == b"content"
    assert names(root) == ["a", "a/b", "a/b/file"]
    assert (root / "a/b/file").stat().st_mode & 0o111 == 0


def test_file_takes_the_place_of_another_one(workspace: FileTransfer, root: Path):
    (root / "file").write_text("old")

    workspace.upload(root / "file", b"")
    assert (root / "file").read_bytes() == b""
    assert (root / "file").stat().st_mode & 0o111 == 0


def test_script_stays_executable(workspace: FileTransfer, root: Path):
    (root / "run.sh").touch(0o755)

    workspace.upload("run.sh", b"#!/bin/sh")
    assert (root / "run.sh").read_bytes() == b"#!/bin/sh"
    assert (root / "run.sh").stat().st_mode & 0o100


@pytest.mark.parametrize("path", [".", "", "directory"])
def test_file_does_not_take_the_place_of_a_directory(path: str, workspace: FileTransfer, root: Path):
    (root / "directory/inner").mkdir(parents=True)

    with pytest.raises(IsADirectoryError, match="is a directory, not a file: nothing was changed"):
        workspace.upload(path, b"content")
    assert names(root) == ["directory", "directory/inner"]


def test_nobody_ever_sees_half_a_file(workspace: FileTransfer, root: Path):
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
    directory = AllowedDirectories(root).locate(".")
    with directory.open() as opened, pytest.raises(OSError, match="Input/output error"):
        write_tree(opened, [Item(("file",), cast(IO[bytes], Broken()))], Transfer())
    assert names(root) == ["file"]
    assert (root / "file").read_text() == "old"


def test_downloaded_file_is_its_content_and_what_its_name_says(workspace: FileTransfer, root: Path):
    (root / "data.json").write_bytes(b"{}")
    (root / "data.tar.gz").write_bytes(b"\x1f\x8b")

    assert workspace.download("data.json").data == b"{}"
    assert workspace.download("data.json").mime_type == "application/json"
    assert workspace.download("data.tar.gz").mime_type == "application/octet-stream"


def test_missing_file_is_named(workspace: FileTransfer, root: Path):
    with pytest.raises(FileNotFoundError, match=f"^{root}/a: No such file or directory$"):
        workspace.download("a/b")
    assert names(root) == []
