"""The standard streams of an MCP server, for any kind of descriptor.

Both may be pipes, sockets, files or terminals, and the other end may be slow or gone. Their descriptors stay in
blocking mode, because other processes may share them.
"""

import os
import select
import stat
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import anyio
import anyio.lowlevel
import anyio.to_thread

#: Maximum bytes per read, which is a pipe's default capacity.
MAX_READ = 1 << 16


def input_reader(fd: int) -> Callable[[], Awaitable[bytes]]:
    """Returns a function that reads available bytes, or nothing at the end, for one task; it may raise an OSError."""
    mode = os.fstat(fd).st_mode
    # Files and /dev/null never block, and an event loop can't wait for them.
    waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)

    async def read() -> bytes:
        # A thread would take longer.
        await (anyio.wait_readable(fd) if waits else anyio.lowlevel.checkpoint())
        return os.read(fd, MAX_READ)

    return read


async def write_all(fd: int, data: bytes) -> None:
    """Writes all data, for one task at a time; raises an OSError if that fails."""
    # If the descriptor is ready, writing so little does not block, and is faster than a thread.
    if len(data) <= select.PIPE_BUF and select.select([], [fd], [], 0)[1]:
        data = data[os.write(fd, data) :]
    if data:
        await anyio.to_thread.run_sync(_write, fd, data)


def _write(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


@contextmanager
def standard_streams() -> Generator[tuple[int, int]]:
    """Yields stdin and stdout. Meanwhile, children and libraries find stdin empty, and their output goes to stderr."""
    empty = os.open(os.devnull, os.O_RDONLY)
    try:
        stderr = os.dup(2)
    except OSError:  # it is closed
        stderr = os.open(os.devnull, os.O_WRONLY)
    with _diverted(0, empty) as stdin, _diverted(1, stderr) as stdout:
        yield stdin, stdout


@contextmanager
def _diverted(number: int, other: int) -> Generator[int]:
    """Yields a duplicate of a standard stream; inside the context, the stream's own number refers to `other`."""
    original = os.dup(number)
    os.dup2(other, number)
    os.close(other)
    try:
        yield original
    finally:
        os.dup2(original, number)
        os.close(original)
