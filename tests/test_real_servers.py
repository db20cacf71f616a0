"""Tools of real MCP servers, from their schemas to their results: generated and called.

What the generated Python returns is compared with what a plain client of the MCP SDK gets from the same server.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from ipybox import CodeExecutor, generate_mcp_sources
from tests.comparison import (
    EVERYTHING_CALLS,
    FILESYSTEM_CALLS,
    GIT_CALLS,
    MEMORY_CALLS,
    TIME_CALLS,
    Server,
    call_directly,
    call_generated,
    repository,
    without,
)
from tests.conftest import Mode
from tests.servers import everything, filesystem, git, http_everything, memory, time_

ServerKind = Literal["everything", "streamable_http", "sse", "filesystem", "memory", "git", "time"]


@asynccontextmanager
async def _server(kind: ServerKind, directory: Path) -> AsyncGenerator[Server]:
    async with AsyncExitStack() as stack:
        match kind:
            case "everything":
                params, calls = everything(), EVERYTHING_CALLS
            case "streamable_http":
                params = {"url": await stack.enter_async_context(http_everything("streamableHttp"))}
                calls = EVERYTHING_CALLS
            case "sse":
                params, calls = {"url": await stack.enter_async_context(http_everything("sse"))}, EVERYTHING_CALLS
            case "filesystem":
                directory.mkdir()
                params, calls = {**filesystem(directory), "cwd": str(directory)}, FILESYSTEM_CALLS
            case "memory":
                params, calls = memory(directory.with_suffix(".json")), MEMORY_CALLS
            case "git":
                params, calls = git(repository(directory)), GIT_CALLS
            case "time":
                params, calls = time_(), TIME_CALLS
        yield Server(params, calls, directory)


@pytest.mark.parametrize("kind", ["everything", "streamable_http", "sse", "filesystem", "memory", "git", "time"])
async def test_generated_tools_return_what_a_direct_client_gets(kind: ServerKind, tmp_path: Path, mode: Mode):
    async with _server(kind, tmp_path / "direct") as server:
        direct = await call_directly(server)
        names = [name for name, _ in server.calls]
    async with _server(kind, tmp_path / "kernel") as server:
        await generate_mcp_sources("server", server.params, tmp_path / "mcptools")
        modules = {name: name.replace("-", "_") for name in names}
        generated = await call_generated(server, tmp_path, "server", modules, sandbox=mode.sandbox)
    assert without(tmp_path / "kernel", generated) == without(tmp_path / "direct", direct)
    assert len(generated) == len(names)


async def test_pictures_become_images_of_the_result_and_other_content_is_named_in_the_text(tmp_path: Path, mode: Mode):
    await generate_mcp_sources("everything", everything(), tmp_path / "mcptools")
    code = """
from mcptools.everything import get_resource_links as links, get_resource_reference as reference
print(links.run(links.Params(count=2)))
print(reference.run(reference.Params(resourceType=reference.ResourceType.Text, resourceId=1)))
"""
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:
        result = await executor.execute("from mcptools.everything import get_tiny_image as t; t.run(t.Params())")
        text = (await executor.execute(code)).text or ""
    assert [path.read_bytes()[:4] for path in result.images] == [b"\x89PNG"]
    assert result.images[0].parent == tmp_path / "images"
    assert text.count("demo://resource/dynamic/") >= 3
    assert "This is a plaintext resource" in text
