"""The HTTP of kernels against servers that misbehave, for blocking and for asyncio sockets alike."""

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from ipybox.guest.tools.http import ConnectionPool, ServerAddress
from tests.servers import WAIT

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Request = Callable[[str, str, bytes], Awaitable[tuple[int, bytearray]]]
MakeRequest = Callable[[ServerAddress], Request]


@pytest.fixture(params=["blocking", "asyncio"])
def client(request: pytest.FixtureRequest) -> Iterator[MakeRequest]:
    # Their end is waited for: up to then, a thread may hold the request that it has made, and so its connection.
    threads = ThreadPoolExecutor()

    def blocking(address: ServerAddress) -> Request:
        pool = ConnectionPool(address)

        async def make(*request: Any) -> tuple[int, bytearray]:
            return await asyncio.get_running_loop().run_in_executor(threads, pool.request, *request)

        return make

    with threads:
        yield blocking if request.param == "blocking" else lambda address: ConnectionPool(address).request_async


@asynccontextmanager
async def serving(answer: Answer) -> AsyncGenerator[ServerAddress]:
    """Runs a server that handles each connection with `answer`."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        # asyncio logs an error if a handler ends as cancelled.
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await answer(reader, writer)
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        yield ServerAddress("127.0.0.1", server.sockets[0].getsockname()[1], "secret")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> tuple[list[str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    length = next(int(line.split(":")[1]) for line in head if line.lower().startswith("content-length"))
    return head, await reader.readexactly(length)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        _, body = await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()


async def test_a_request_has_method_path_body_token_and_a_local_host(client: MakeRequest):
    heads: list[list[str]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, body = await read_request(reader)
        heads.append(head)
        writer.write(b"HTTP/1.1 404 Not\r\ncontent-length:%d\r\n\r\n%s" % (len(body), body))
        await writer.drain()

    async with asyncio.timeout(WAIT), serving(answer) as address:
        assert await client(address)("PUT", "/path", b"body") == (404, b"body")

    assert heads[0][0] == "PUT /path HTTP/1.1"
    assert {"Host: localhost", "Authorization: token secret"} <= set(heads[0])


async def test_large_bodies_go_both_ways(client: MakeRequest):
    body = bytes(range(256)) * 40_000
    async with asyncio.timeout(WAIT), serving(echo) as address:
        assert await client(address)("POST", "/", body) == (200, body)


async def test_a_connection_is_used_again(client: MakeRequest):
    connections: list[None] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(None)
        await echo(reader, writer)

    async with asyncio.timeout(WAIT), serving(answer) as address:
        request = client(address)
        for i in range(5):
            assert await request("POST", "/", b"%d" % i) == (200, b"%d" % i)

    assert len(connections) == 1


async def test_a_connection_that_the_server_has_closed_is_not_used_again(client: MakeRequest):
    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, body = await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with asyncio.timeout(WAIT), serving(answer) as address:
        request = client(address)
        for body in (b"a", b"b"):
            assert await request("POST", "/", body) == (200, body)
            await closed.wait()
            closed.clear()


async def test_an_answer_that_announces_the_end_of_the_connection_ends_it(client: MakeRequest):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, body = await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await reader.read()  # until the client closes

    async with asyncio.timeout(WAIT), serving(answer) as address:
        request = client(address)
        for body in (b"a", b"b"):
            assert await request("POST", "/", body) == (200, body)


async def test_requests_at_once_each_get_their_own_answer(client: MakeRequest):
    arrived: list[bytes] = []
    all_there = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, body = await read_request(reader)
            arrived.append(body)
            if len(arrived) == 5:
                all_there.set()
            await all_there.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()

    async with asyncio.timeout(WAIT), serving(answer) as address:
        request = client(address)
        answers = await asyncio.gather(*(request("POST", "/", b"%d" % i) for i in range(5)))

    assert answers == [(200, b"%d" % i) for i in range(5)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(b"", "closed the connection|no HTTP", id="nothing"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP", id="another_protocol"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "closed the connection", id="half_an_answer"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "not HTTP", id="chunked"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Le", "closed the connection", id="half_a_head"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "not HTTP", id="no_length"),
        pytest.param(b"\0" * 200_000, "not HTTP", id="garbage"),
    ],
)
async def test_what_is_no_answer_is_a_connection_error_and_the_next_request_works(
    client: MakeRequest, answer: bytes, reason: str
):
    broken = True

    async def break_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal broken
        if not broken:
            await echo(reader, writer)
        broken = False
        await read_request(reader)
        writer.write(answer)
        await writer.drain()

    async with asyncio.timeout(WAIT), serving(break_once) as address:
        request = client(address)
        with pytest.raises(ConnectionError, match=reason):
            await request("POST", "/", b"a")
        assert await request("POST", "/", b"b") == (200, b"b")


async def test_a_server_that_is_not_there_is_an_os_error(client: MakeRequest):
    async with serving(echo) as address:
        pass
    with pytest.raises(ConnectionRefusedError):
        await client(address)("GET", "/", b"")


async def test_all_addresses_of_a_host_are_tried(client: MakeRequest, monkeypatch: pytest.MonkeyPatch):
    real = socket.getaddrinfo

    def two_addresses(host: str, *args: Any, **kwargs: Any) -> Any:
        if host != "two.example":
            return real(host, *args, **kwargs)
        return [found for name in ("127.0.0.2", "127.0.0.1") for found in real(name, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", two_addresses)
    async with asyncio.timeout(WAIT), serving(echo) as address:
        request = client(ServerAddress("two.example", address.port, None))
        assert await request("POST", "/", b"a") == (200, b"a")


async def test_cancelling_a_request_withdraws_it_and_the_next_one_works():
    arrived, gone = asyncio.Event(), asyncio.Event()
    block = True

    async def block_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal block
        if not block:
            await echo(reader, writer)
        block = False
        await read_request(reader)
        arrived.set()
        assert await reader.read() == b""
        gone.set()

    async with asyncio.timeout(WAIT), serving(block_once) as address:
        pool = ConnectionPool(address)
        request = asyncio.create_task(pool.request_async("POST", "/", b"a"))
        await arrived.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await gone.wait()
        assert await pool.request_async("POST", "/", b"b") == (200, b"b")


async def test_threads_share_a_pool():
    async with asyncio.timeout(WAIT), serving(echo) as address:
        pool = ConnectionPool(address)
        results: dict[int, list[bytearray]] = {}

        def work(number: int) -> None:
            results[number] = [pool.request("POST", "/", b"%d %d" % (number, i))[1] for i in range(20)]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        await asyncio.gather(*(asyncio.to_thread(thread.join, WAIT) for thread in threads))

    assert results == {number: [b"%d %d" % (number, i) for i in range(20)] for number in range(10)}
