"""Private sockets, in directories whose paths are too long for the address of a socket."""

import asyncio
import errno
import os
import socket
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from ipybox.mcp_server.approval_desk import ApprovalDesk
from ipybox.mcp_server.attach_socket import (
    AttachSocket,
    answers,
    bind_private,
    connect_private,
    running_servers,
    socket_path,
)
from tests.servers import WAIT


@pytest.mark.parametrize("length", [1, 150])
def test_a_socket_in_place_of_a_stale_one_is_for_the_same_user_only(tmp_path: Path, length: int):
    path = tmp_path / ("d" * length) / "s.sock"
    path.parent.mkdir()
    bind_private(path).close()
    with pytest.raises(ConnectionRefusedError):
        connect_private(path)
    with bind_private(path) as listener, connect_private(path) as client:
        assert path.stat().st_mode & 0o777 == 0o600
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(b"x")
            client.setblocking(True)
            assert client.recv(1) == b"x"
        assert listener.family == socket.AF_UNIX


def test_connecting_to_a_stopped_process_fails_instead_of_waiting(tmp_path: Path):
    path = tmp_path / "s.sock"
    with bind_private(path), ExitStack() as connections:

        def connect(count: int) -> None:
            for _ in range(count):
                connections.enter_context(connect_private(path))

        connect(1)
        with pytest.raises(BlockingIOError):
            connect(100_000)


def test_a_socket_that_does_not_listen_yet_is_not_taken_for_that_of_a_killed_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    chmod = Path.chmod

    def chmod_after_a_search(path: Path, mode: int) -> None:
        assert running_servers(tmp_path) == {}
        chmod(path, mode)

    monkeypatch.setattr(Path, "chmod", chmod_after_a_search)
    path = socket_path(tmp_path, 1)
    with bind_private(path):
        assert running_servers(tmp_path) == {1: path}


class Sessions:
    """One session, which can always be joined."""

    running = ("default",)
    end_reason = ""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    @asynccontextmanager
    async def use(self, _: str) -> AsyncGenerator["Sessions"]:
        yield self

    attach = use

    def instructions(self) -> str:
        return "joined"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Path]:
    """The path of a socket."""
    attach = AttachSocket(tmp_path, cast(Any, Sessions()), ApprovalDesk(tmp_path))
    attach.start()
    yield running_servers(tmp_path)[os.getpid()]
    await attach.aclose()


async def test_what_a_command_sends_after_its_request_is_dropped(server: Path):
    reader, writer = await asyncio.open_unix_connection(sock=connect_private(server))
    writer.write(b'{"session": "default"}\n')
    assert b"joined" in await reader.readline()
    tracemalloc.start()
    try:
        for _ in range(64):
            writer.write(bytes(1 << 20))
            await writer.drain()
        assert tracemalloc.get_traced_memory()[0] < 16 << 20
        writer.write_eof()
        assert await reader.read() == b""
    finally:
        tracemalloc.stop()
        writer.close()


@pytest.mark.parametrize(
    ("request_sent", "error"),
    [
        ({"approvals": "all"}, "not a request about approvals"),
        ({"decide": "x", "accept": 1, "reason": None}, "not a request about approvals"),
        ({"decide": "x", "accept": True, "reason": None}, "no call with the id x is waiting"),
        ({"session": "other"}, "no session named 'other' is running; running sessions: default"),
    ],
)
async def test_what_a_command_can_not_ask_is_an_error(server: Path, request_sent: dict[str, object], error: str):
    [answer] = [each async for each in answers(server, WAIT, request_sent)]
    assert answer["error"].startswith(error)


async def test_calls_can_wait_without_a_form_until_the_last_terminal_stops_watching(tmp_path: Path):
    desk = ApprovalDesk(tmp_path)
    attach = AttachSocket(tmp_path, cast(Any, Sessions()), desk)
    attach.start()
    try:
        path = running_servers(tmp_path)[os.getpid()]
        terminals = [await asyncio.open_unix_connection(sock=connect_private(path)) for _ in range(2)]
        for reader, writer in terminals:
            writer.write(b'{"approvals": "watch"}\n')
            assert b"watching" in await reader.readline()
        for watched, (reader, writer) in zip((True, False), terminals, strict=True):
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
            assert desk.watched == watched
    finally:
        await attach.aclose()


async def test_a_form_that_has_expired_stays_so_when_a_terminal_begins_to_watch(tmp_path: Path):
    desk = ApprovalDesk(tmp_path)

    async def form() -> None:
        async with desk.timeout(0.01):
            try:
                await asyncio.sleep(WAIT)
            finally:
                desk._reschedule(desk._deadlines)  # pyright: ignore[reportPrivateUsage] - as a terminal does

    with pytest.raises(TimeoutError):
        await form()


async def test_the_socket_outlives_a_lack_of_descriptors(server: Path, monkeypatch: pytest.MonkeyPatch):
    loop, fails = asyncio.get_running_loop(), iter([OSError(errno.EMFILE, "")])
    accept, accepted = loop.sock_accept, asyncio.Event()

    async def accept_after_a_failure(listener: socket.socket) -> Any:
        for failure in fails:
            raise failure
        accepted.set()
        return await accept(listener)

    monkeypatch.setattr(loop, "sock_accept", accept_after_a_failure)
    async with asyncio.timeout(WAIT):
        for _ in range(2):
            assert [each async for each in answers(server, WAIT, {"approvals": "list", "id": ""})] == []
        await accepted.wait()
