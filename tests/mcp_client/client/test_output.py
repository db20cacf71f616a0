"""Much or unexpected output of servers, and the environment that they get."""

import asyncio
import json
import logging
import re
from pathlib import Path

import pytest

from ipybox.errors import MCPConnectionLost
from ipybox.mcp_client.client import MCPClient
from ipybox.support.bounded_json import MAX_MESSAGE_BYTES, MAX_VALUES
from ipybox.workspace.writable import WritablePlaces, host_path
from tests import servers
from tests.servers import WAIT


async def test_noise_on_stdout_is_ignored_when_the_server_answers():
    async with MCPClient(servers.scripted("--noisy")) as client:
        assert await client.run("echo", {"text": "hi"}) == "hi"


async def test_a_result_of_40_mib_is_read_in_time():
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted()) as client:
        result = await client.call("big", {"size": 40 << 20})

    (block,) = result.content
    assert block["text"] == "x" * (40 << 20)


@pytest.mark.parametrize(
    ("args", "limit"),
    [
        pytest.param({"size": MAX_MESSAGE_BYTES}, "134,217,728 bytes", id="bytes"),
        pytest.param({"values": MAX_VALUES}, "3,000,000 values", id="values"),
    ],
)
async def test_a_server_that_sends_too_much_is_stopped_and_the_calls_in_flight_say_why(
    args: dict[str, int], limit: str
):
    params = servers.scripted()
    sent = f"it sent a message larger than the limit of {limit}"
    lost = f"lost the connection to `{params['command']} -S {params['args'][1]}`: {sent}"
    async with asyncio.timeout(WAIT), MCPClient(params) as client:
        blocked = asyncio.create_task(client.run("block", {}))
        assert await client.run("echo", {"text": "hi"}) == "hi"
        for call in (client.run("big", args), blocked):
            with pytest.raises(MCPConnectionLost, match=re.escape(lost)):
                await call
        assert client.closed


async def test_a_server_that_reads_no_replies_to_its_requests_is_stopped():
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted()) as client:
        assert await client.run("ask", {"count": 500, "size": 100_000}) == "asked"
        with pytest.raises(MCPConnectionLost, match="it sent 1,000 requests without reading the replies"):
            await client.run("ask", {"count": 20_000})


async def test_a_server_that_writes_much_to_stderr_never_blocks_and_its_last_lines_are_kept(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
):
    caplog.set_level(logging.INFO, "ipybox")
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted()) as client:
        assert await client.run("chatter", {}) == "done"
        with pytest.raises(MCPConnectionLost) as error:
            await client.run("crash", {"code": 1})

    assert "line 199999\n" in str(error.value)
    assert len(str(error.value).splitlines()) == 11
    assert capfd.readouterr() == ("", "")


async def test_stderr_is_logged_at_debug(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, "ipybox")
    async with MCPClient(servers.scripted()) as client:
        with pytest.raises(MCPConnectionLost):
            await client.run("crash", {"code": 1})

    assert any("about to crash" in message for message in caplog.messages)


async def test_a_server_gets_the_default_environment_and_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_TOKEN", "s3cret-value")
    params = {**servers.scripted(), "env": {"TOKEN": "Bearer ${SECRET_TOKEN}"}}
    async with MCPClient(params) as client:
        env = json.loads(str(await client.run("env", {})))

    assert env["TOKEN"] == "Bearer s3cret-value"
    assert env["PATH"] == host_path(WritablePlaces(Path.cwd()))
    assert "SECRET_TOKEN" not in env
