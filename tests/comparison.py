"""Compares calls by generated Python in a kernel with those of a plain client of the MCP SDK, for the same server."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from ipybox import CodeExecutor

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
from ipybox.errors import ToolRunnerError
from pydantic import BaseModel
for module, args in json.loads({calls!r}):
    tool = importlib.import_module(f"mcptools.{server}.{{module}}")
    try:
        result = tool.run(tool.Params(**args))
    except ToolRunnerError as error:
        result = {{"error": str(error)}}
    if isinstance(result, BaseModel):  # without the fields that the server omitted
        result = result.model_dump(mode="json", by_alias=True, exclude_unset=True)
    print(json.dumps(result))
"""


@dataclass(frozen=True)
class Server:
    """A server under test: its parameters, and calls that have the same outcome in every fresh directory."""

    params: dict[str, Any]
    calls: list[Call]
    directory: Path


def repository(directory: Path) -> Path:
    """Makes a git repository of one commit, the same in every directory, with a file that is not added."""

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


def _direct_client(params: dict[str, Any]) -> Client:
    if "command" in params:
        return Client(StdioServerParameters(**params), mode="legacy")
    return Client(sse_client(params["url"]) if params["url"].endswith("/sse") else params["url"])


def in_directory(value: Any, directory: Path) -> Any:
    """Returns JSON with a directory for each `{dir}` in its strings."""
    return json.loads(json.dumps(value).replace("{dir}", str(directory)))


def _value(result: CallToolResult, *, structured: bool) -> Any:
    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    if result.is_error:
        return {"error": text}
    return result.structured_content if structured else text


async def call_directly(server: Server) -> list[Any]:
    """Returns what a plain client gets for the calls: structured content where a tool declares it, or else text.

    A call that fails has the value `{"error": text}`.
    """
    async with _direct_client(server.params) as client:
        structured = {tool.name: tool.output_schema is not None for tool in (await client.list_tools()).tools}
        return [
            await _call(client, name, in_directory(args, server.directory), structured=structured[name])
            for name, args in server.calls
        ]


async def _call(client: Client, name: str, args: dict[str, Any], *, structured: bool) -> Any:
    try:
        result = await client.call_tool(name, args)
    except MCPError as error:
        return {"error": error.message}
    return _value(result, structured=structured)


async def call_generated(
    server: Server, workspace: Path, package: str, modules: dict[str, str], *, sandbox: bool
) -> list[Any]:
    """Returns what code in a kernel gets for the calls from a generated package of the workspace."""
    calls = [[modules[name], in_directory(args, server.directory)] for name, args in server.calls]
    code = RUN_CALLS.format(calls=json.dumps(calls), server=package)
    async with CodeExecutor(working_dir=workspace, sandbox=sandbox) as executor:
        result = await executor.execute(code)
    return [json.loads(line) for line in (result.text or "").splitlines()]


def without(directory: Path, value: Any) -> Any:
    """Returns a value with the directory's own path taken out, as each side works in its own."""
    return json.loads(json.dumps(value).replace(str(directory), "DIR"))
