"""Files that are copied to and from the working directory."""

from pathlib import Path

import pytest

from ipybox import CodeExecutor
from tests.code_exec.cells import text
from tests.conftest import Mode

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_files_are_copied_to_the_code_and_back(executor: CodeExecutor, workspace: Path, tmp_path: Path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("hello")

    done = await executor.upload_file(source, "uploaded/data")
    assert (done.path, done.files, done.size) == (workspace / "uploaded/data", 1, 5)
    await text(executor, "open('uploaded/data/b.txt', 'w').write(open('uploaded/data/a.txt').read().upper())")
    assert (await executor.download_file("uploaded/data", tmp_path / "back")).files == 2
    assert (tmp_path / "back/b.txt").read_text() == "HELLO"
    assert (await executor.download_file(workspace / "uploaded/data/b.txt", tmp_path / "back/a.txt")).files == 1
    assert (tmp_path / "back/a.txt").read_text() == "HELLO"


async def test_link_that_code_makes_leads_no_copy_out_of_the_workspace(executor: CodeExecutor, tmp_path: Path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("outside")
    (tmp_path / "new").write_text("new")
    link = f"planted{tmp_path.name}"  # the workspace is that of other tests, too
    await text(executor, f"import os; os.symlink({str(tmp_path / 'outside')!r}, {link!r})")

    with pytest.raises(PermissionError, match="/file leads elsewhere and is outside the allowed directories"):
        await executor.download_file(f"{link}/file", tmp_path / "copy")
    with pytest.raises(PermissionError, match="/file leads elsewhere and is outside"):
        await executor.upload_file(tmp_path / "new", f"{link}/file")
    assert (tmp_path / "outside/file").read_text() == "outside"
    assert not (tmp_path / "copy").exists()


async def test_files_are_copied_also_where_no_kernel_runs(tmp_path: Path, mode: Mode):
    (tmp_path / "file").write_text("content")
    (tmp_path / "workspace").mkdir()
    executor = CodeExecutor(working_dir=tmp_path / "workspace", sandbox=mode.sandbox)

    assert (await executor.upload_file(tmp_path / "file", "copy")).path == tmp_path / "workspace/copy"
    assert (tmp_path / "workspace/copy").read_text() == "content"


async def test_paths_may_be_texts(tmp_path: Path, mode: Mode):
    shown = str(tmp_path / "shown")
    async with CodeExecutor(sandbox=mode.sandbox, working_dir=str(tmp_path), images_dir=shown) as executor:
        assert (await executor.execute("import os; print(os.getcwd())")).text == str(tmp_path.resolve())
        (tmp_path / "source").write_text("text")
        await executor.upload_file(str(tmp_path / "source"), "copy")
        await executor.download_file("copy", str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "text"
