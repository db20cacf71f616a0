"""Ends child processes with their groups, and keeps their last lines of stderr for messages."""

import asyncio
import codecs
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from ipybox.support.printable import printable
from ipybox.support.signals import signal_group

#: Maximum lines that are kept, and characters per line.
MAX_LINES = 20
MAX_LENGTH = 500

#: Seconds for a child to end after SIGTERM.
TERMINATE_GRACE = 2.0


async def end_group(process: asyncio.subprocess.Process, timeout: float) -> int:
    """Waits for a process group leader that was asked to exit, and ends its group; returns its exit status.

    The group gets SIGTERM after `timeout` seconds.
    """
    for wait, number in ((timeout, signal.SIGTERM), (TERMINATE_GRACE, signal.SIGKILL)):
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await process.wait()
            break
        signal_group(process.pid, number)
    signal_group(process.pid, signal.SIGKILL)  # it may have left processes in its group
    return await process.wait()


@dataclass(eq=False)
class StderrLines:
    """Reads a pipe until `close`, or until all holders have closed its other end.

    With asyncio's own pipe, a process would count as running until every holder of the pipe has ended.

    Args:
        log: Called with each line, without control characters and cut to `MAX_LENGTH` characters.
        echo: Whether all text also goes to this process's stderr.
    """

    log: Callable[[str], object]
    echo: bool = False
    _transport: asyncio.ReadTransport | None = None
    _reading: asyncio.Task[None] | None = None
    _lines: deque[str] = field(default_factory=partial(deque[str], maxlen=MAX_LINES))
    _unended: str = ""

    @property
    def last(self) -> tuple[str, ...]:
        """The last lines, without control characters, each cut to `MAX_LENGTH` characters."""
        return (*self._lines, self._unended) if self._unended else tuple(self._lines)

    async def open(self) -> int:
        """Returns the descriptor for the child; the caller closes it after starting the child."""
        read_end, write_end = os.pipe()
        reader = asyncio.StreamReader()
        try:
            self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                partial(asyncio.StreamReaderProtocol, reader), os.fdopen(read_end, "rb")
            )
        except BaseException:
            os.close(write_end)
            raise
        self._reading = asyncio.create_task(self._read(reader))
        return write_end

    async def settled(self, timeout: float) -> None:
        """Waits until the end of the pipe, at most `timeout` seconds."""
        assert self._reading is not None
        await asyncio.wait({self._reading}, timeout=timeout)

    async def close(self) -> None:
        """Stops reading."""
        if self._reading is not None and self._transport is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
            self._transport.close()
            await asyncio.sleep(0)  # it closes its descriptor in the next turn of the loop

    async def _read(self, reader: asyncio.StreamReader) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while chunk := await reader.read(65536):
            text = printable(decoder.decode(chunk), lines=True)
            if self.echo:
                print(text, end="", file=sys.stderr, flush=True)
            *lines, unended = (self._unended + text).split("\n")
            for line in lines:
                self._receive(line[:MAX_LENGTH])
            self._unended = unended[:MAX_LENGTH]

    def _receive(self, line: str) -> None:
        self._lines.append(line)
        self.log(line)
