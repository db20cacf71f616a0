"""Private sockets, in directories whose paths are too long for the address of a socket."""

import asyncio
import os
import resource
import socket
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ipybox.mcp_server import attach_socket
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


async def test_a_server_without_free_descriptors_answers_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    failed, nothing = asyncio.Event(), cast(Any, SimpleNamespace(running={}))

    def warning(*_: object) -> None:
        failed.set()

    monkeypatch.setattr(attach_socket.logger, "warning", warning)
    server = AttachSocket(tmp_path, nothing, nothing)
    server.start()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    asking = answers(socket_path(tmp_path, os.getpid()), WAIT, {"session": "x"})
    answer = asyncio.ensure_future(anext(asking))
    try:
        await asyncio.sleep(0)  # the command has connected
        os.close(lowest := os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
        async with asyncio.timeout(WAIT):
            await failed.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert "no session named 'x' is running" in (await answer)["error"]
    await asking.aclose()
    await server.aclose()
