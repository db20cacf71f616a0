"""Tools of real MCP servers, from their schemas to their results: generated and called.

What the generated Python returns is compared with what a plain client of the MCP SDK gets from the same server.
"""

import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult, TextContent

from ipybox import CodeExecutor, generate_mcp_sources
from tests.conftest import Mode
from tests.servers import everything, filesystem, git, http_everything, memory, time_

Call = tuple[str, dict[str, Any]]

EVERYTHING_CALLS: list[Call] = [
    ("echo", {"message": "hello ${HOME} 'quoted' \"twice\" 日本"}),
    ("get-sum", {"a": 2, "b": 40}),
    ("get-structured-content", {"location": "New York"}),
    ("get-annotated-message", {"messageType": "success"}),
    ("get-annotated-message", {"messageType": "error", "includeImage": False}),
    ("get-tiny-image", {}),
    ("trigger-long-running-operation", {"duration": 0.1, "steps": 2}),
]

MEMORY_CALLS: list[Call] = [
    (
        "create_entities",
        {
            "entities": [
                {"name": n, "entityType": "person", "observations": [f"knows {n}"]} for n in ("Ann", "Bob", "Cy")
            ]
        },
    ),
    ("create_relations", {"relations": [{"from": "Ann", "to": "Bob", "relationType": "likes"}]}),
    ("add_observations", {"observations": [{"entityName": "Bob", "contents": ["sings"]}]}),
    ("search_nodes", {"query": "sings"}),
    ("open_nodes", {"names": ["Ann"]}),
    ("delete_observations", {"deletions": [{"entityName": "Bob", "observations": ["sings"]}]}),
    ("delete_relations", {"relations": [{"from": "Ann", "to": "Bob", "relationType": "likes"}]}),
    ("delete_entities", {"entityNames": ["Cy"]}),
    ("read_graph", {}),
]

FILESYSTEM_CALLS: list[Call] = [
    ("create_directory", {"path": "sub"}),
    ("write_file", {"path": "sub/a.txt", "content": "one\ntwo\nthree\n"}),
    ("read_text_file", {"path": "sub/a.txt", "head": 2}),
    ("edit_file", {"path": "sub/a.txt", "edits": [{"oldText": "two", "newText": "2"}], "dryRun": True}),
    ("edit_file", {"path": "sub/a.txt", "edits": [{"oldText": "two", "newText": "2"}]}),
    ("read_multiple_files", {"paths": ["sub/a.txt", "missing.txt"]}),
    ("list_directory", {"path": "."}),
    ("list_directory_with_sizes", {"path": "sub", "sortBy": "size"}),
    ("directory_tree", {"path": "."}),
    ("search_files", {"path": ".", "pattern": "**/*.txt"}),
    ("move_file", {"source": "sub/a.txt", "destination": "sub/b.txt"}),
]

GIT_CALLS: list[Call] = [
    ("git_status", {"repo_path": "{dir}"}),
    ("git_log", {"repo_path": "{dir}", "max_count": 1}),
    ("git_show", {"repo_path": "{dir}", "revision": "HEAD"}),
    ("git_add", {"repo_path": "{dir}", "files": ["new.txt"]}),
    ("git_diff_staged", {"repo_path": "{dir}"}),
    ("git_reset", {"repo_path": "{dir}"}),
    ("git_create_branch", {"repo_path": "{dir}", "branch_name": "topic"}),
    ("git_checkout", {"repo_path": "{dir}", "branch_name": "topic"}),
    ("git_branch", {"repo_path": "{dir}", "branch_type": "local"}),
    ("git_diff_unstaged", {"repo_path": "{dir}"}),
    ("git_diff", {"repo_path": "{dir}", "target": "HEAD"}),
]

TIME_CALLS: list[Call] = [
    ("convert_time", {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "UTC"}),
]

# What an agent's code does with a tool, with the arguments as data and the result on one line.
RUN_CALLS = """
import json, importlib
from pydantic import BaseModel
for module, args in json.loads({calls!r}):
    tool = importlib.import_module(f"mcptools.{server}.{{module}}")
    result = tool.run(tool.Params(**args))
    print(json.dumps(result.model_dump(mode="json", by_alias=True) if isinstance(result, BaseModel) else result))
"""


@dataclass(frozen=True)
class Server:
    """A server under test: its parameters, and calls that have the same outcome in every fresh directory."""

    params: dict[str, Any]
    calls: list[Call]
    directory: Path


def _repository(directory: Path) -> Path:
    def run(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        date = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(directory), **date}
        subprocess.run(["git", "-C", str(directory), *identity, *arguments], check=True, env=environment)

    directory.mkdir(parents=True)
    run("init", "-q", "--initial-branch=main")
    (directory / "old.txt").write_text("old\n")
    run("add", ".")
    run("commit", "-qm", "first")
    (directory / "new.txt").write_text("new\n")
    return directory


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
                params, calls = git(_repository(directory)), GIT_CALLS
            case "time":
                params, calls = time_(), TIME_CALLS
        yield Server(params, calls, directory)


def _direct_client(params: dict[str, Any]) -> Client:
    if "command" in params:
        return Client(StdioServerParameters(**params), mode="legacy")
    return Client(sse_client(params["url"]) if params["url"].endswith("/sse") else params["url"])


def _args(args: dict[str, Any], directory: Path) -> dict[str, Any]:
    return {key: str(directory) if value == "{dir}" else value for key, value in args.items()}


def _value(result: CallToolResult) -> Any:
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    return result.structured_content if result.structured_content is not None else "\n".join(texts)


async def _call_directly(server: Server) -> list[Any]:
    async with _direct_client(server.params) as client:
        results = [await client.call_tool(name, _args(args, server.directory)) for name, args in server.calls]
    return [_value(result) for result in results]


async def _call_generated(
    server: Server, workspace: Path, package: str, modules: dict[str, str], mode: Mode
) -> list[Any]:
    calls = [[modules[name], _args(args, server.directory)] for name, args in server.calls]
    code = RUN_CALLS.format(calls=json.dumps(calls), server=package)
    async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox) as executor:
        result = await executor.execute(code)
    return [json.loads(line) for line in (result.text or "").splitlines()]


def _without(directory: Path, value: Any) -> Any:
    """Returns a value with the directory's own path taken out, as each side works in its own."""
    return json.loads(json.dumps(value).replace(str(directory), "DIR"))


@pytest.mark.parametrize("kind", ["everything", "streamable_http", "sse", "filesystem", "memory", "git", "time"])
async def test_generated_tools_return_what_a_direct_client_gets(kind: ServerKind, tmp_path: Path, mode: Mode):
    async with _server(kind, tmp_path / "direct") as server:
        direct = await _call_directly(server)
        names = [name for name, _ in server.calls]
    async with _server(kind, tmp_path / "kernel") as server:
        await generate_mcp_sources("server", server.params, tmp_path / "mcptools")
        modules = {name: name.replace("-", "_") for name in names}
        generated = await _call_generated(server, tmp_path, "server", modules, mode)
    assert _without(tmp_path / "kernel", generated) == _without(tmp_path / "direct", direct)
    assert len(generated) == len(names)


async def test_picture_of_a_tool_becomes_an_image_of_the_result(tmp_path: Path, mode: Mode):
    await generate_mcp_sources("everything", everything(), tmp_path / "mcptools")
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:
        result = await executor.execute("from mcptools.everything import get_tiny_image as t; t.run(t.Params())")
    assert [path.read_bytes()[:4] for path in result.images] == [b"\x89PNG"]
    assert result.images[0].parent == tmp_path / "images"


async def test_content_beside_text_is_named_in_the_text(tmp_path: Path, mode: Mode):
    await generate_mcp_sources("everything", everything(), tmp_path / "mcptools")
    code = """
from mcptools.everything import get_resource_links as links, get_resource_reference as reference
print(links.run(links.Params(count=2)))
print(reference.run(reference.Params(resourceType=reference.ResourceType.Text, resourceId=1)))
"""
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:
        text = (await executor.execute(code)).text or ""
    assert text.count("demo://resource/dynamic/") >= 3
    assert "This is a plaintext resource" in text
