"""Acknowledges soon what a WebSocket has received, for a sender whose next message waits for that.

With Nagle's algorithm, which srun and slurmstepd leave on, a small write waits until all before it was acknowledged.
The receiver's system does that after 40 ms, or with the next data that goes the other way. Most cells end with several
small messages, so that each cell would take 40 ms longer.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import aiohttp

from ipybox.support.tasks import TaskSet

#: Seconds after a message until something is sent the other way. The last message of a cell needs no acknowledgment: it
#: would hold up the next request in turn.
PAUSE = 0.001


class Acknowledgment:
    """Acknowledges the messages of one WebSocket, within a context.

    If other programs own the TCP connection, as `srun` does, an unsolicited pong is data that the acknowledgment
    travels with: https://www.rfc-editor.org/rfc/rfc6455#section-5.5.3

    Args:
        websocket: The WebSocket.
        relayed: Whether other programs own the TCP connection; if not, nothing is sent.
        expecting: Returns whether more messages are expected.
    """

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse, *, relayed: bool, expecting: Callable[[], bool]):
        self._websocket = websocket
        self._relayed = relayed
        self._expecting = expecting
        self._received = asyncio.Event()
        self._tasks = TaskSet()

    async def __aenter__(self) -> Self:
        if self._relayed:
            self._tasks.start(self._send_pongs())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.cancel()

    def note(self) -> None:
        """Notes that a message has arrived."""
        self._received.set()

    async def _send_pongs(self) -> None:
        with suppress(aiohttp.ClientError, OSError):  # the connection is lost, which its reader learns
            while True:
                await self._received.wait()
                await asyncio.sleep(PAUSE)
                self._received.clear()
                if self._expecting():
                    await self._websocket.pong()
