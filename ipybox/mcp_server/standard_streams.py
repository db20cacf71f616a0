"""Stdin and stdout of this process while they carry MCP messages.

Children and libraries find stdin empty, and what they print to stdout goes to stderr. Both streams may be pipes,
sockets, files or terminals, whose other end may be slow or gone. Their descriptors stay in blocking mode: other
processes may share them.
"""

import os
import select
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio.lowlevel
import anyio.to_thread

#: Bytes that one read returns at most; a pipe has no more by default.
MAX_READ = 1 << 16


class MessageInput:
    """Stdin, which one task reads.

    Args:
        fd: Its descriptor; the caller still owns it.
    """

    def __init__(self, fd: int):
        self._fd = fd
        mode = os.fstat(fd).st_mode
        #: Whether a read may block. Files and /dev/null never do, and an event loop can't wait for them.
        self._waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)

    async def read(self) -> bytes:
        """Returns available bytes as soon as there are some, or nothing at the end.

        Raises:
            OSError: If it can't be read.
        """
        # Not in a thread: handing a message over would take longer than reading it.
        await (anyio.wait_readable(self._fd) if self._waits else anyio.lowlevel.checkpoint())
        return os.read(self._fd, MAX_READ)


class MessageOutput:
    """Stdout, which one task at a time writes to.

    Args:
        fd: Its descriptor; the caller still owns it.
    """

    def __init__(self, fd: int):
        self._fd = fd

    async def write(self, data: bytes) -> None:
        """Writes all data.

        Raises:
            OSError: If it can't be written.
        """
        # If the descriptor is ready, so many bytes don't block. A thread would take longer than the write.
        if len(data) <= select.PIPE_BUF and select.select([], [self._fd], [], 0)[1]:
            data = data[os.write(self._fd, data) :]
        if data:
            await anyio.to_thread.run_sync(self._write, data)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._fd, left) :]


@contextmanager
def message_input() -> Generator[MessageInput]:
    """Yields stdin; children and libraries find it empty in this context."""
    with _diverted(0, lambda: os.open(os.devnull, os.O_RDONLY)) as fd:
        yield MessageInput(fd)


@contextmanager
def message_output() -> Generator[MessageOutput]:
    """Yields stdout; what children and libraries write to it in this context goes to stderr."""
    with _diverted(1, _stderr) as fd:
        yield MessageOutput(fd)


@contextmanager
def _diverted(number: int, replacement: Callable[[], int]) -> Generator[int]:
    """Yields another descriptor of a standard stream, whose own number means the replacement in this context."""
    original = os.dup(number)
    try:
        other = replacement()
        os.dup2(other, number)
        os.close(other)
        try:
            yield original
        finally:
            os.dup2(original, number)
    finally:
        os.close(original)


def _stderr() -> int:
    try:
        return os.dup(2)
    except OSError:  # it is closed
        return os.open(os.devnull, os.O_WRONLY)
