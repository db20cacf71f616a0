"""Files are copied to and from the same machine."""

from pathlib import Path

import pytest

from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer
from tests.support.test_safe_directory import names


def test_host_files_are_copied_in_and_out(workspace: FileTransfer, root: Path, tmp_path: Path):
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
    assert done.omitted == (
        ".git (it is protected because programs on the host trust or execute it)",
        "link (a link)",
    )
    assert names(root) == ["copy", "copy/sub", "copy/sub/script"]
    assert workspace.copy_in(source / "sub/script", "copy/sub/script").files == 1

    back = workspace.copy_out("copy", tmp_path / "x/back")
    assert (back.path, back.files) == (tmp_path / "x/back", 1)
    assert (tmp_path / "x/back/sub/script").stat().st_mode & 0o100
    assert workspace.copy_out("copy/sub/script", tmp_path / "y/script").files == 1
    assert (tmp_path / "y/script").read_text() == "#!"


def test_copies_fail_with_the_name_of_what_is_missing(workspace: FileTransfer, tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=f"^{tmp_path}/missing: No such file or directory$"):
        workspace.copy_in(tmp_path / "missing", "file")
    with pytest.raises(FileNotFoundError, match=f"^{tmp_path}/workspace/missing: No such file or directory$"):
        workspace.copy_out("missing", tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_copy_to_the_workspace_itself_follows_no_link_there(workspace: FileTransfer, root: Path, outside: Path):
    (root / "file").touch()
    (root / "link").symlink_to(outside)

    for destination in (root / "link/file", root / "link/new/file"):
        with pytest.raises(NotADirectoryError, match=f"^{root}/link is a link"):
            workspace.copy_out("file", destination)
    assert names(outside) == ["file"]
    assert (outside / "file").read_text() == "outside"
