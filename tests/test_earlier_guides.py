"""What programs do that follow the guides and the API reference of earlier ipybox versions: the same as then.

MCP servers that need the internet have a stand-in. The guides on the sandbox and on GitHub's server are followed in
`docs/sandbox.md`, which `test_docs.py` runs, and in `test_generated_docs.py`. In one mode: the guides run no sandbox.
"""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ipybox import (
    ApprovalRequest,
    CodeExecutionChunk,
    CodeExecutionError,
    CodeExecutionResult,
    CodeExecutor,
    generate_mcp_sources,
)
from ipybox.kernel_mgr.client import ExecutionResult, KernelClient
from ipybox.kernel_mgr.server import KernelGateway
from ipybox.sandbox.settings import load_settings
from ipybox.tool_exec.approval.client import ApprovalClient
from ipybox.tool_exec.approval.server import ApprovalChannel
from ipybox.tool_exec.client import ToolRunner, ToolRunnerError
from ipybox.tool_exec.server import ToolServer
from ipybox.utils import arun
from tests.servers import ROOT

pytestmark = pytest.mark.kernel

SERVER: dict[str, Any] = {
    "command": sys.executable,
    "args": [str(ROOT / "tests" / "search_server.py")],
    "env": {"BRAVE_API_KEY": "${BRAVE_API_KEY}"},
}
SEARCH = """
from mcptools.brave_search.brave_image_search import Params, Result, run

found: Result = run(Params(query="red pandas", count=2))
for image in found.items:
    print(f"- [{image.title}]({image.properties.url})")
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, in which the guides' programs run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRAVE_API_KEY", "a-key")
    return tmp_path


async def test_quickstart_asks_a_person_and_prints_images(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    printed: list[str | None] = []

    await generate_mcp_sources(server_name="brave_search", server_params=SERVER, root_dir=Path("mcptools"))
    async with CodeExecutor() as executor:
        async for item in executor.stream(SEARCH):
            match item:
                case ApprovalRequest() as request:
                    if await arun(input, f"Tool call: [{request}]\nApprove? (Y/n): ") in ["y", ""]:
                        await request.accept()
                    else:
                        await request.reject()
                case CodeExecutionResult(text=text):
                    printed.append(text)
                case _:
                    raise AssertionError(item)

    assert printed == ["- [red pandas](https://example.org/0.png)\n- [red pandas](https://example.org/1.png)"]


async def test_request_has_what_is_called_and_a_rejection_is_an_error():
    await generate_mcp_sources("brave_search", SERVER, Path("mcptools"))
    async with CodeExecutor() as executor:
        items = executor.stream(SEARCH)
        request = await anext(items)
        assert isinstance(request, ApprovalRequest)
        assert (request.server_name, request.tool_name) == ("brave_search", "brave_image_search")
        assert request.tool_args == {"query": "red pandas", "count": 2}
        await request.reject()
        with pytest.raises(CodeExecutionError, match="rejected"):
            await anext(items)


async def test_execute_accepts_calls_of_tools_that_return_text():
    await generate_mcp_sources("brave_search", SERVER, Path("mcptools"))
    code = """
from mcptools.brave_search.brave_web_search import Params, run
print(run(Params(query="asyncio", count=2)))
"""
    async with CodeExecutor() as executor:
        assert (await executor.execute(code)).text == "1. asyncio\n2. asyncio"


async def test_chunks_come_before_the_result(directory: Path):
    chunks: list[str] = []
    async with CodeExecutor(approval_timeout=10) as executor:
        async for item in executor.stream("print('first', flush=True)\nprint('second')", timeout=10, chunks=True):
            match item:
                case CodeExecutionChunk():
                    chunks.append(item.text)
                case CodeExecutionResult():
                    assert item.text == "first\nsecond"
                case _:
                    raise AssertionError(item)

        assert "".join(chunks) == "first\nsecond\n"
        assert (await executor.execute("import os; print(os.getcwd())")).text == os.getcwd() == str(directory)


async def test_plots_are_files_in_the_directory_for_images(directory: Path):
    code = "import matplotlib.pyplot as plt; plt.plot([1, 2], [3, 5]); plt.show()"
    async with CodeExecutor(images_dir=directory / "plots") as executor:
        (image,) = (await executor.execute(code)).images

    assert (image.parent, image.suffix) == (directory / "plots", ".png")
    assert image.exists()


async def test_kernel_has_its_own_variables_and_forgets_them_at_a_reset():
    async with CodeExecutor(kernel_env={"REGION": "north"}) as executor:
        assert (await executor.execute("import os; print(os.environ['REGION'])")).text == "north"
        await executor.execute("x = 42")
        assert (await executor.execute("print(x)")).text == "42"
        await executor.reset()
        assert (await executor.execute("try: print(x)\nexcept NameError: print('no x')")).text == "no x"


def test_settings_files_of_the_guides_are_accepted(directory: Path):
    settings = {
        "enableWeakerNestedSandbox": False,
        "filesystem": {"denyRead": [".env"], "allowWrite": [".", "~/Library/Jupyter", "~/.ipython"], "denyWrite": []},
        "network": {"allowedDomains": ["example.org"], "deniedDomains": [], "allowLocalBinding": True},
    }
    (directory / "sandbox.json").write_text(json.dumps(settings))

    assert load_settings(directory / "sandbox.json").allowed_domains == ("example.org",)


async def test_runner_calls_tools_of_the_server_that_asks_an_approval_client():
    asked: list[str] = []

    async def on_approval_request(request: ApprovalRequest):
        asked.append(f"{request}")
        if request.tool_name == "fetch":
            await request.accept()
        else:
            await request.reject()

    async with (
        ToolServer(host="localhost", port=0, approval_required=True, approval_timeout=60, connect_timeout=30) as server,
        ApprovalClient(callback=on_approval_request, port=server.port or 0),
    ):
        runner = ToolRunner(server_name="fetch", server_params=SERVER, host="localhost", port=server.port or 0)
        assert await runner.run("fetch", {"url": "https://example.org"}) == "Contents of https://example.org"
        assert await arun(runner.run_sync, "fetch", {"url": "x"}) == "Contents of x"
        with pytest.raises(ToolRunnerError, match="rejected"):
            await runner.run("brave_web_search", {"query": "asyncio"})
        await runner.reset()

    assert asked[0] == "fetch.fetch(url='https://example.org')"


async def test_channel_without_required_approval_accepts_and_otherwise_needs_a_client():
    assert await ApprovalChannel().request("server", "tool", {}) is True

    channel = ApprovalChannel(approval_required=True, approval_timeout=60)
    assert not channel.open
    with pytest.raises(RuntimeError):
        await channel.request("server", "tool", {})


async def test_client_streams_text_and_ends_with_the_result_of_its_gateway():
    async with (
        KernelGateway(host="localhost", port=0) as gateway,
        KernelClient(host="localhost", port=gateway.port or 0, images_dir=Path("images"), ping_interval=10) as client,
    ):
        assert client.kernel_id
        assert (await client.execute("print('hello')")).text == "hello"
        *chunks, result = [item async for item in client.stream("print('hello')")]

    assert "".join(map(str, chunks)) == "hello\n"
    assert isinstance(result, ExecutionResult)
    assert (result.text, result.images) == ("hello", [])
