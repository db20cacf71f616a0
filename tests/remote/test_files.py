"""A node that does not share the workspace: its mount namespace has an empty file system in that place."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer
from ipybox.mcp_server.file_tools import FileTools
from tests import servers
from tests.code_exec.cells import SLEEPS, begun
from tests.conftest import Mode
from tests.remote.conftest import nodes
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")


def hiding(workspace: Path, command: list[str], size: str = "1g") -> list[str]:
    """Returns the command of an engine whose node sees an empty file system of this size in place of a directory."""
    namespaces = ["--mount"] if os.geteuid() == 0 else ["--mount", "--map-root-user"]
    hide = f'mount -t tmpfs -o size={size} none "$1" && shift && exec "$@"'
    return ["unshare", *namespaces, "sh", "-c", hide, "sh", str(workspace), *command]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("workspace")
    (directory / "private.txt").write_text("of the application")
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def apart(directory: Path, command: list[str], mode: Mode, shared: None) -> AsyncIterator[CodeExecutor]:
    servers.register(directory, scripted=servers.scripted())
    (directory / "mcptools").mkdir(exist_ok=True)
    (directory / "registered.py").rename(directory / "mcptools/registered.py")
    async with CodeExecutor(working_dir=directory, engine=hiding(directory, command), sandbox=mode.sandbox) as executor:
        result = await executor.execute("import os")
        assert "can't access the workspace" in result.notices[0]
        yield executor


async def test_code_runs_in_a_private_directory_with_the_generated_packages(apart: CodeExecutor, directory: Path):
    code = """
        import stat
        print(os.path.exists("private.txt"), stat.filemode(os.stat(".").st_mode), os.getcwd())
        from mcptools.registered import scripted
        print(scripted.run_sync("echo", {"text": "sealed"}))
    """
    result = await apart.execute(code)
    assert result.text is not None
    first, second = result.text.splitlines()
    assert first.startswith("False drwx------ ")
    assert not first.endswith(str(directory))
    assert second == "sealed"


async def test_what_code_writes_stays_on_the_node_and_images_come_with_the_output(apart: CodeExecutor, directory: Path):
    code = """
        from IPython.display import Image, display
        os.makedirs("gentools/weather", exist_ok=True)
        os.makedirs("images", exist_ok=True)
        for name in ("gentools/weather/api.py", "images/own.png", "scratch.txt"):
            with open(name, "w") as file:
                file.write("saved = 1")
        display(Image(data=bytes.fromhex("89504e470d0a1a0a"), format="png"))
    """
    result = await apart.execute(code)
    assert result.notices == []
    (image,) = result.images
    assert image.is_relative_to(directory / "images")
    assert [path.name for path in (directory / "images").glob("*.png")] == [image.name]
    for name in ("gentools/weather", "scratch.txt"):
        assert not (directory / name).exists()
    assert (await apart.execute("from gentools.weather import api; api.saved")).text == "1"


async def test_what_changes_here_is_there_at_the_next_cell(apart: CodeExecutor, directory: Path):
    (directory / "mcpparse").mkdir(exist_ok=True)
    for version in ("first", "second"):
        (directory / "mcpparse/parser.py").write_text(version)
        assert (await apart.execute("open('mcpparse/parser.py').read()")).text == repr(version)


async def test_16_mib_take_a_moment_in_both_directions(apart: CodeExecutor, directory: Path, tmp_path: Path):
    content = os.urandom(16 << 20)
    (tmp_path / "there.bin").write_bytes(content)
    async with asyncio.timeout(WAIT):
        await apart.upload_file(tmp_path / "there.bin", "large/there.bin")
        await apart.execute("data = open('large/there.bin', 'rb').read(); open('large/back.bin', 'wb').write(data)")
        await apart.download_file("large/back.bin", tmp_path / "back.bin")
    assert (tmp_path / "back.bin").read_bytes() == content


@pytest.mark.parametrize("mode", [Mode.PLAIN], indirect=True)
async def test_node_that_stops_or_is_killed_leaves_no_directory(tmp_path: Path, command: list[str], mode: Mode):
    for name in ("workspace", "temporary"):
        (tmp_path / name).mkdir()
    workspace, temporary = tmp_path / "workspace", tmp_path / "temporary"
    engine = hiding(workspace, ["env", f"TMPDIR={temporary}", *command])
    private = temporary / f"ipybox-nodes-{os.getuid()}"
    others = nodes()
    async with CodeExecutor(working_dir=workspace, engine=engine) as executor:
        await executor.execute(
            "import os; os.makedirs('closed/inner'); open('closed/x', 'w'); os.chmod('closed', 0o500)"
        )
        (before,) = private.iterdir()
        (node,) = nodes() - others
        running = await begun(executor, SLEEPS)
        os.kill(node, signal.SIGKILL)
        with pytest.raises(CodeExecutionError):
            await running
        again = await executor.execute("1")
        assert again.text == "1"
        assert any("its files are lost" in notice for notice in again.notices)
        (after,) = private.iterdir()
        assert after != before
    assert list(private.iterdir()) == []


async def test_uploads_reach_the_node_and_downloads_come_from_it(apart: CodeExecutor, directory: Path, tmp_path: Path):
    (tmp_path / "in.csv").write_text("1")
    await apart.upload_file(tmp_path / "in.csv", "data/in.csv")
    code = """
        os.makedirs("data/results", exist_ok=True)
        for name in ("data/results/out.csv", "data/results/AGENTS.md", "data/results/.env"):
            try:
                with open(name, "w") as file:
                    file.write(open("data/in.csv").read() + "2")
            except OSError:
                assert ".csv" not in name  # the sandbox denies the others
    """
    await apart.execute(code)
    assert not (directory / "data/results").exists()
    await apart.download_file("data/results/out.csv", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "12"
    await apart.download_file("data/results", tmp_path / "all")
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["out.csv"]
    with pytest.raises(FileNotFoundError, match=r"on the node: .*data/missing"):
        await apart.download_file("data/missing", tmp_path / "missing")
    with pytest.raises(PermissionError, match="outside the allowed directories"):
        await apart.download_file("../other", tmp_path / "missing")


async def test_upload_before_the_start_is_there(tmp_path: Path, command: list[str], mode: Mode):
    for name in ("workspace", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other/in.csv").write_text("1")
    workspace = tmp_path / "workspace"
    executor = CodeExecutor(working_dir=workspace, engine=hiding(workspace, command), sandbox=mode.sandbox)
    await executor.upload_file(tmp_path / "other", "data")
    async with executor:
        assert (await executor.execute("open('data/in.csv').read()")).text == "'1'"


async def test_mcp_tools_for_files_reach_the_node(tmp_path: Path, command: list[str]):
    workspace, configuration = tmp_path / "workspace", tmp_path / "config/ipybox"
    workspace.mkdir()
    configuration.mkdir(parents=True)
    (configuration / "engines.yaml").write_text(json.dumps({"apart": {"command": hiding(workspace, command)}}))
    names = ("PATH", "XDG_STATE_HOME")
    env = {name: os.environ[name] for name in names} | {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    arguments = ["-m", "ipybox", f"--workspace={workspace}", "--engine=apart", "--allowed-dir=data"]
    async with (
        asyncio.timeout(4 * WAIT),
        Client(StdioServerParameters(command=sys.executable, args=arguments, env=env)) as client,
    ):
        await client.call_tool("upload_file", {"path": "data/in.txt", "content": "given"})
        code = "import shutil; shutil.copy('data/in.txt', 'data/out.txt')"
        await client.call_tool("execute_ipython_cell", {"code": code})
        (block,) = (await client.call_tool("download_file", {"path": "data/out.txt"})).content
        assert isinstance(block, TextContent)
        assert block.text == "given"
        refused = await client.call_tool("download_file", {"path": "elsewhere.txt"})
        assert refused.is_error
    assert not (workspace / "data/out.txt").exists()


@pytest.mark.parametrize("mode", [Mode.PLAIN], indirect=True)
async def test_full_disk_of_the_node_is_named_and_cells_run(tmp_path: Path, command: list[str], mode: Mode):
    for name in ("workspace", "temporary"):
        (tmp_path / name).mkdir()
    workspace, temporary = tmp_path / "workspace", tmp_path / "temporary"
    for name, size in (("gentools/large", 12 << 20), ("mcptools/small", 1)):
        (workspace / name).parent.mkdir()
        (workspace / name).write_bytes(bytes(size))
    engine = hiding(workspace, hiding(temporary, ["env", f"TMPDIR={temporary}", *command], "8m"))
    async with CodeExecutor(working_dir=workspace, engine=engine) as executor:
        result = await executor.execute("import os; os.listdir('gentools') if os.path.exists('gentools') else []")
        assert any("gentools (on the node: " in each and "No space left" in each for each in result.notices)
        assert (result.text, (await executor.execute("os.listdir('mcptools')")).text) == ("[]", "['small']")
        (workspace / "gentools/large").write_bytes(b"fits")
        result = await executor.execute("open('gentools/large').read()")
        assert (result.text, result.notices) == ("'fits'", [])
        (tmp_path / "other").write_bytes(bytes(12 << 20))
        await executor.upload_file(tmp_path / "other", "other")
        notices = (await executor.execute("1")).notices
        assert len(notices) == 1, notices
        (notice,) = notices
        assert "Not sent to the node that runs code: other (on the node: " in notice


async def test_upload_does_not_wait_for_the_answer_of_a_node(tmp_path: Path):
    asked = asyncio.Event()

    async def read_from_node(_: str) -> None:
        asked.set()
        await asyncio.Event().wait()

    tools = FileTools(FileTransfer(tmp_path), read_from_node)
    downloading = asyncio.create_task(tools.download_file("x"))
    async with asyncio.timeout(WAIT):
        await asked.wait()
        await tools.upload_file("y", "z")
    downloading.cancel()
    assert (tmp_path / "y").read_text() == "z"
