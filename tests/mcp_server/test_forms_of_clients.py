"""Which answers of which clients let a call run, and to whom the audit log ascribes them.

Each row is what a client was seen to do with forms (docs/approvals.md), here done by a real client of the SDK.
"""

from collections.abc import Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult, Implementation, TextContent

from tests import servers
from tests.audit.lines import events
from tests.http_server import Server, serving
from tests.servers import WAIT

Action = Literal["accept", "decline", "cancel"]

#: Runs a server for which each answer takes long enough for a person, or comes from the client itself.
SERVER = """
from ipybox.cli.command import main
from ipybox.mcp_server import approver
approver.READING_TIME = {}
main()
"""
PERSON, ITSELF = "0", "3600"

CALL = "from registered import scripted; print(scripted.run_sync('echo', {'text': 'hello'}))"

# The kernel only makes the call: how it is decided on does not depend on a sandbox.
pytestmark = pytest.mark.kernel


@dataclass(frozen=True)
class Row:
    """A client, and what becomes of a call."""

    by: str
    reason: str | None = None
    action: Action = "accept"
    content: Mapping[str, Any] | None = None
    who: str = ITSELF
    era: Literal["legacy", "auto"] = "auto"
    supports_forms: bool = True
    fills_defaults: bool = False

    async def answer(self, _: object, form: ElicitRequestParams) -> ElicitResult:
        assert isinstance(form, ElicitRequestFormParams)
        content = {**(self.content or {})}
        if self.fills_defaults:
            fields = form.requested_schema["properties"].items()
            content |= {name: field["default"] for name, field in fields if "default" in field}
        if self.action == "accept" and self.content is None and not self.fills_defaults:
            # Accepts by itself only what has nothing to fill in.
            return ElicitResult(action="decline" if form.requested_schema["properties"] else "accept", content=content)
        return ElicitResult(action=self.action, content=content if self.action == "accept" else None)


def only(value: object) -> dict[str, Any]:
    return {"scope": value}


ONCE = only("only this call")
DECLINED = "the user declined it"
ROWS = {
    "Claude Code 2.1.332: accepts": Row("user", None, content=ONCE, who=PERSON),
    "Claude Code 2.1.197: accepts": Row("user", None, content=ONCE, who=PERSON, era="legacy"),
    "Claude Code 2.1.332: declines": Row("user", DECLINED, "decline", who=PERSON),
    "Claude Code 2.1.197: Esc": Row(
        "nobody", "the form was dismissed without an answer", "cancel", who=PERSON, era="legacy"
    ),
    "Claude Code 2.1.332: -p": Row("client", "the client dismissed the form on its own", "cancel"),
    "Claude Code 2.1.197: -p": Row("client", "the client dismissed the form on its own", "cancel", era="legacy"),
    "Claude Code: a hook with our value": Row("client", "the client accepted it on its own", content=ONCE),
    "Claude Code: a hook that would allow more": Row(
        "client", "the client accepted it on its own", content=only("always for this server")
    ),
    "Claude Code: a hook without a value": Row("client", "the client declined it on its own", content={}),
    "Codex: accepts": Row("user", None, content=ONCE, who=PERSON, era="legacy"),
    "Codex: full access": Row("client", "the client declined it on its own", era="legacy"),
    "Codex: exec": Row("client", "the client declined it on its own", "decline", era="legacy"),
    "Copilot: accepts": Row("user", None, content=ONCE, who=PERSON),
    "Copilot: a choice that was typed": Row("user", DECLINED, content=only("no"), who=PERSON),
    "Copilot: a long choice that was typed": Row("user", DECLINED, content=only("only this call, or no"), who=PERSON),
    "Copilot: -p": Row("client", "the client declined it on its own", "decline"),
    "Gemini, opencode, Qwen, Cline": Row("nobody", "this client can't ask its user", supports_forms=False),
    "Gemini, opencode, Qwen, Cline, earlier": Row(
        "nobody", "this client can't ask its user", supports_forms=False, era="legacy"
    ),
    "fills in defaults": Row("client", "the client declined it on its own", fills_defaults=True),
    "fills in defaults, earlier": Row("client", "the client declined it on its own", fills_defaults=True, era="legacy"),
    **{
        f"other values: {value!r}": Row("user", DECLINED, content=only(value), who=PERSON)
        for value in (True, 1, "", "accept", "yes", "Only this call", ["only this call"], "only this command")
    },
    "another field": Row("user", DECLINED, content={"Allow": "only this call"}, who=PERSON),
    "a value of a declined form": Row("user", DECLINED, "decline", ONCE, who=PERSON),
}


@pytest.mark.parametrize(
    ("client", "message"),
    [
        ("claude-code", '| text: "*hello*"'),
        ("mcp", '| text: "*hello*"'),
        ("Visual Studio Code", 'Code calls scripted.echo\n| text: "*hello*"\n```'),
    ],
)
async def test_clients_that_render_markdown_show_what_is_sent(
    running: dict[str, tuple[Server, Path]], client: str, message: str
):
    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        forms.append(params.message)
        return ElicitResult(action="decline")

    forms: list[str] = []
    server, _ = running[PERSON]
    async with httpx2.AsyncClient(headers=server.headers, timeout=WAIT) as http:
        info = Implementation(name=client, version="1")
        for era in ("legacy", "auto"):
            transport = streamable_http_client(server.url, http_client=http)
            async with Client(transport, mode=era, elicitation_callback=answer, client_info=info) as connection:
                await connection.call_tool("execute_ipython_cell", {"code": CALL.replace("hello", "*hello*")})
    assert [form.partition("\n")[2] for form in forms] == [message] * 2


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, shared: None) -> Generator[dict[str, tuple[Server, Path]]]:
    """A server for people, and one for clients that answer by themselves, each with its workspace."""
    with ExitStack() as stack:
        found: dict[str, tuple[Server, Path]] = {}
        for who in (PERSON, ITSELF):
            workspace = tmp_path_factory.mktemp("workspace")
            servers.register(workspace, scripted=servers.scripted())
            started = serving(workspace, "--approve=ask", program=("-c", SERVER.format(who)))
            found[who] = stack.enter_context(started), workspace
        yield found


@pytest.mark.parametrize("name", ROWS)
async def test_only_one_of_our_values_lets_a_call_run(running: dict[str, tuple[Server, Path]], name: str):
    row = ROWS[name]
    server, workspace = running[row.who]
    options: dict[str, Any] = {"elicitation_callback": row.answer} if row.supports_forms else {}
    async with httpx2.AsyncClient(headers=server.headers, timeout=WAIT) as http:
        transport = streamable_http_client(server.url, http_client=http)
        async with Client(transport, mode=row.era, **options) as client:
            try:
                result = await client.call_tool("execute_ipython_cell", {"code": CALL})
                said = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
            except MCPError as exc:
                said = str(exc)
    decision = events(workspace, "decision")[-1]
    accepted = row.reason is None or "accepted" in row.reason
    assert (decision["accepted"], decision["by"]) == (accepted, row.by)
    assert decision.get("reason", "").startswith(row.reason or "")
    if accepted:
        assert said == "hello"
    else:
        assert f"call to scripted.echo was rejected: {row.reason}" in said
        assert "auto" not in said, "nobody teaches the agent how to do without approval"
