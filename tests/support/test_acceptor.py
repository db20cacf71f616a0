"""Ports that go on to answer: without free descriptors, and without the event loop that opened them."""

import asyncio
import os
import socket
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ipybox.kernel_mgr.client import KernelClient
from ipybox.kernel_mgr.server import KernelGateway
from ipybox.support.acceptor import Acceptor
from ipybox.support.listen import listen
from tests.conftest import Mode
from tests.servers import ROOT, WAIT

#: Opens a port, then runs out of descriptors until it gets a line. Prints the port, log messages, and what it leaves.
APPLICATION = """
import asyncio, concurrent.futures.thread, logging, os, resource, sys
from ipybox.kernel_mgr.server import KernelGateway
from ipybox.tool_exec.server import ToolServer

class Messages(logging.Handler):
    def emit(self, record):
        print("LOG", record.getMessage(), flush=True)

def files():
    return len(os.listdir("/proc/self/fd"))

async def main(name):
    component = ToolServer(port=0) if name == "tool_server" else KernelGateway(port=0, sandbox=name == "sandbox")
    before = files()
    async with component:
        print("PORT", component.port, flush=True)
        logging.getLogger().addHandler(Messages(logging.WARNING))
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        taken = []
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            print("FULL", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for fd in taken:
            os.close(fd)
        print("FREE", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    print("LEFT", files() - before, flush=True)

asyncio.run(main(sys.argv[1]))
"""


class Application:
    def __init__(self, process: asyncio.subprocess.Process):
        self._process = process

    async def until(self, start: str) -> str:
        """Returns the rest of the next line that starts with this."""
        assert self._process.stdout is not None
        async with asyncio.timeout(WAIT):
            while line := (await self._process.stdout.readline()).decode().strip():
                if line.startswith(start):
                    return line.removeprefix(start).strip()
        raise AssertionError(f"the application ended before it printed {start}")

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")


@asynccontextmanager
async def application(component: str, directory: Path) -> AsyncGenerator[Application]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", APPLICATION, component),
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Application(process)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


@asynccontextmanager
async def request(port: int) -> AsyncGenerator[asyncio.StreamReader]:
    """Makes a request without a token, and yields what reads the answer."""
    reader, writer = await asyncio.open_connection("localhost", port)
    writer.write(b"GET /api/kernels HTTP/1.1\r\nHost: localhost\r\n\r\n")
    yield reader
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("component", ["plain", "sandbox", "tool_server"])
async def test_a_port_answers_again_once_there_are_descriptors(tmp_path: Path, component: str):
    async with application(component, tmp_path) as running:
        port = int(await running.until("PORT"))
        await running.until("FULL")
        async with request(port) as answer:
            await running.until("LOG")
            running.go_on()
            await running.until("FREE")
            async with asyncio.timeout(WAIT), request(port) as other_answer:
                assert b" 401 " in await other_answer.readline()
                assert b" 401 " in await answer.readline()
        running.go_on()
        assert await running.until("LEFT") == "0"


def test_a_gateway_answers_while_the_loop_that_started_it_does_not_run(tmp_path: Path, mode: Mode):
    loop = asyncio.new_event_loop()
    gateway = KernelGateway(port=0, working_dir=tmp_path, sandbox=mode.sandbox)
    loop.run_until_complete(gateway.start())

    async def execute() -> str | None:
        assert gateway.port is not None
        async with asyncio.timeout(WAIT), KernelClient(port=gateway.port, images_dir=tmp_path) as client:
            return (await client.execute("1 + 1")).text

    try:
        assert asyncio.run(execute()) == "2"
    finally:
        loop.run_until_complete(gateway.stop())
        loop.close()


def test_stopping_closes_the_port_also_while_nobody_connects():
    listener = listen("localhost", 0)
    address = listener.getsockname()[:2]
    accepted: list[socket.socket] = []
    arrived = threading.Event()

    def take(connection: socket.socket) -> None:
        assert not connection.getblocking()
        accepted.append(connection)
        arrived.set()

    acceptor = Acceptor(listener, take, name="ipybox-port")
    with socket.create_connection(address):
        assert arrived.wait(WAIT)
        accepted.pop().close()
    acceptor.stop()
    acceptor.stop()
    acceptor.join(WAIT)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    assert not any(thread.name == "ipybox-port" for thread in threading.enumerate())


def test_a_port_that_another_process_has_shut_down_is_closed():
    listener = listen("localhost", 0)
    accepted: list[socket.socket] = []
    acceptor = Acceptor(listener, accepted.append, name="ipybox-port")
    with listener.dup() as other:
        other.shutdown(socket.SHUT_RDWR)
    acceptor.join(WAIT)
    assert (listener.fileno(), accepted) == (-1, [])
    acceptor.stop()
