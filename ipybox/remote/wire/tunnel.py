"""Copies data between an HTTP/2 stream and a socket, in both directions, until one of them closes."""

import asyncio
import socket
from contextlib import suppress

from ipybox.remote.wire.connection import FRAME
from ipybox.remote.wire.stream import Stream, StreamClosedError


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
