"""`ipybox attach`: it finds the session of a running MCP server, and ZeroMQ clients use what it prints."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.asynchronous.client import AsyncKernelClient

from ipybox import CodeExecutor
from ipybox.code_exec.presence import CAME, LEFT
from ipybox.mcp_server.attach_socket import running_servers, socket_path
from ipybox.support.private_socket import bind_private
from tests.conftest import Mode
from tests.mcp_server.test_server import client_of, output
from tests.servers import WAIT


class Command:
    """A running `ipybox attach`, and what it has printed."""

    def __init__(self, process: asyncio.subprocess.Process):
        self.process = process
        self.text = ""

    async def until(self, pattern: str) -> re.Match[str]:
        """Returns when it has printed something that matches."""
        assert self.process.stdout is not None
        async with asyncio.timeout(WAIT):
            while (found := re.search(pattern, self.text)) is None:
                line = await self.process.stdout.readline()
                assert line, self.text
                self.text += line.decode()
        return found


@asynccontextmanager
async def attached(workspace: Path, *arguments: str) -> AsyncGenerator[Command]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ipybox", "attach", "--workspace", str(workspace), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Command(process)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), WAIT)


@asynccontextmanager
async def zmq_client(connection_file: str) -> AsyncGenerator[AsyncKernelClient]:
    client: Any = AsyncKernelClient(connection_file=connection_file)
    client.load_connection_file()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=WAIT)
        yield client
    finally:
        client.stop_channels()
        client.context.destroy(linger=0)


async def run(client: Any, code: str) -> str:
    """Returns what a cell prints, with the status of its reply."""
    printed: list[str] = []

    def take(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = await client.execute_interactive(code, timeout=WAIT, output_hook=take, allow_stdin=False)
    return "".join([*printed, reply["content"]["status"]])


@pytest.mark.asyncio
async def test_a_client_with_the_connection_file_uses_the_session_of_a_server(tmp_path: Path, mode: Mode):
    async with client_of(tmp_path, *mode.options, JUPYTER_RUNTIME_DIR=os.environ["JUPYTER_RUNTIME_DIR"]) as agent:
        await output(agent, "x = 41", session="work")
        async with attached(tmp_path, "other") as command:
            await command.until("no session named 'other' runs; running sessions: .*work")
            assert await command.process.wait() == 1
        async with attached(tmp_path, "work", "--server", "1") as command:
            await command.until(r"and the process id 1 runs in .*: give --server and one of the process ids \d+\n")
        async with attached(tmp_path, "work") as command:
            connection_file = (await command.until(r"--existing (\S+)"))[1]
            assert Path(connection_file).stat().st_mode & 0o777 == 0o600
            async with zmq_client(connection_file) as client:
                assert await run(client, "x += 1; print(x)") == "42\nok"
                assert await run(client, "1 / 0") == "error"
                seen = await output(agent, "print(x)", session="work")
                assert seen.startswith("42")
                assert CAME in seen
            # The command has disconnected as soon as the agent learns that nobody is there.
            async with asyncio.timeout(WAIT):
                while LEFT not in await output(agent, "print(x)", session="work"):
                    pass
            await output(agent, "1")
            await agent.call_tool("reset", {"session": "work"})
            await command.until("can't be used anymore: the connection to the kernel was closed")
            assert await command.process.wait() == 0
        assert not Path(connection_file).exists()
    async with attached(tmp_path) as command:
        await command.until("no MCP server with a session runs")


def test_the_socket_of_a_server_that_was_killed_is_removed(tmp_path: Path):
    killed, runs = socket_path(tmp_path, 1), socket_path(tmp_path, 2)
    bind_private(killed).close()
    with bind_private(runs):
        assert running_servers(tmp_path) == {2: runs}
    assert not killed.exists()


@pytest.mark.asyncio
async def test_it_bridges_the_address_of_an_executor(tmp_path: Path, mode: Mode):
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:
        async with executor.attach() as relay:
            async with attached(tmp_path, relay.url) as command:
                connection_file = (await command.until(r"--existing (\S+)"))[1]
                async with zmq_client(connection_file) as client:
                    assert await run(client, "y = 1; print('here')") == "here\nok"
            assert await command.process.wait() == 128 + signal.SIGINT
        assert (await executor.execute("print(y)")).text == "1"
        async with attached(tmp_path, relay.url) as command:
            await command.until("is not an address that")
