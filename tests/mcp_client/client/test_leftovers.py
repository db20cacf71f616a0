"""Nothing outlives its application."""

import asyncio
import sys
import time
from pathlib import Path

import psutil
import pytest

from ipybox.errors import MCPConnectionLost
from ipybox.mcp_client.client import MCPClient
from tests import servers
from tests.servers import WAIT

APPLICATION = f"""
import asyncio, json, sys
sys.path.insert(0, {str(servers.ROOT)!r})
from ipybox.mcp_client.client import MCPClient
from tests import servers

async def main():
    log = sys.argv[1]
    async with (
        MCPClient(servers.everything(), 30),
        MCPClient(servers.scripted("--log", log), 30),
        MCPClient(servers.scripted("--stubborn", "--daemon", "--log", log), 30) as stubborn,
        MCPClient({{"command": "sh", "args": ["-c", "node $0 stdio; true", servers.everything()["args"][0]]}}, 30),
    ):
        task = asyncio.create_task(stubborn.run("block", {{}}))
        print("ready", flush=True)
        await task

asyncio.run(main())
"""


@pytest.mark.slow
async def test_no_server_outlives_an_application_that_is_killed(tmp_path: Path):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", APPLICATION, str(tmp_path / "log"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(2 * WAIT):
        assert await process.stdout.readline() == b"ready\n"
    running = servers.descendants(process.pid)
    assert len(running) >= 9

    process.kill()
    await process.wait()

    assert await servers.until_dead(running, timeout=2) == set()


async def test_stopping_a_stubborn_server_is_bounded_and_leaves_nothing():
    async with asyncio.timeout(WAIT):
        client = await MCPClient(servers.scripted("--stubborn", "--daemon"), WAIT).__aenter__()
        running = servers.descendants()
        started = time.monotonic()
        await client.close()

    assert time.monotonic() - started < 2
    assert len(running) >= 4
    assert await servers.until_dead(running, timeout=2) == set()


async def test_a_guard_that_is_killed_leaves_no_stubborn_server():
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted("--stubborn"), WAIT) as client:
        running = servers.descendants()
        for each in psutil.Process().children():
            if any(part.endswith("process_guard.py") for part in each.cmdline()):
                each.kill()
        await client.wait_closed()
    assert await servers.until_dead(running, timeout=2) == set()


async def test_a_server_that_crashes_leaves_nothing():
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted("--daemon"), WAIT) as client:
        running = servers.descendants()
        with pytest.raises(MCPConnectionLost, match="exited with code 3"):
            await client.run("crash", {"code": 3})
        assert await servers.until_dead(running, timeout=2) == set()
