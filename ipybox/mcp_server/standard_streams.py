"""Stdin and stdout of this process while they carry MCP messages.

Children and libraries find stdin empty, and what they print to stdout goes to stderr. Both streams may be pipes,
sockets, files or terminals, whose other end may be slow or gone. Their descriptors stay in blocking mode: other
processes may share them.
"""

import io
import os
import select
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from typing import Any

import anyio.to_thread


class MessageInput(io.RawIOBase):
    """Stdin whose reader on another thread can be woken, and then gets the end of file.

    Args:
        fd: Its descriptor; the caller still owns it.
    """

    def __init__(self, fd: int):
        self._fd = fd
        self._woken, self._wake = os.pipe()

    def readable(self) -> bool:
        """Reports that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads available bytes, and blocks until there are some; returns the number of bytes."""
        # Not poll(2), which supports no terminals on macOS.
        ready, _, _ = select.select([self._fd, self._woken], [], [])
        return 0 if self._woken in ready else os.readv(self._fd, [buffer])

    def wake(self) -> None:
        """Makes this the end of stdin. Waking twice does nothing."""
        if self._wake >= 0:
            os.close(self._wake)
            self._wake = -1

    def close(self) -> None:
        """Closes the descriptors that are not stdin itself."""
        if not self.closed:
            self.wake()
            os.close(self._woken)
        super().close()


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
            self._write(data)
        else:
            await anyio.to_thread.run_sync(self._write, data)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._fd, left) :]


@contextmanager
def message_input() -> Generator[MessageInput]:
    """Yields stdin; children and libraries find it empty in this context."""
    with _diverted(0, lambda: os.open(os.devnull, os.O_RDONLY)) as fd, closing(MessageInput(fd)) as stdin:
        yield stdin


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
