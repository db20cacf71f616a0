"""Siblings with a working directory of their own."""

import base64
from pathlib import Path

import pytest

from ipybox import CodeExecutor
from tests.code_exec.cells import text
from tests.conftest import Mode
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

PNG = base64.b64encode(bytes.fromhex("89504e470d0a1a0a")).decode()
IMAGE = f"display({{'image/png': '{PNG}'}}, raw=True)"


async def test_sibling_runs_in_its_directory_with_the_tools_of_the_workspace(approver: CodeExecutor, tmp_path: Path):
    workspace = Path(await text(approver, "import os; print(os.getcwd())") or "")
    (workspace / "ada").mkdir(exist_ok=True)
    (workspace / "ada" / "own.py").write_text("value = 1")
    (tmp_path / "in").write_text("copied")
    async with approver.sibling("ada", working_dir="ada") as ada:
        for _ in range(2):  # also after a reset
            assert await text(ada, "import os, own; os.getcwd(), own.value") == f"('{workspace}/ada', 1)"
            assert await text(ada, "'IPYBOX_DIRECTORY' in os.environ") == "False"
            assert await text(ada, "from registered import scripted; scripted.run_sync('echo', {'text': 'a'})") == "'a'"
            await ada.reset()
        (image,) = (await ada.execute(IMAGE, WAIT)).images
        await ada.upload_file(tmp_path / "in", "given")
        await ada.execute("import pathlib; pathlib.Path('made').write_text(pathlib.Path('given').read_text())")
        await ada.download_file("made", tmp_path / "out")
        assert (tmp_path / "out").read_text() == "copied"
        async with ada.sibling() as other:
            assert await text(other, "import os; print(os.getcwd())") == f"{workspace}/ada"
    assert image.parent == workspace / "ada" / "images"
    assert (workspace / "ada" / "made").exists()
    assert await text(approver, "import os; print(os.getcwd())") == str(workspace)


async def test_directory_is_checked(approver: CodeExecutor, tmp_path: Path, mode: Mode):
    with pytest.raises(NotADirectoryError, match="no such working directory"):
        await approver.sibling(working_dir="missing").start()
    await text(approver, f"import os; os.symlink({str(tmp_path)!r}, 'link')")
    for outside in tmp_path, "link", "..":
        if mode.sandbox:
            with pytest.raises(ValueError, match="working_dir must be in "):
                approver.sibling(working_dir=outside)
    if not mode.sandbox:
        async with approver.sibling(working_dir="link") as sibling:
            await sibling.execute("open('made', 'w').close()")
            await sibling.download_file("made", tmp_path / "out")
        assert {each.name for each in tmp_path.iterdir()} >= {"made", "out"}
    await text(approver, "os.remove('link')")
    with pytest.raises(ValueError, match="can't run on an engine"):
        CodeExecutor(working_dir=tmp_path, engine=["x"]).sibling(working_dir="sub")


@pytest.mark.parametrize("mode", [Mode.SANDBOX], indirect=True)  # without one, code can write anywhere
async def test_link_that_code_puts_in_the_place_of_a_directory_is_not_followed(approver: CodeExecutor, tmp_path: Path):
    (tmp_path / "in").write_text("copied")
    (tmp_path / "outside").mkdir()
    await text(approver, "import os; os.mkdir('moved')")
    async with approver.sibling(working_dir="moved") as sibling:
        await text(sibling, f"import os; os.rename('../moved', '../old'); os.symlink({str(tmp_path)!r}, '../moved')")
        result = await sibling.execute(IMAGE, WAIT)
        with pytest.raises(OSError, match="moved"):
            await sibling.upload_file(tmp_path / "in", "outside/given")
        with pytest.raises(OSError, match="moved"):
            await sibling.download_file("in", tmp_path / "out")
    assert result.notices
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["in", "outside"]
