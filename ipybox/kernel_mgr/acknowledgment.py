"""Acknowledges soon what a WebSocket has received, for a sender whose next message waits for that.

With Nagle's algorithm, which srun and slurmstepd leave on, a small write waits until all before it was acknowledged.
The receiver's system does that after 40 ms, or with the next data that goes the other way. Most cells end with several
small messages, so that each cell would take 40 ms longer.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import aiohttp

#: Seconds after a message until something is sent the other way. The last message of a cell needs no acknowledgment: it
#: would hold up the next request in turn.
PAUSE = 0.001


async def acknowledge(
    websocket: aiohttp.ClientWebSocketResponse, received: asyncio.Event, expecting: Callable[[], bool]
) -> None:
    """Sends a pong soon after each message, until it is cancelled or the connection ends.

    An unsolicited pong is data that the acknowledgment travels with:
    https://www.rfc-editor.org/rfc/rfc6455#section-5.5.3

    Args:
        websocket: The WebSocket.
        received: Set when a message has arrived.
        expecting: Returns whether more messages are expected.
    """
    with suppress(aiohttp.ClientError, OSError):  # the connection is lost, which its reader learns
        while True:
            await received.wait()
            await asyncio.sleep(PAUSE)
            received.clear()
            if expecting():
                await websocket.pong()
