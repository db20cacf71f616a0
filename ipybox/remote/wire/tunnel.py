"""Joins a stream of HTTP/2 and a socket: what arrives at one goes to the other, until one of them ends."""

import asyncio
import socket
from contextlib import suppress

from ipybox.remote.wire.connection import FRAME
from ipybox.remote.wire.stream import Stream, StreamClosedError


async def tunnel(stream: Stream, sock: socket.socket) -> None:
    """Passes on both directions until one of them ends, and then closes both; what was received before is passed on."""
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
    # The peer gets all data in spite of the reset, and both ends then keep nothing of the stream.
    stream.end()
    stream.reset()
