"""One stream of an HTTP/2 connection: it buffers what it receives, and sends as the windows allow."""

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipybox.remote.wire.connection import Connection


class StreamClosedError(Exception):
    """The stream, or its connection, is closed."""


class Stream:
    """One stream, between `Connection.request` or `on_request` and its end in both directions.

    Args:
        path: What it connects to.
        answered: Whether this end has answered the request, or made it. `send` answers it.
    """

    def __init__(self, connection: "Connection", number: int, path: str, *, answered: bool = True):
        self._connection = connection
        self.number = number
        self.path = path
        self._buffer = bytearray()
        #: Received bytes, with padding, that the reader has not acknowledged: those in the buffer, and those returned.
        self._buffered = self._returned = 0
        self._changed = asyncio.Event()
        self._ended = False
        self._sending = True
        self._answered = answered
        self._accepted = False

    def accept(self) -> None:
        """Answers the request of the peer, unless it was answered."""
        if not self._answered:
            self._answered = True
            self._connection.do(self._connection.h2.send_headers, self.number, [(":status", "200")])

    async def accepted(self) -> None:
        """Waits until the peer answers; raises a StreamClosedError if it never will."""
        while not self._accepted:
            if self._ended:
                raise StreamClosedError
            await self._change()

    async def receive(self) -> bytes:
        """Returns what was received since the last call, at the end nothing. That call's data then counts as read."""
        if self._returned:
            self._connection.do(self._connection.h2.acknowledge_received_data, self._returned, self.number)
            self._returned = 0
        while not self._buffer and not self._ended:
            await self._change()
        data = bytes(self._buffer)
        self._buffer.clear()
        self._returned, self._buffered = self._buffered, 0
        return data

    async def send(self, data: bytes) -> None:
        """Sends data as the windows allow; raises a StreamClosedError if the peer reads no more."""
        self.accept()
        view = memoryview(data)
        while view:
            size = min(len(view), self._connection.sendable(self)) if self._sending else -1
            if size < 0:
                raise StreamClosedError
            if size == 0:
                await self._change()
                continue
            self._connection.do(self._connection.h2.send_data, self.number, bytes(view[:size]))
            view = view[size:]
            await self._connection.writable()

    def end(self) -> None:
        """Sends the end of this side."""
        if self._sending:
            self._sending = False
            self._connection.do(self._connection.h2.end_stream, self.number)

    def reset(self) -> None:
        """Ends both sides."""
        self._sending = False
        self.feed_end()
        self._connection.reset(self.number)

    def feed_data(self, data: bytes, size: int) -> None:
        """Buffers data, of `size` bytes with padding. The window has been checked."""
        self._buffer += data
        self._buffered += size
        self._changed.set()

    def feed_answer(self) -> None:
        """Records that the peer has answered."""
        self._accepted = True
        self._changed.set()

    def feed_end(self, *, reset: bool = False) -> None:
        """Records that the peer sends no more, and after a reset also reads no more."""
        self._ended = True
        if reset:
            self._sending = False
        self._changed.set()

    def wake(self) -> None:
        """Lets senders look for more room."""
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
