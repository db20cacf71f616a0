"""`register_mcp_server` without parameters: the user's own servers, after a form, in both revisions' ways."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp.client import ClientRequestContext
from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitRequestParams, ElicitResult, TextContent

from ipybox import ExecutorConfig
from ipybox.mcp_server import MCPServer
from ipybox.mcp_server import approver as approver_module
from ipybox.mcp_server.shown_call import COLUMNS, LINES
from tests.mcp_server.in_process import connected
from tests.servers import WAIT, scripted

SECRET = "w0nt-be-shown-1234"
ACCEPT = ElicitResult(action="accept", content={"scope": "add and start it"})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    write(home / ".cursor/mcp.json", {"acme": acme(), "two": acme(), "my-server": acme()})
    write(home / ".gemini/settings.json", {"acme": acme(), "two": {**acme(), "args": ["x"]}})
    return home


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    write(workspace / ".mcp.json", {"theirs": acme()})
    return workspace


@pytest.fixture(params=["legacy", "auto"])
def era(request: pytest.FixtureRequest) -> Literal["legacy", "auto"]:
    return request.param


def acme(*flags: str) -> dict[str, Any]:
    return {**scripted(*flags), "env": {"ACME_KEY": SECRET}}


def write(path: Path, servers: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}))


class User:
    """Answers all forms in the same way."""

    def __init__(self, answer: ElicitResult):
        self.answer = answer
        self.forms: list[ElicitRequestFormParams] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        self.forms.append(params)
        return self.answer


async def register(workspace: Path, era: Literal["legacy", "auto"], user: User | None, *names: str) -> list[str]:
    """Returns what the tool answers to calls with these names; an error begins with `error: `."""
    answers: list[str] = []
    server = MCPServer(ExecutorConfig(working_dir=workspace), audit="full")
    async with asyncio.timeout(2 * WAIT), connected(server, elicitation_callback=user, mode=era) as client:
        for name in names:
            result = await client.call_tool("register_mcp_server", {"server_name": name})
            assert isinstance(result, CallToolResult)
            [block] = result.content
            assert isinstance(block, TextContent)
            answers.append(f"error: {block.text}" if result.is_error else block.text)
    assert SECRET not in str(answers)
    return answers


@pytest.mark.asyncio
async def test_the_user_is_asked_once_and_sees_source_and_command(
    era: Literal["legacy", "auto"], workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(approver_module, "READING_TIME", 0)
    user = User(ACCEPT)

    first, again, other = await register(workspace, era, user, "acme", "acme", "my-server")

    assert first.splitlines()[0] == "echo"
    assert again.startswith("unchanged: ")
    assert "'my-server' is not a Python name" in other
    form, _ = user.forms
    lines = form.message.splitlines()
    assert lines[:2] == ["Add the MCP server acme to this workspace?", "| ~/.cursor/mcp.json"]
    assert "ACME_KEY=${ACME_KEY}" in lines[2]
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    assert form.requested_schema["required"] == ["scope"]
    files = [path for path in workspace.rglob("*") if path.is_file() and path.name != ".mcp.json"]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []

    # Without a form, what was confirmed remains available, even with a new secret, but not a different command.
    write(home / ".gemini/settings.json", {})
    write(home / ".cursor/mcp.json", {"acme": {**acme(), "env": {"ACME_KEY": f"{SECRET}-new"}}})
    assert await register(workspace, era, None, "acme") == [again]
    write(home / ".cursor/mcp.json", {"acme": acme("--strict")})
    [refused] = await register(workspace, era, None, "acme")
    assert "this client can't ask its user" in refused


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "reading_time", "why"),
    [
        (ElicitResult(action="decline"), 0, "the user did not agree"),
        (ElicitResult(action="accept", content={}), 0, "the user did not agree"),
        (ACCEPT, 60, "the client answered on its own"),
        (None, 0, "this client can't ask its user"),
    ],
)
async def test_without_the_users_consent_nothing_starts(
    answer: ElicitResult | None,
    reading_time: float,
    why: str,
    era: Literal["legacy", "auto"],
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(approver_module, "READING_TIME", reading_time)

    [refused] = await register(workspace, era, answer and User(answer), "acme")

    assert refused.startswith(
        f"error: MCP server 'acme' was not added: {why}. The user can add it with `ipybox import`"
    )
    assert not (workspace / "mcptools").exists()


@pytest.mark.asyncio
async def test_names_are_exact_and_servers_of_the_workspace_are_never_used(workspace: Path):
    user = User(ACCEPT)
    two, theirs, none = await register(workspace, "legacy", user, "two", "theirs", "Acme")

    assert two.startswith("error: 'two' is ambiguous")
    assert ".cursor/mcp.json" in two
    assert ".gemini/settings.json" in two
    for answer, name in ((theirs, "theirs"), (none, "Acme")):
        names = "acme, two, my-server"
        assert answer == (
            f"error: no MCP client is configured with a server named '{name}'; configured servers: {names}"
        )
    assert user.forms == []
    assert sys.executable not in theirs
