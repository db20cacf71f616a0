"""Calls that are cancelled, and clients that are closed or in the wrong state."""

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ipybox.errors import MCPConnectionLost, MCPServerError
from ipybox.mcp_client import client as client_module
from ipybox.mcp_client.client import MCPClient
from tests import servers
from tests.servers import WAIT


async def test_cancelling_a_call_cancels_only_that_call(tmp_path: Path):
    log = tmp_path / "log"
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted("--log", str(log))) as client:
        blocked = asyncio.create_task(client.run("block", {}))
        assert await client.run("echo", {"text": "hi"}) == "hi"
        blocked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await blocked
        assert await client.run("echo", {"text": "hi"}) == "hi"

    assert log.read_text().split("\n")[1:3] == ["block", "cancelled"]


async def test_closing_fails_calls_in_flight_with_the_reason():
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted()) as client:
        await client.list_tools()
        blocked = asyncio.create_task(client.run("block", {}))
        await client.run("echo", {"text": "hi"})
        await client.close("time to go")
        with pytest.raises(MCPConnectionLost, match=r"time to go$"):
            await blocked


async def test_a_client_may_be_closed_by_another_task():
    async with asyncio.timeout(WAIT):
        client = await asyncio.create_task(MCPClient(servers.scripted()).__aenter__())
        await asyncio.create_task(client.close())
    assert client.closed


async def test_a_client_may_be_closed_before_it_is_connected():
    client = MCPClient(servers.scripted())
    await client.close()

    connecting = asyncio.create_task(client.__aenter__())
    await asyncio.sleep(0)  # the task that owns the connection has been made, and not begun
    async with asyncio.timeout(WAIT):
        await client.close()
        with pytest.raises(MCPServerError, match="the client was closed before it was connected"):
            await connecting


async def test_a_server_that_stops_too_slowly_is_logged_and_its_owner_cancelled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async with MCPClient(servers.scripted()) as connected:
        monkeypatch.setattr(client_module, "_STOP_TIMEOUT", 0)
        await connected.close()
        assert "an MCP server could not be stopped within 0 s" in caplog.text
        monkeypatch.undo()
        await connected.close()


async def test_using_a_client_in_the_wrong_state_is_a_runtime_error():
    client = MCPClient(servers.scripted())
    with pytest.raises(RuntimeError, match="is not connected"):
        await client.run("echo", {})
    async with client:
        with pytest.raises(RuntimeError, match="only once"):
            await client.__aenter__()


async def test_a_cancelled_start_stops_the_server(tmp_path: Path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = f"import sys, time; open({str(fifo)!r}, 'w').close(); time.sleep(1000)"
    start = asyncio.create_task(MCPClient(servers.python(code), WAIT).__aenter__())
    await asyncio.to_thread(fifo.read_bytes)

    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start


@pytest.mark.parametrize("turns", range(5))
async def test_a_start_that_is_cancelled_when_the_process_has_just_started_leaves_nothing(
    turns: int, monkeypatch: pytest.MonkeyPatch
):
    loop = asyncio.get_running_loop()

    def cancel_after(count: int) -> None:
        if count:
            loop.call_soon(cancel_after, count - 1)
        else:
            start.cancel()

    class Started(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any):
            super().__init__(*args, **options)
            loop.call_soon_threadsafe(cancel_after, turns)

    monkeypatch.setattr(subprocess, "Popen", Started)
    start = asyncio.create_task(MCPClient(servers.python("import time; time.sleep(1000)"), WAIT).__aenter__())
    with pytest.raises(asyncio.CancelledError):
        await start
