"""`ipybox attach`: it finds the session of a running MCP server, and clients use the address that it prints."""

import asyncio
import os
import re
import select
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ipybox.code_exec.lifecycle import CAME, LEFT
from ipybox.mcp_server.attach_socket import bind_private, running_servers, socket_path
from tests.code_exec.person import person_with
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


@pytest.mark.asyncio
async def test_a_client_uses_the_session_of_a_server(tmp_path: Path, mode: Mode):
    async with client_of(tmp_path, *mode.options, JUPYTER_RUNTIME_DIR=os.environ["JUPYTER_RUNTIME_DIR"]) as agent:
        await output(agent, "x = 41", session="work")
        async with attached(tmp_path, "other") as command:
            await command.until("no session named 'other' is running; running sessions: .*work")
            assert await command.process.wait() == 1
        async with attached(tmp_path, "work", "--server", "1") as command:
            await command.until(r"are running in .*: choose a process id with --server: \d+\n")
        async with attached(tmp_path, "work") as command:
            url, token = (await command.until(r"(http://\S+)/\?token=(\S+)")).groups()
            async with person_with(url, token) as person:
                await person.until("stream", await person.execute("x += 1; print(x)"), text="42\n")
                number = (await person.until("execute_input", await person.execute("1 / 0")))["content"][
                    "execution_count"
                ]
                reply = await person.until("execute_reply", status="error", execution_count=number)
                assert f"Cell In[{number}]" in re.sub(r"\x1b\[[\d;]*m", "", "".join(reply["content"]["traceback"]))
                seen = await output(agent, "print(x)", session="work")
                assert seen.startswith("42")
                assert CAME in seen
            async with asyncio.timeout(WAIT):
                while LEFT not in await output(agent, "print(x)", session="work"):
                    pass
            await output(agent, "1")
            await agent.call_tool("reset", {"session": "work"})
            await command.until("is no longer available: the connection to the kernel was closed")
            assert await command.process.wait() == 0
    async with attached(tmp_path) as command:
        await command.until("no MCP server with a session is running")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b'{"instructions": "x"}\n', "The session is no longer available: the MCP server has exited"),
        (b"", "the MCP server does not respond: .*(Connection reset|Broken pipe)"),
    ],
    ids=["later", "first"],
)
async def test_the_end_of_a_server_that_was_killed_is_told(tmp_path: Path, answer: bytes, message: str):
    with bind_private(socket_path(tmp_path, 1)) as listener:
        async with attached(tmp_path) as command:
            loop = asyncio.get_running_loop()
            (await loop.sock_accept(listener))[0].close()  # looks for running servers
            with (await loop.sock_accept(listener))[0] as connection:
                await asyncio.to_thread(select.select, [connection], [], [], WAIT)  # its request stays unread
                if answer:
                    connection.send(answer)
                    await command.until("Your programs can use the kernel until you press Ctrl-C")
            await command.until(message)


def test_the_socket_of_a_server_that_was_killed_is_removed(tmp_path: Path):
    killed, runs = socket_path(tmp_path, 1), socket_path(tmp_path, 2)
    bind_private(killed).close()
    with bind_private(runs):
        assert running_servers(tmp_path) == {2: runs}
    assert not killed.exists()
