"""What responses of remote servers may cost."""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

import httpx2
import pytest

from ipybox.errors import MCPConnectionLost
from ipybox.mcp_client.client import MCPClient
from ipybox.mcp_client.http import MAX_COOKIES, MAX_EVENT_LINES, ExcessiveResponseError, FewCookies, Reach, bounded
from ipybox.support.bounded_json import MAX_GREETING_VALUES, MAX_MESSAGE_BYTES, ExcessError
from tests.servers import WAIT

LIMIT = 1000
EVENTS = {"Content-Type": "text/event-stream"}
LARGE = "x" * (LIMIT // 2)


class Answer(httpx2.AsyncBaseTransport):
    """A server that answers everything alike, in chunks of a size."""

    def __init__(self, body: bytes, headers: dict[str, str], size: int = 65536):
        self._body, self._headers, self._size = body, headers, size

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        async def chunks() -> AsyncIterator[bytes]:
            for start in range(0, len(self._body), self._size):
                yield self._body[start : start + self._size]

        return httpx2.Response(200, headers=self._headers, content=chunks())


@asynccontextmanager
async def answered(
    body: bytes,
    headers: dict[str, str],
    size: int = 65536,
    *,
    refused: list[ExcessError] | None = None,
    limit: int = LIMIT,
) -> AsyncGenerator[httpx2.Response]:
    on_excess = ([] if refused is None else refused).append
    hooks = bounded(Reach("http://localhost"), is_server=True, max_bytes=limit, on_excess=on_excess)
    async with (
        httpx2.AsyncClient(transport=Answer(body, headers, size), event_hooks=hooks) as client,
        client.stream("GET", "http://localhost/") as response,
    ):
        yield response


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=repr)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 65536])
async def test_events_are_the_same_however_they_arrive_and_may_exceed_the_limit_together(end: str, size: int):
    data = [f"data: {LARGE}{number}{end}id: {number}{end}{end}" for number in range(5)]
    body = "".join([f": ping{end}{end}", *data]).encode()

    async with answered(body, EVENTS, size) as response:
        events = [event async for event in httpx2.EventSource(response)]

    assert [(event.data, event.id) for event in events] == [(f"{LARGE}{number}", f"{number}") for number in range(5)]


async def test_other_tasks_run_between_the_events_of_a_chunk():
    async def read() -> None:
        async with answered(b":\n\n" * 1000, EVENTS) as response:
            assert [event async for event in httpx2.EventSource(response)] == []

    reading, turns = asyncio.create_task(read()), 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    await reading

    assert turns >= 1000


@pytest.mark.parametrize(
    ("body", "headers", "limit", "reason"),
    [
        pytest.param(b"x" * (LIMIT + 1), {}, LIMIT, "1,000 bytes", id="body"),
        pytest.param(b"data: " + b"x" * LIMIT, EVENTS, LIMIT, "1,000 bytes", id="event_without_an_end"),
        pytest.param(gzip.compress(b"0" * 10_000), {"Content-Encoding": "gzip"}, LIMIT, "1,000 bytes", id="compressed"),
        pytest.param(b"[" + b"0," * MAX_GREETING_VALUES + b"0]", {}, 1 << 30, "50,000 values", id="values"),
        pytest.param(
            b"data: [" + b"0,\ndata: " * MAX_GREETING_VALUES + b"0]\n\n",
            EVENTS,
            1 << 30,
            "50,000 values",
            id="values_in_lines",
        ),
        pytest.param(b":\n" * (MAX_EVENT_LINES + 1), EVENTS, 1 << 30, "1,000,000 lines", id="lines"),
        pytest.param(b" " * 20_000, {}, 1 << 30, "10,000 small chunks", id="chunks"),
        pytest.param(b":" * 20_000, EVENTS, 1 << 30, "10,000 small chunks", id="chunks_of_an_event"),
    ],
)
async def test_a_response_that_costs_too_much_is_not_read(
    body: bytes, headers: dict[str, str], limit: int, reason: str
):
    refused: list[ExcessError] = []
    size = 1 if "chunks" in reason else 65536
    async with answered(body, headers, size, refused=refused, limit=limit) as response:
        with pytest.raises(ExcessiveResponseError, match=f"it sent a message larger than the limit of {reason}"):
            await response.aread()

    assert [*map(str, refused)] == [f"it sent a message larger than the limit of {reason}"]


@pytest.mark.parametrize("size", [5, 65536])
async def test_a_compressed_response_is_read_and_the_rest_of_it_stays_as_it_was(size: int):
    async with answered(gzip.compress(b"text"), {"Content-Encoding": "gzip", "X-A": "b"}, size) as response:
        assert await response.aread() == b"text"
        assert response.headers["X-A"] == "b"


async def test_what_follows_the_end_of_compressed_content_is_not_read():
    async with answered(gzip.compress(b"text") + bytes(1 << 20), {"Content-Encoding": "gzip"}, 1000) as response:
        assert await response.aread() == b"text"
        assert response.num_bytes_downloaded == len(b"text")


@pytest.mark.parametrize(
    ("encoding", "headers"), [("gzip, gzip", {}), ("deflate", {}), ("br", {}), ("gzip", EVENTS)], ids=str
)
async def test_content_that_could_grow_without_limit_is_refused(encoding: str, headers: dict[str, str]):
    with pytest.raises(httpx2.DecodingError, match=f"content encoding '{encoding}' is not supported"):
        async with answered(gzip.compress(b"text"), {"Content-Encoding": encoding, **headers}):
            pass


async def test_a_body_that_is_not_compressed_as_it_says_is_an_error_of_the_request():
    async with answered(b"text", {"Content-Encoding": "gzip"}) as response:
        with pytest.raises(httpx2.DecodingError):
            await response.aread()


async def test_a_server_can_not_fill_requests_with_cookies():
    sent: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.headers.get("Cookie", ""))
        number = int(request.url.path[1:])
        cookies = [("Set-Cookie", f"{request.url.path[1:]}-{each}=x; Path=/") for each in range(number)]
        return httpx2.Response(200, headers=cookies)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), cookies=FewCookies()) as client:
        for number in (2, MAX_COOKIES - 1, 1, 2500, 0):
            await client.get(f"http://localhost/{number}")

    # Those that are too many together are forgotten, and so many at once not even read.
    assert [each.count("=") for each in sent] == [0, 2, 0, 1, 1]


async def test_no_codec_of_the_servers_choice_is_used():
    async with answered("é".encode(), {"Content-Type": "text/plain; charset=punycode"}) as response:
        await response.aread()
        assert response.text == "é"


class Server:
    """An MCP server over Streamable HTTP that answers to each call with more than anybody reads."""

    def __init__(self, content_type: str):
        self._content_type = content_type

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await self._serve(reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = re.search(rb"content-length: (\d+)", (await reader.readuntil(b"\r\n\r\n")).lower())
        message: dict[str, Any] = json.loads(await reader.readexactly(int(length[1]))) if length else {}
        match message.get("method"):
            case "initialize":
                server = {"name": "s", "version": "1"}
                result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": server}
                self._answer(writer, 200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))
            case "tools/call":
                await self._overflow(writer)
            case _:
                self._answer(writer, 202 if message else 405, "")
        await writer.drain()

    def _answer(self, writer: asyncio.StreamWriter, status: int, body: str) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(f"{head}{body}".encode())

    async def _overflow(self, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 X\r\nContent-Type: {self._content_type}\r\n\r\ndata: ".encode())
        for _ in range((MAX_MESSAGE_BYTES >> 20) + 10):
            writer.write(b"x" * (1 << 20))
            await writer.drain()


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
async def test_a_remote_server_that_sends_too_much_is_left_and_the_call_says_why(content_type: str):
    async with await asyncio.start_server(Server(content_type).serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        lost = f"lost the connection to {url}: it sent a message larger than the limit of 134,217,728 bytes"
        async with asyncio.timeout(WAIT), MCPClient({"url": url}, WAIT) as client:
            with pytest.raises(MCPConnectionLost, match=re.escape(lost)):
                await client.run("tool", {})
            assert client.closed
