"""Tools are listed and called over every transport."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from ipybox.errors import MCPServerError, ToolRunnerError
from ipybox.mcp_client.client import MCPClient
from tests import servers
from tests.servers import WAIT


@pytest.fixture(params=["stdio", "http", "sse"])
async def everything(request: pytest.FixtureRequest) -> AsyncIterator[dict[str, Any]]:
    if request.param == "stdio":
        yield servers.everything()
        return
    async with servers.http_everything("streamableHttp" if request.param == "http" else "sse") as url:
        yield {"url": url}


async def test_over_every_transport_tools_are_listed_run_at_once_and_fail_with_the_text_of_the_server(
    everything: dict[str, Any],
):
    async with asyncio.timeout(WAIT), MCPClient(everything) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}

        assert tools["echo"].input_schema["required"] == ["message"]
        assert await client.run("echo", {"message": "hello"}) == "Echo: hello"
        structured = await client.run("get-structured-content", {"location": "Chicago"})
        assert isinstance(structured, dict)
        assert set(structured) == {"temperature", "conditions", "humidity"}

        results = await asyncio.gather(*(client.run("echo", {"message": str(i)}) for i in range(20)))
        assert results == [f"Echo: {i}" for i in range(20)]

        with pytest.raises(ToolRunnerError, match="nope not found"):
            await client.run("nope", {})
        with pytest.raises(ToolRunnerError, match="expected string, received number at message"):
            await client.run("echo", {"message": 1})
        assert await client.run("echo", {"message": "still there"}) == "Echo: still there"


@pytest.mark.parametrize(("limit", "unit"), [("MAX_LISTED_BYTES", "bytes"), ("MAX_LISTED_VALUES", "values")])
async def test_a_server_that_lists_too_much_is_left_before_it_is_read(
    everything: dict[str, Any], limit: str, unit: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(f"ipybox.support.bounded_json.{limit}", 100)
    async with asyncio.timeout(WAIT), MCPClient(everything) as client:
        with pytest.raises(MCPServerError, match=f"sent a message larger than the limit of 100 {unit} for its tool"):
            await client.list_tools()


async def test_all_pages_of_tools_are_listed():
    async with MCPClient(servers.paged(3), WAIT) as client:
        tools = await client.list_tools()

    assert [tool.name for tool in tools] == [f"tool_{page}_{i}" for page in (1, 2, 3) for i in (1, 2)]


async def test_a_paginator_that_never_ends_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ipybox.mcp_client.client.PAGE_LIMIT", 20)
    async with asyncio.timeout(WAIT), MCPClient(servers.paged("endless"), WAIT) as client:
        with pytest.raises(MCPServerError, match="more than 20 pages"):
            await client.list_tools()


async def test_more_tools_than_a_server_may_have_are_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ipybox.mcp_client.client.MAX_TOOLS", 5)
    async with asyncio.timeout(WAIT), MCPClient(servers.paged(3), WAIT) as client:
        with pytest.raises(MCPServerError, match="more than 1000 pages, or 5 tools"):
            await client.list_tools()


async def test_a_paginator_that_comes_back_to_a_page_lists_the_tools_up_to_there():
    async with asyncio.timeout(WAIT), MCPClient(servers.paged("repeating"), WAIT) as client:
        for _ in range(2):
            tools = await client.list_tools()
            assert len({tool.name for tool in tools}) == len(tools) > 0
            assert tools.remarks == ["the tool list may be incomplete: the server keeps returning the same page"]


#: A server that can do what CAPABILITIES says, and answers a request for its tools with ANSWER, or not at all.
BARE = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    match message["method"]:
        case "initialize":
            info = {"name": "bare", "version": "1"}
            found = {"protocolVersion": "2025-06-18", "capabilities": CAPABILITIES, "serverInfo": info}
            answer = {"result": found}
        case "tools/list":
            answer = ANSWER
        case _:
            answer = {"error": {"code": -32601, "message": "Method not found"}}
    if answer and "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


def bare(capabilities: dict[str, Any], answer: dict[str, Any] | None) -> dict[str, Any]:
    return servers.python(BARE.replace("CAPABILITIES", repr(capabilities)).replace("ANSWER", repr(answer)))


REFUSED = {"error": {"code": -32601, "message": "no such method"}}


async def test_a_server_that_offers_no_tools_has_none():
    async with asyncio.timeout(WAIT), MCPClient(bare({}, REFUSED)) as client:
        assert await client.list_tools() == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(REFUSED, "can't list its tools: no such method", id="error"),
        pytest.param(
            {"result": {"tools": 3}}, "can't list its tools: the server's response is not valid MCP", id="invalid"
        ),
        pytest.param(None, "no complete response to tools/list within 1 s", id="silence"),
    ],
)
async def test_a_server_that_does_not_list_its_tools_is_an_error(answer: dict[str, Any] | None, message: str):
    async with asyncio.timeout(WAIT), MCPClient(bare({"tools": {}}, answer)) as client:
        cast(Any, client)._connect_timeout = 1.0
        with pytest.raises(MCPServerError, match=message):
            await client.list_tools()


async def test_malformed_tools_hide_no_others_and_are_named():
    listed: list[Any] = [
        {"name": "good", "inputSchema": {"type": "object"}},
        {"name": "null", "inputSchema": None},
        {"name": "title", "inputSchema": {"type": "object"}, "title": 5},
        {"inputSchema": {"type": "object"}},
        {"name": "good", "inputSchema": {"type": "object", "title": "Again"}},
    ]
    answer = {"result": {"tools": listed, "nextCursor": 7}}
    async with asyncio.timeout(WAIT), MCPClient(bare({"tools": {}}, answer)) as client:
        tools = await client.list_tools()
    assert [tool.name for tool in tools] == ["good", "null", "title"]
    assert tools[0].input_schema == {"type": "object"}
    assert tools.remarks == [
        "tool 'null': ignored malformed inputSchema",
        "tool number 4 is omitted: it has no name",
        "tool 'good' is listed twice: the second definition is ignored",
        "the tool list is incomplete: the server's cursor for the next page is not a string",
    ]


async def test_a_call_needs_no_list_of_the_tools_and_returns_what_the_server_gave(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, "ipybox")
    async with MCPClient(servers.paged(3), WAIT) as client:
        assert await client.run("tool_3_2", {}) == {"page": 3}
        assert await client.run("tool_3_2", {"wrong": True}) == {"page": "not a number"}

    assert not [message for message in caplog.messages if "tools/list" in message]


@pytest.mark.parametrize(
    "structured",
    [
        pytest.param({"text": "a" * 60 + "!"}, id="pattern"),
        pytest.param({"items": [*range(20_000), *map(str, range(20_000))]}, id="unique_items"),
        pytest.param({"remote": 1}, id="reference_to_a_url"),
        pytest.param({"endless": 1}, id="reference_without_end"),
    ],
)
async def test_no_output_schema_of_a_server_holds_up_the_application(structured: dict[str, Any]):
    params = {"command": sys.executable, "args": ["-S", str(servers.ROOT / "tests" / "giving_server.py")]}
    async with asyncio.timeout(WAIT), MCPClient(params, WAIT) as client:
        await client.list_tools()
        args: dict[str, Any] = {"result": {"content": [], "structuredContent": structured}}
        assert await client.run("give_hostile", args) == structured


@pytest.mark.parametrize(
    ("args", "expected"),
    [pytest.param({"text": True}, "one\ntwo", id="text"), pytest.param({}, None, id="no_text")],
)
async def test_text_blocks_are_joined_by_newlines(args: dict[str, Any], expected: str | None):
    async with MCPClient(servers.scripted()) as client:
        assert await client.run("many_blocks", args) == expected


async def test_a_failed_tool_is_a_result_for_call_and_an_error_for_run():
    async with MCPClient(servers.scripted()) as client:
        assert (await client.call("fail", {"text": "no luck"})).is_error
        with pytest.raises(ToolRunnerError, match=r"^no luck$"):
            await client.run("fail", {"text": "no luck"})


async def test_an_error_code_that_the_sdk_uses_too_is_no_lost_connection():
    async with MCPClient(servers.scripted()) as client:
        with pytest.raises(ToolRunnerError, match=r"^no such repository$"):
            await client.run("refuse", {})
        assert not client.closed


async def test_an_answer_before_the_end_is_the_answer():
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted()) as client:
        with pytest.raises(ToolRunnerError, match=r"^these are my last words$"):
            await client.run("last_words", {})
        await client.wait_closed()


@pytest.mark.parametrize("era", ["--strict", "--modern"])
async def test_servers_of_every_era_are_connected_to(era: str):
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted(era)) as client:
        assert await client.run("echo", {"text": "hi"}) == "hi"
