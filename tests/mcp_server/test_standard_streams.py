"""Messages are read from whatever stdin is; answers are written to whatever stdout is, and nothing else is."""

import asyncio
import contextlib
import io
import os
import select
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from ipybox.mcp_server.standard_streams import input_reader, write_all
from tests.servers import WAIT

#: What a process prints around and within the context, in several ways.
PRINTED = """
import asyncio, os, sys
from ipybox.mcp_server.standard_streams import standard_streams, write_all

async def main():
    with standard_streams() as (_, stdout):
        print("library", flush=True)
        os.system("echo child")
        await write_all(stdout, b"message\\n")

asyncio.run(main())
print("afterwards", flush=True)
"""


@pytest.fixture
def pipe() -> Generator[tuple[int, int]]:
    read_end, write_end = os.pipe()
    yield read_end, write_end
    os.close(read_end)
    os.close(write_end)


@pytest.mark.parametrize("size", [1, select.PIPE_BUF, 1 << 20], ids=["byte", "what a ready pipe takes", "more"])
async def test_a_reader_that_waits_does_not_hold_up_the_event_loop(pipe: tuple[int, int], size: int):
    read_end, write_end = pipe
    earlier = 0
    while select.select([], [write_end], [], 0)[1]:  # until it is full
        earlier += os.write(write_end, b"." * select.PIPE_BUF)
    data = os.urandom(size)

    writing = asyncio.create_task(write_all(write_end, data))
    done, _ = await asyncio.wait([writing], timeout=0.1)
    assert not done

    arrived = b""
    while len(arrived) < earlier + size:
        arrived += await asyncio.to_thread(os.read, read_end, 1 << 16)
    assert arrived[earlier:] == data
    await asyncio.wait_for(writing, WAIT)


@pytest.mark.parametrize("kind", ["pipe", "socket", "terminal"])
async def test_waiting_for_stdin_does_not_hold_up_the_event_loop(kind: str):
    with contextlib.ExitStack() as stack:
        ours, theirs = (stack.enter_context(end) for end in _connected(kind))
        reading = asyncio.ensure_future(input_reader(theirs.fileno())())
        done, _ = await asyncio.wait([reading], timeout=0.1)
        assert not done
        ours.write(b"message\n")
        assert await asyncio.wait_for(reading, WAIT) == b"message\n"


@pytest.mark.parametrize("kind", ["pipe", "socket", "file", "nothing"])
async def test_stdin_ends(kind: str, tmp_path: Path):
    with contextlib.ExitStack() as stack:
        if kind == "nothing":
            theirs = stack.enter_context(io.FileIO(os.devnull))
        elif kind == "file":
            (tmp_path / "messages").write_bytes(b"message\n")
            theirs = stack.enter_context(io.FileIO(tmp_path / "messages"))
        else:
            ours, theirs = (stack.enter_context(end) for end in _connected(kind))
            ours.write(b"message\n")
            ours.close()
        read = input_reader(theirs.fileno())
        if kind != "nothing":
            assert await asyncio.wait_for(read(), WAIT) == b"message\n"
        assert await asyncio.wait_for(read(), WAIT) == b""


def _connected(kind: str) -> tuple[io.FileIO, io.FileIO]:
    """Returns two unbuffered files: what is written to the first arrives at the second."""
    match kind:
        case "pipe":
            arriving, sending = os.pipe()
        case "socket":
            arriving, sending = (end.detach() for end in socket.socketpair())
        case _:
            sending, arriving = os.openpty()
    return io.FileIO(sending, "wb"), io.FileIO(arriving, "rb")


async def test_a_reader_that_is_gone_is_an_error():
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        with pytest.raises(BrokenPipeError):
            await write_all(write_end, b"answer\n")
    finally:
        os.close(write_end)


def test_only_messages_are_written_to_stdout():
    done = subprocess.run([sys.executable, "-c", PRINTED], capture_output=True, text=True, timeout=WAIT, check=True)
    assert (done.stdout, done.stderr) == ("message\nafterwards\n", "library\nchild\n")
