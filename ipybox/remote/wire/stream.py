"""One stream of an HTTP/2 connection: buffers received data, sends as the windows allow, and can carry a socket."""

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ipybox.remote.wire.connection import Connection

#: Maximum bytes of a frame.
FRAME: Final = 64 << 10


class StreamClosedError(Exception):
    """The stream or its connection is closed."""


class Stream:
    """One stream, from `Connection.request` or `on_request` until both directions are closed.

    Args:
        path: The request's path.
        answered: Whether this end has made or answered the request. `send` answers it.
    """

    def __init__(self, connection: "Connection", number: int, path: str, *, answered: bool = True):
        self._connection = connection
        self.number = number
        self.path = path
        self._buffer = bytearray()
        #: Received bytes, including padding, in the buffer or returned by the last `receive`: not acknowledged yet.
        self._buffered = self._returned = 0
        self._changed = asyncio.Event()
        self._ended = False
        self._sending = True
        self._answered = answered
        self._accepted = False

    def accept(self) -> None:
        """Answers the peer's request, unless already answered."""
        if not self._answered:
            self._answered = True
            self._connection.do(self._connection.h2.send_headers, self.number, [(":status", "200")])

    async def accepted(self) -> None:
        """Waits until the peer answers; raises a StreamClosedError if it closes the stream instead."""
        while not self._accepted:
            if self._ended:
                raise StreamClosedError
            await self._change()

    async def receive(self) -> bytes:
        """Returns the data received since the last call, whose data it acknowledges; empty at the end."""
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
        """Sends data as the windows allow; raises a StreamClosedError if the peer stops reading."""
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
            await self._connection.writable.wait()

    def end(self) -> None:
        """Closes the sending direction."""
        if self._sending:
            self._sending = False
            self._connection.do(self._connection.h2.end_stream, self.number)

    def reset(self) -> None:
        """Closes both directions."""
        self._sending = False
        self.feed_end()
        self._connection.reset(self.number)

    def feed_data(self, data: bytes, size: int) -> None:
        """Buffers data; `size` includes padding. The window has been checked."""
        self._buffer += data
        self._buffered += size
        self._changed.set()

    def feed_answer(self) -> None:
        """Records that the peer has answered."""
        self._accepted = True
        self._changed.set()

    def feed_end(self, *, reset: bool = False) -> None:
        """Records that the peer stopped sending and, after a reset, reading."""
        self._ended = True
        if reset:
            self._sending = False
        self._changed.set()

    def wake(self) -> None:
        """Lets senders check the window again."""
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


async def tunnel(stream: Stream, sock: socket.socket) -> None:
    """Copies data both ways until one end closes, forwards the data already received, and closes both."""
    loop = asyncio.get_running_loop()
    other_direction = asyncio.create_task(_from_socket(stream, sock))
    try:
        with suppress(OSError):  # the other end of the socket is closed
            while data := await stream.receive():
                await loop.sock_sendall(sock, data)
    finally:
        other_direction.cancel()
        await asyncio.gather(other_direction, return_exceptions=True)
        stream.reset()
        sock.close()


async def _from_socket(stream: Stream, sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError, StreamClosedError):
        while data := await loop.sock_recv(sock, FRAME):
            await stream.send(data)
    # The peer still receives all data, and the reset lets both ends forget the stream.
    stream.end()
    stream.reset()
