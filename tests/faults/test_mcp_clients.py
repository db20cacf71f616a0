"""The MCP server of ipybox, whose client goes away or does not read, and which is stopped for a while itself."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.conftest import Fifo, Mode, both_modes
from tests.faults.processes import stopped
from tests.mcp_server.test_server import INITIALIZE
from tests.servers import WAIT

#: More than a pipe holds.
LONG = 300_000


@dataclass
class Peer:
    """A client that does what a test wants, and no more."""

    process: asyncio.subprocess.Process
    _ids: "count[int]" = field(default_factory=lambda: count(2))

    async def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        await self.process.stdin.drain()

    async def begin(self, code: str, **arguments: Any) -> int:
        """Asks for a cell, and returns the id of the request."""
        number = next(self._ids)
        call = {"name": "execute_ipython_cell", "arguments": {"code": code, **arguments}}
        await self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call})
        return number

    async def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        async with asyncio.timeout(2 * WAIT):
            return json.loads(await self.process.stdout.readline())

    async def output(self, code: str, **arguments: Any) -> str:
        number = await self.begin(code, **arguments)
        answer = await self.receive()
        assert answer["id"] == number
        return text_of(answer)


def text_of(answer: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in answer["result"]["content"])


@asynccontextmanager
async def peer(workspace: Path, mode: Mode) -> AsyncGenerator[Peer]:
    """Starts a server; whatever a test does to it, it must not leave a process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ipybox", "--workspace", str(workspace), *mode.options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    client = Peer(process)
    try:
        await client.send(INITIALIZE)
        assert (await client.receive())["id"] == INITIALIZE["id"]
        for session in ("default", "other"):
            assert await client.output("kept = 'kept'; kept", session=session) == "'kept'"
        yield client
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


def sleeps(fifo: Fifo) -> str:
    return f"import time\nopen({str(fifo.path)!r}, 'w').write('begun\\n')\ntime.sleep(600)"


@both_modes
@pytest.mark.parametrize("how", ["stdin_closed", "gone"])
async def test_a_server_whose_client_goes_ends_with_all_its_cells(tmp_path: Path, mode: Mode, how: str, fifo: Fifo):
    async with peer(tmp_path, mode) as client:
        children = servers.descendants(client.process.pid)
        await client.begin(sleeps(fifo))
        await fifo.until("begun")
        await client.begin("'waits for its turn'")
        assert client.process.stdin is not None
        assert client.process.stdout is not None
        client.process.stdin.close()
        if how == "gone":
            transport: Any = client.process.stdout
            transport._transport.close()
        async with asyncio.timeout(WAIT):
            await client.process.wait()
        assert await servers.until_dead(children, WAIT) == set()


async def test_a_client_that_does_not_read_gets_all_answers_when_it_does(tmp_path: Path, mode: Mode, fifo: Fifo):
    done = f"open({str(fifo.path)!r}, 'w').write('done\\n')"
    async with peer(tmp_path, mode) as client:
        assert client.process.stdout is not None
        transport: Any = client.process.stdout
        transport._transport.pause_reading()
        wanted = {await client.begin(f"print({n} * {LONG})", max_output_chars=2 * LONG): n for n in map(str, range(4))}
        wanted[await client.begin(f"{done}; kept", session="other")] = "'kept'"
        await fifo.until("done")  # nobody waits for the client
        transport._transport.resume_reading()
        for _ in range(5):
            answer = await client.receive()
            expected = wanted.pop(answer["id"])
            assert text_of(answer) == (expected if "kept" in expected else str(int(expected) * LONG))


@pytest.mark.parametrize(("stdout", "reason"), [("full", "No space left on device"), ("closed", "Broken pipe")])
async def test_a_server_that_can_not_answer_ends_and_says_why(tmp_path: Path, mode: Mode, stdout: str, reason: str):
    """Its stdin stays open: the client has not gone, or another process holds the pipe."""
    read_end, write_end = (None, os.open("/dev/full", os.O_WRONLY)) if stdout == "full" else os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ipybox", "--workspace", str(tmp_path), *mode.options),
        stdin=asyncio.subprocess.PIPE,
        stdout=write_end,
        stderr=asyncio.subprocess.PIPE,
    )
    for fd in (read_end, write_end):
        if fd is not None:
            os.close(fd)
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
    async with asyncio.timeout(2 * WAIT):
        errors = await process.stderr.read()
        assert await process.wait() == 1
    process.stdin.close()
    assert errors.decode().startswith("ipybox: can't answer the MCP client: ")
    assert reason in errors.decode()
    assert errors.count(b"\n") == 1


@pytest.mark.parametrize("moment", ["idle", "cell"])
async def test_a_server_that_is_stopped_for_a_while_loses_nothing(tmp_path: Path, mode: Mode, moment: str, fifo: Fifo):
    """As by Ctrl-Z and `fg`: the time limit of the cell passes meanwhile, but the answer is there."""
    code = f"open({str(fifo.path)!r}, 'w').write('begun\\n'); import time; time.sleep(0.5); 41 + 1"
    async with peer(tmp_path, mode) as client:
        pid = client.process.pid
        if moment == "cell":
            number = await client.begin(code, timeout=1)
            await fifo.until("begun")
            with stopped(pid):
                await asyncio.sleep(3)  # what is tested: the time that passes
        else:
            with stopped(pid):
                number = await client.begin(code)
                await asyncio.sleep(0.5)
        answer = await client.receive()
        assert (answer["id"], text_of(answer)) == (number, "42")
        for session in ("default", "other"):
            assert await client.output("kept", session=session) == "'kept'"
        os.kill(pid, signal.SIGTERM)
        async with asyncio.timeout(WAIT):
            await client.process.wait()
