"""Servers whose tools change right after their start."""

import asyncio
from typing import Any

import pytest

from ipybox.mcp_client.client import MCPClient
from tests import servers
from tests.servers import WAIT

#: A server whose tools are those of LISTS, one list after the other: the next one whenever it has answered a request
#: with the method EACH. It announces each change.
CHANGING = """
import json, sys
lists, each, capabilities = LISTS, EACH, {"tools": {"listChanged": True}}
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        match message["method"]:
            case "initialize":
                info = {"name": "changing", "version": "1"}
                answer = {"result": {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}}
            case "tools/list":
                answer = {"result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in lists[0]]}}
            case _:
                answer = {"error": {"code": -32601, "message": "Method not found"}}
        send(id=message["id"], **answer)
        if message["method"] == each and len(lists) > 1:
            lists.pop(0)
            send(method="notifications/tools/list_changed")
"""


def changing(lists: list[list[str]], each: str) -> dict[str, Any]:
    return servers.python(CHANGING.replace("LISTS", repr(lists)).replace("EACH", repr(each)))


@pytest.mark.parametrize(
    ("lists", "each"),
    [
        pytest.param([["a"], ["a", "b"]], "tools/list", id="added"),
        pytest.param([["a"], ["c"], ["b", "a"], ["a", "b"]], "tools/list", id="thrice"),
        pytest.param([["a"], ["a", "b"]], "initialize", id="before_the_list"),
        pytest.param([[], ["a", "b"]], "ping", id="late"),
    ],
)
async def test_tools_that_are_announced_right_after_the_start_are_listed(lists: list[list[str]], each: str):
    async with asyncio.timeout(WAIT), MCPClient(changing(lists, each), WAIT) as client:
        assert [tool.name for tool in await client.list_tools()] == ["a", "b"]


async def test_tools_that_change_without_end_are_listed_all_the_same():
    lists = [["a"]] * 1000
    async with asyncio.timeout(WAIT), MCPClient(changing(lists, "tools/list"), WAIT) as client:
        assert [tool.name for tool in await client.list_tools()] == ["a"]


async def test_a_server_without_tools_that_announces_none_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ipybox.mcp_client.client._ANNOUNCEMENT_TIMEOUT", 0.1)
    async with asyncio.timeout(WAIT), MCPClient(changing([[]], ""), WAIT) as client:
        assert await client.list_tools() == []
