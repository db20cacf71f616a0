"""Requests to remote servers that fail, or whose answers can't be read: each fails alone, at once, and says why."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest
from mcp.client import streamable_http

from ipybox.errors import IpyboxError, MCPConnectionLost, MCPServerError, ToolRunnerError
from ipybox.guest.tools.protocol import RunRequest
from ipybox.mcp_client.client import MCPClient
from ipybox.mcp_client.http_client import Event
from ipybox.support.bounded_json import MAX_GREETING_VALUES
from ipybox.tool_exec import server_connections
from ipybox.tool_exec.server_connections import ServerConnections
from tests.mcp_client.remote_server import NOTHING, Answer, Message, RemoteServer, remote_server, text_of
from tests.servers import WAIT, scripted

HALF = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"cut \\ud83d"}]}}'


@pytest.fixture
async def remote() -> AsyncIterator[RemoteServer]:
    async with remote_server() as server:
        yield server


async def test_no_proxy_is_asked_for_a_server_on_this_machine(remote: RemoteServer, monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # discard: nothing listens
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    remote.released.set()
    async with asyncio.timeout(WAIT), MCPClient({"url": f"{remote.url}/mcp"}, WAIT) as client:
        assert await client.run("echo", {"text": "direct"}) == "direct"


def answers_bad(answer: Answer) -> Callable[[Message], Answer | None]:
    return lambda message: answer if text_of(message) == "bad" else None


REFUSED = [
    pytest.param(Answer(429, '{"error": "slow down"}'), 'HTTP 429: {"error": "slow down"}$', id="429"),
    pytest.param(Answer(403, "not\nenabled", "text/plain"), "HTTP 403: not enabled$", id="403"),
    pytest.param(Answer(404, "gone", "text/plain"), "HTTP 404: gone$", id="404"),
    pytest.param(Answer(400, '{"a": "b", "field": "limit"}'), 'HTTP 400: {"a": "b", "field": "limit"}$', id="400"),
    pytest.param(
        Answer(502, "<html><title>502 Bad&nbsp;Gateway</title>", "text/html"), "HTTP 502: 502 Bad Gateway$", id="502"
    ),
    pytest.param(Answer(500, f"<p>&#{'9' * 5000};", "text/html"), "HTTP 500: <p>&#999", id="no character"),
    pytest.param(Answer(503, b"\xff" * 5000, "text/plain"), "HTTP 503: �{1000}…$", id="503"),
    pytest.param(Answer(500, "cut", "text/plain", broken=True), "HTTP 500 Status$", id="500_whose_body_breaks"),
]


@pytest.mark.parametrize("transport", ["mcp", "sse"])
@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        *(pytest.param(*param.values[:1], ToolRunnerError, *param.values[1:], id=param.id) for param in REFUSED),
        pytest.param(NOTHING, MCPConnectionLost, "was sent to .*, but its outcome is unknown: Server disc", id="reset"),
    ],
)
async def test_a_request_that_fails_fails_alone(
    remote: RemoteServer, transport: str, answer: Answer, error: type[Exception], text: str
):
    remote.script = answers_bad(answer)
    async with asyncio.timeout(WAIT), MCPClient({"url": f"{remote.url}/{transport}"}, WAIT) as client:
        others = [asyncio.create_task(client.run("echo", {"text": str(number)})) for number in range(9)]
        while remote.methods.count("tools/call") < 9:  # noqa: ASYNC110 - the server gives no signal
            await asyncio.sleep(0)
        with pytest.raises(error, match=text) as caught:
            await client.run("echo", {"text": "bad"})
        assert type(caught.value) is error
        remote.released.set()
        assert await asyncio.gather(*others) == [str(number) for number in range(9)]
        assert not client.closed


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(Answer(200, "<html>Hello</html>", "text/html"), "it responded with text/html: Hello$", id="page"),
        pytest.param(Answer(204, b"", ""), "with HTTP 204 without a content type: nothing more$", id="no_content"),
        pytest.param(Answer(200, b""), "the server's response is empty$", id="empty"),
        pytest.param(Answer(202), "202 Accepted", id="accepted"),
        pytest.param(Answer(200, '{"message": "no quota"}'), 'not an MCP message.*"no quota"', id="other_json"),
        pytest.param(Answer(200, '{"method": "x"}'), "contains no reply$", id="notification"),
        pytest.param(
            Answer(200, '{"jsonrpc":"2.0","id":ID,"resu', broken=True), "outcome is unknown: peer", id="broken"
        ),
        pytest.param(
            Answer(307, headers=("Location: http://x/",)), "Redirect to http://x/ not followed", id="redirect"
        ),
        pytest.param(Answer(200, ": nothing\n\n", "text/event-stream"), "event stream ended without", id="no_event"),
        pytest.param(Answer(200, "data: oops\n\n", "text/event-stream"), "not an MCP message.*: oops", id="bad_event"),
        pytest.param(Answer(400, '{"jsonrpc":"2.0","method":"x","params":[]}'), "HTTP 400: ", id="400_with_a_message"),
        pytest.param(
            Answer(400, '{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no","data":"limit"}}'),
            "^no: limit$",
            id="error_without_an_id",
        ),
    ],
)
async def test_an_answer_that_is_no_result_says_what_came(remote: RemoteServer, answer: Answer, text: str):
    remote.script = answers_bad(answer)
    remote.released.set()
    async with asyncio.timeout(WAIT), MCPClient({"url": f"{remote.url}/mcp"}, WAIT) as client:
        with pytest.raises(IpyboxError, match=text):
            await client.run("echo", {"text": "bad"})
        assert await client.run("echo", {"text": "hi"}) == "hi"


TEXT = '"result":{"content":[{"type":"text","text":"found"}]}'


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        pytest.param(Answer(body=HALF), "cut �", id="half_emoji"),
        pytest.param(Answer(body=f"data: {HALF}\n\n", content_type="text/event-stream"), "cut �", id="in_an_event"),
        pytest.param(
            Answer(body=f'data: {{"jsonrpc":"2.0",\ndata: "id":ID,{TEXT}}}\n\n', content_type="text/event-stream"),
            "found",
            id="in_two_lines",
        ),
        pytest.param(
            Answer(
                body=f'event: ping\ndata: {{}}\n\nevent: answer\ndata: {{"jsonrpc":"2.0",{TEXT}}}\n\n',
                content_type="Text/Event-Stream; charset=utf-8",
            ),
            "found",
            id="in_a_named_event",
        ),
        pytest.param(Answer(body=f'{{"jsonrpc":"2.0","id":null,{TEXT}}}'), "found", id="null_id"),
        pytest.param(Answer(body=f'{{"jsonrpc":"2.0","id":"other",{TEXT}}}'), "found", id="other_id"),
        pytest.param(Answer(body=f'\ufeff[{{"id":ID,{TEXT}}}]'), "found", id="mark_and_batch"),
        pytest.param(Answer(body=f'{{"id":ID,{TEXT}}}', content_type=""), "found", id="no_content_type"),
        pytest.param(Answer(body=f'{{"id":ID,{TEXT}}}', content_type="text/plain"), "found", id="plain_text"),
    ],
)
async def test_an_answer_whose_meaning_is_clear_is_read(remote: RemoteServer, answer: Answer, result: str):
    remote.script = answers_bad(answer)
    async with asyncio.timeout(WAIT), MCPClient({"url": f"{remote.url}/mcp"}, WAIT) as client:
        assert await client.run("echo", {"text": "bad"}) == result


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
async def test_a_large_answer_is_parsed_once(remote: RemoteServer, content_type: str, monkeypatch: pytest.MonkeyPatch):
    parsed: list[bytes | str] = []
    sdk: Any = streamable_http
    parse = sdk.jsonrpc_message_adapter.validate_json

    def validate_json(data: bytes | str, **options: Any) -> Any:
        parsed.append(data)
        return parse(data, **options)

    monkeypatch.setattr(streamable_http, "jsonrpc_message_adapter", SimpleNamespace(validate_json=validate_json))
    large = f'{{"jsonrpc":"2.0","id":ID,"result":{{"content":[{{"type":"text","text":"{"x" * 100_000}"}}]}}}}'
    body = large if content_type == "application/json" else f"data: {large}\n\n"
    remote.script = answers_bad(Answer(body=body, content_type=content_type))
    async with asyncio.timeout(WAIT), MCPClient({"url": f"{remote.url}/mcp"}, WAIT) as client:
        assert await client.run("echo", {"text": "bad"}) == "x" * 100_000
    assert parsed
    assert max(map(len, parsed)) < 100


@pytest.mark.parametrize("transport", ["stdio", "mcp", "sse"])
async def test_arguments_that_can_not_be_sent_fail_alone(remote: RemoteServer, transport: str):
    remote.released.set()
    params = scripted() if transport == "stdio" else {"url": f"{remote.url}/{transport}"}
    unsendable: list[Any] = ["\ud83d", {"\ud83d": 1}, object()]
    async with asyncio.timeout(WAIT), MCPClient(params, WAIT) as client:
        for value in unsendable:
            with pytest.raises(ToolRunnerError, match=r"^can't send the arguments of echo: "):
                await client.run("echo", {"text": value})
        assert await client.run("echo", {"text": "hi"}) == "hi"


@pytest.mark.parametrize("size", [5, 3 << 20])
async def test_events_may_be_as_large_as_other_messages(remote: RemoteServer, size: int):
    remote.released.set()
    async with asyncio.timeout(WAIT), MCPClient({"url": f"{remote.url}/sse"}, WAIT) as client:
        others = [client.run("echo", {"text": str(number)}) for number in range(3)]
        assert await asyncio.gather(client.run("echo", {"text": "x" * size}), *others) == ["x" * size, "0", "1", "2"]


@pytest.mark.parametrize(
    "event",
    [
        pytest.param('data: {"id":ID,"result":{"content":[]}}\n\n', id="no_jsonrpc"),
        pytest.param('event: message\r\ndata: {"id":ID,\r\ndata: "result":{"content":[]}}\r\n\r\n', id="two_lines"),
        pytest.param(
            'data: oops\n\n: ping\n\nevent: ping\ndata: {}\n\ndata: [{"id":ID,"result":{"content":[]}}]\n\n', id="noise"
        ),
    ],
)
async def test_an_event_whose_meaning_is_clear_is_read(remote: RemoteServer, event: str):
    remote.event = event
    async with asyncio.timeout(WAIT), MCPClient({"url": f"{remote.url}/sse"}, WAIT) as client:
        assert await client.run("echo", {"text": "hi"}) is None


@pytest.mark.parametrize(
    ("given", "line"),
    [
        *[(f"retry:{given}", "retry: 100\n") for given in ("0", "99", "000000099", "100")],
        *[(f"retry:{given}", "retry: 500\n") for given in ("500", "0500")],
        *[(f"retry:{given}", "retry: 3600000\n") for given in ("86400000", "9" * 5000)],
        *[(f"retry:{given}", "") for given in ("soon", "", "-5", "  5", "1_0")],
        (f"id: {'9' * 1000}", f"id: {'9' * 1000}\n"),
        (f"id: {'9' * 1001}", ""),
    ],
)
def test_no_server_makes_the_client_connect_again_without_a_pause_or_with_a_long_id(given: str, line: str):
    event = f"event: x\r\n{given}\r\ndata: retry: 0\r\n\r\n"

    assert Event(event.encode()).encoded().decode() == f"{line}data:\n\n"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(404, "Not Found", "text/plain"), id="404"),
        pytest.param(Answer(500), id="500"),
        pytest.param(NOTHING, id="reset"),
        pytest.param(Answer(200, "oops"), id="unreadable"),
        pytest.param(Answer(200, '{"jsonrpc":"2.0","id":null,"error":"what?"}'), id="null_id"),
        pytest.param(Answer(200, "", ""), id="empty"),
        pytest.param(Answer(200, '{"jsonrpc":"2.0","id":ID,"result":{"supportedVersions":3}}'), id="wrong_result"),
    ],
)
async def test_a_version_probe_without_an_answer_falls_back(remote: RemoteServer, answer: Answer):
    remote.script = lambda message: answer if message["method"] == "server/discover" else None
    remote.released.set()
    async with asyncio.timeout(WAIT), MCPClient({"url": f"{remote.url}/mcp"}, WAIT) as client:
        assert await client.run("echo", {"text": "hi"}) == "hi"
    assert remote.methods[:2] == ["server/discover", "initialize"]


@pytest.mark.parametrize("transport", ["mcp", "sse"])
@pytest.mark.parametrize(("answer", "text"), REFUSED)
async def test_a_server_that_refuses_to_be_initialized_says_why(
    remote: RemoteServer, transport: str, answer: Answer, text: str
):
    remote.script = lambda message: answer
    with pytest.raises(MCPServerError, match=rf"^can't connect to {remote.url}/{transport}: {text}"):
        async with asyncio.timeout(WAIT):
            await MCPClient({"url": f"{remote.url}/{transport}"}, WAIT).__aenter__()


@pytest.mark.parametrize("transport", ["mcp", "sse"])
async def test_a_greeting_of_many_values_is_not_read(remote: RemoteServer, transport: str):
    icons = f'"serverInfo":{{"icons":[{"1," * MAX_GREETING_VALUES}1]}}'
    greeting = f'{{"jsonrpc":"2.0","id":ID,"result":{{{icons}}}}}'
    if transport == "sse":
        remote.endpoint += f"data: {greeting}\n\n"
    else:
        remote.script = lambda message: Answer(body=greeting)
    with pytest.raises(MCPServerError, match="it sent a message larger than the limit of 50,000 values"):
        async with asyncio.timeout(WAIT):
            await MCPClient({"url": f"{remote.url}/{transport}"}, WAIT).__aenter__()


async def test_an_invalid_field_is_named(remote: RemoteServer):
    remote.script = lambda message: Answer(body='{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":1}}')
    with pytest.raises(MCPServerError, match=r"not valid MCP: capabilities: Field required"):
        async with asyncio.timeout(WAIT):
            await MCPClient({"url": f"{remote.url}/mcp"}, WAIT).__aenter__()


@pytest.mark.parametrize(
    "endpoint", ["http://10.0.0.5:3001/message?session=s3cret", "https://127.0.0.1/message", "//example.org/x"]
)
async def test_an_endpoint_of_another_origin_is_refused_at_once(remote: RemoteServer, endpoint: str):
    remote.endpoint = f"event: endpoint\ndata: {endpoint}\n\n"
    with pytest.raises(MCPServerError, match=r"messages to be sent to http\S+, whose origin differs") as caught:
        async with asyncio.timeout(WAIT):
            await MCPClient({"url": f"{remote.url}/sse"}, WAIT).__aenter__()
    assert re.split("[/?]", endpoint)[2] in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param({"code": -32602, "message": "Invalid", "data": {"field": "limit"}}, 'Invalid: {"field": "limit"}'),
        pytest.param({"code": -32042, "message": "Visit", "data": {"url": "http://x/"}}, 'Visit: {"url": "http://x/"}'),
        pytest.param({"code": 1, "message": "no: limit", "data": "limit"}, "no: limit", id="already_told"),
        pytest.param({"code": 1, "message": "no", "data": {}}, "no", id="nothing"),
        pytest.param({"code": 1, "message": "", "data": None}, "MCP error 1", id="no_message"),
        pytest.param({"code": 1, "message": "no", "data": "x" * 5000}, f"no: {'x' * 1000}…", id="long"),
    ],
)
async def test_an_error_has_its_data(remote: RemoteServer, error: Message, text: str):
    reply = json.dumps({"jsonrpc": "2.0", "id": 0, "error": error})
    remote.script = answers_bad(Answer(body=reply))
    async with asyncio.timeout(WAIT), MCPClient({"url": f"{remote.url}/mcp"}, WAIT) as client:
        with pytest.raises(ToolRunnerError, match=f"^{re.escape(text)}$"):
            await client.run("echo", {"text": "bad"})


@pytest.mark.parametrize(
    "denial",
    [
        pytest.param(Answer(404, '{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}')),
        pytest.param(
            Answer(400, '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No valid session ID"}}')
        ),
        pytest.param(Answer(404, b"", ""), id="empty"),
        pytest.param(Answer(410, "Invalid session", "text/plain"), id="410"),
    ],
)
async def test_calls_whose_session_expired_are_repeated_in_one_new_session(remote: RemoteServer, denial: Answer):
    remote.sessions = True
    params = {"url": f"{remote.url}/mcp"}
    async with asyncio.timeout(WAIT), aclosing(ServerConnections(WAIT)) as connections:

        async def call(text: str) -> Any:
            return (await connections.call("s", params, "echo", {"text": text})).content[0]["text"]

        kept = asyncio.create_task(call("kept"))
        while "tools/call" not in remote.methods:  # noqa: ASYNC110 - the server gives no signal
            await asyncio.sleep(0)
        remote.script = lambda message: denial if remote.session == 1 and text_of(message) else None
        calls = [asyncio.create_task(call(str(number))) for number in range(5)]
        while remote.methods.count("tools/call") < 11:  # noqa: ASYNC110
            await asyncio.sleep(0)
        remote.released.set()
        assert await asyncio.gather(*calls) == [str(number) for number in range(5)]
        assert await kept == "kept"
        assert remote.session == 2
        assert sorted(remote.executed) == ["0", "1", "2", "3", "4", "kept"]


async def test_a_call_that_two_sessions_do_not_know_is_an_error(remote: RemoteServer):
    remote.sessions = True
    remote.released.set()
    remote.script = answers_bad(Answer(404, "slow down", "text/plain"))
    params = {"url": f"{remote.url}/mcp"}
    async with asyncio.timeout(WAIT), aclosing(ServerConnections(WAIT)) as connections:
        with pytest.raises(MCPConnectionLost, match=r"^MCP server 's': .* knows the session: HTTP 404: slow down$"):
            await connections.call("s", params, "echo", {"text": "bad"})
        await connections.call("s", params, "echo", {"text": "hi"})
    assert remote.executed == ["hi"]
    assert remote.session == 2


async def test_a_definition_is_that_of_a_new_session_if_the_server_has_forgotten_the_last_one(
    remote: RemoteServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server_connections, "LISTED_FOR", 0)
    remote.sessions = True
    params = {"url": f"{remote.url}/mcp"}
    call = RunRequest(server_name="s", server_params=params, seal=None, tool_name="echo", tool_args={})
    async with asyncio.timeout(WAIT), aclosing(ServerConnections(WAIT)) as connections:
        first = await connections.definition(call)
        assert first is not None
        remote.tools = [{**remote.tools[0], "description": "something else"}]
        remote.session += 1  # as if it had been restarted
        assert await connections.definition(call) not in (None, first)

        remote.script = lambda message: Answer(404) if message["method"] == "tools/list" else None
        assert await connections.definition(call) is None
        remote.script = lambda _: Answer(500)
        assert await connections.definition(call) is None


async def test_a_reset_also_ends_calls_of_an_expired_session(remote: RemoteServer):
    remote.sessions = True
    params = {"url": f"{remote.url}/mcp"}
    async with asyncio.timeout(WAIT), aclosing(ServerConnections(WAIT)) as connections:
        kept = asyncio.create_task(connections.call("s", params, "echo", {"text": "kept"}))
        while "tools/call" not in remote.methods:  # noqa: ASYNC110 - the server gives no signal
            await asyncio.sleep(0)
        remote.script = lambda message: Answer(404) if text_of(message) == "bad" else None
        with pytest.raises(MCPConnectionLost, match="no longer knows the session"):
            await connections.call("s", params, "echo", {"text": "bad"})
        await connections.reset()
        with pytest.raises(MCPConnectionLost, match=r"the tool server was reset$"):
            await kept
        assert connections.status() == []
