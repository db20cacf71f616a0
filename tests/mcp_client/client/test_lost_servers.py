"""Servers that die while they are used."""

import asyncio
import os
import signal
from typing import Any

import pytest

from ipybox.errors import MCPConnectionLost, MCPServerError, MCPSessionExpired
from ipybox.mcp_client.client import MCPClient
from tests import servers
from tests.servers import WAIT


@pytest.mark.parametrize("method", ["crash", "kill"])
async def test_a_call_whose_server_dies_fails_and_says_how(method: str):
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted()) as client:
        pid = int(str(await client.run("pid", {})))
        blocked = asyncio.create_task(client.run("block", {}))
        if method == "crash":
            with pytest.raises(MCPConnectionLost, match=r"exited with code 7; .* stderr:\n    about to crash$"):
                await client.run("crash", {"code": 7})
        else:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(MCPConnectionLost, match=r"exited with code 7|killed by signal 9"):
            await blocked
        assert client.closed
        with pytest.raises(MCPConnectionLost, match=r"exited with code 7|killed by signal 9"):
            await client.run("echo", {"text": "hi"})


async def test_a_stdio_server_that_dies_between_calls_is_noticed():
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted()) as client:
        os.kill(int(str(await client.run("pid", {}))), signal.SIGKILL)
        await client.wait_closed()
        assert client.closed


@pytest.mark.parametrize(
    ("transport", "error"),
    [("streamableHttp", "can't reach {}: connection refused; the request was not sent"), ("sse", "lost .* to {}: ")],
)
async def test_a_remote_server_that_dies_is_noticed_at_the_next_call(transport: Any, error: str):
    async with asyncio.timeout(WAIT), servers.http_everything(transport) as url:
        client = await MCPClient({"url": url}).__aenter__()
        await client.run("echo", {"message": "hi"})
    async with asyncio.timeout(WAIT):
        with pytest.raises(MCPServerError, match=error.format(url)):
            await client.run("echo", {"message": "hi"})
        assert client.closed == (transport == "sse")
        await client.close()


@pytest.mark.parametrize("transport", ["streamableHttp", "sse"])
async def test_a_call_whose_remote_server_dies_fails(transport: Any):
    async with asyncio.timeout(WAIT):
        async with servers.http_everything(transport) as url:
            client = await MCPClient({"url": url}).__aenter__()
            await client.list_tools()
            operation = {"duration": 1000, "steps": 2}
            blocked = asyncio.create_task(client.run("trigger-long-running-operation", operation))
            await client.run("echo", {"message": "the call before has arrived"})
        with pytest.raises(MCPConnectionLost):
            await blocked
        await client.close()


async def test_a_remote_server_that_was_restarted_and_lost_the_session_is_noticed():
    async with asyncio.timeout(WAIT):
        async with servers.http_everything("streamableHttp") as url:
            client = await MCPClient({"url": url}).__aenter__()
            await client.run("echo", {"message": "hi"})
        async with servers.http_everything("streamableHttp", int(url.split(":")[2].split("/")[0])):
            with pytest.raises(MCPSessionExpired, match=r"no longer knows the session: HTTP 400: .*session"):
                await client.run("echo", {"message": "hi"})
            await client.close()
