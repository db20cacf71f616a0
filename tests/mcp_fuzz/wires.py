"""Ways to send anything at all to a server, and to get what it says."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol


class Wire(Protocol):
    """A connection to a server that runs as a process of its own."""

    #: The id of the process.
    pid: int

    async def send(self, messages: Iterable[bytes]) -> None:
        """Sends messages, in order if the transport has one."""
        ...

    async def receive(self) -> bytes:
        """Returns the next message of the server; empty if it has closed the connection."""
        ...


class StdioWire:
    """Lines on stdin and stdout."""

    def __init__(self, process: asyncio.subprocess.Process):
        assert process.stdin
        assert process.stdout
        self.pid = process.pid
        self._stdin = process.stdin
        self._stdout = process.stdout

    async def send(self, messages: Iterable[bytes]) -> None:
        for message in messages:
            self._stdin.write(message + b"\n")
            await self._stdin.drain()

    async def receive(self) -> bytes:
        return await self._stdout.readline()


@asynccontextmanager
async def stdio(workspace: Path, log: Path, env: Mapping[str, str], *options: str) -> AsyncGenerator[StdioWire]:
    """Runs a server whose stderr becomes a file; it must end well when its stdin ends."""
    command = [sys.executable, "-m", "ipybox.mcp_server", "--workspace", str(workspace), *options]
    pipe = asyncio.subprocess.PIPE
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=stderr, env=env, limit=1 << 28
        )
    assert process.stdin
    assert process.stdout
    try:
        yield StdioWire(process)
        process.stdin.close()
        async with asyncio.timeout(30):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
