"""A pair of pipes, or the standard streams of a process: reads in the event loop, and buffers what it writes."""

import asyncio
import os
from collections.abc import Callable
from typing import Final

#: Bytes that wait to be written until writers should wait, too.
WRITE_BUFFER: Final = 1 << 20


class Pipes(asyncio.Protocol):
    """Reads from one descriptor and writes to another, from `open` to `close`. It is the protocol of both transports.

    Args:
        on_data: Called with what was read.
        on_closed: Called when one of the pipes has ended, or this end has closed them.
    """

    def __init__(self, on_data: Callable[[bytes], None], on_closed: Callable[[], None]):
        self._on_data = on_data
        self._on_closed = on_closed
        self._reading: asyncio.ReadTransport | None = None
        self._writing: asyncio.WriteTransport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = 0
        self._written = asyncio.Event()
        #: Set when one of the pipes has ended, or this end has closed them.
        self.closed = asyncio.Event()

    async def open(self, read_fd: int, write_fd: int) -> None:
        """Starts to read; takes ownership of the descriptors.

        Raises:
            OSError, ValueError: If they are not pipes, sockets or terminals.
        """
        loop = asyncio.get_running_loop()
        write_file, read_file = os.fdopen(write_fd, "wb", 0), os.fdopen(read_fd, "rb", 0)
        try:
            self._writing, _ = await loop.connect_write_pipe(lambda: self, write_file)
            self._writing.set_write_buffer_limits(WRITE_BUFFER)
            self._reading, _ = await loop.connect_read_pipe(lambda: self, read_file)
        except BaseException:
            self.close()
            write_file.close()
            read_file.close()
            raise
        if self.closed.is_set():  # meanwhile
            self._close_transports()

    @property
    def buffered(self) -> int:
        """Bytes that wait to be written."""
        return 0 if self._writing is None else self._writing.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Writes data, or buffers it."""
        if self._writing is not None and not self.closed.is_set():
            self._writing.write(data)

    async def writable(self) -> None:
        """Waits until the peer has read enough, or never will."""
        await self._writable.wait()

    def close(self) -> None:
        """Stops to read, and closes the pipes when everything is written. Closing twice does nothing."""
        if self.closed.is_set():
            return
        self.closed.set()
        self._writable.set()
        self._close_transports()
        self._on_closed()

    def abort(self) -> None:
        """Closes the pipes immediately."""
        if self._writing is not None:
            self._writing.abort()
        self.close()

    async def wait_written(self) -> None:
        """Waits, after `close`, until everything is written, or nothing more can be."""
        if self._writing is not None:
            await self._written.wait()

    def data_received(self, data: bytes) -> None:
        """Passes on what was read."""
        self._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closes both pipes when one of them has ended; when both have, everything is written that could be."""
        self._lost += 1
        if self._lost == 2:
            self._written.set()
        self.close()

    def pause_writing(self) -> None:
        """Makes writers wait."""
        if not self.closed.is_set():
            self._writable.clear()

    def resume_writing(self) -> None:
        """Lets writers go on."""
        self._writable.set()

    def _close_transports(self) -> None:
        for transport in (self._reading, self._writing):
            if transport is not None:
                transport.close()
