"""`initialize` is answered while the SDK loads, exactly as the SDK answers it."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from ipybox.mcp_server.handshake import REVISIONS, Handshake
from ipybox.mcp_server.instructions import MINIMAL
from tests.servers import WAIT

# No code runs.
pytestmark = pytest.mark.kernel

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST = {"jsonrpc": "2.0", "id": "next", "method": "tools/list"}


def initialize(name: str, revision: str = "2025-06-18", **params: Any) -> dict[str, Any]:
    known = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": name, "version": "1"}}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {**known, **params}}


def answers(workspace: Path, *messages: object, before: str = "") -> list[dict[str, Any]]:
    """The answers of a new server, which reads `before` before the messages."""
    command = [sys.executable, "-m", "ipybox", "--workspace", str(workspace), "--instructions=brief"]
    lines = "".join(f"{json.dumps(message)}\n" for message in messages)
    done = subprocess.run(
        command, input=before + lines, capture_output=True, text=True, timeout=WAIT, check=True, env=os.environ
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_revisions_are_those_of_the_sdk():
    assert (*sorted(HANDSHAKE_PROTOCOL_VERSIONS),) == REVISIONS


@pytest.mark.parametrize(
    ("name", "revision"), [("claude-code", "2025-06-18"), ("codex-mcp-client", "1999-01-01"), ("Cline", "2025-11-25")]
)
def test_the_answer_is_the_one_of_the_sdk(tmp_path: Path, name: str, revision: str):
    messages = initialize(name, revision), INITIALIZED, LIST
    early, late = answers(tmp_path, *messages), answers(tmp_path, *messages, before="\n")
    assert early == late
    assert [each["id"] for each in early] == [0, "next"]
    described = {tool["name"]: tool for tool in early[1]["result"]["tools"]}
    session = described["reset"]["inputSchema"]["properties"]["session"]
    assert ("(default default)" in session.get("description", "")) == (name == "codex-mcp-client")
    assert (MINIMAL in described["execute_ipython_cell"]["description"]) == (name == "Cline")


OTHERS = (
    {**initialize("x"), "id": True},
    {**initialize("x"), "jsonrpc": "1.0"},
    initialize("x", clientInfo={"name": "x"}),
    initialize("x", capabilities=[]),
    {"jsonrpc": "2.0", "id": 0, "method": "ping"},
)


@pytest.mark.parametrize("first", OTHERS)
def test_other_messages_are_not_answered_early(first: dict[str, Any]):
    with Path(os.devnull).open("rb") as closed:
        handshake = Handshake(closed.fileno(), closed.fileno(), "", resources=False)
        handshake.received = f"{json.dumps(first)}\n".encode()
        asyncio.run(handshake.answer())
    assert handshake.answered is None


def test_other_messages_are_left_to_the_sdk(tmp_path: Path):
    assert answers(tmp_path, OTHERS[-1]) == answers(tmp_path, OTHERS[-1], before="\n")
