"""Limits connections that have not sent a valid request yet, so that nobody can use up a server's connections."""

import asyncio
from collections.abc import Callable
from typing import Any


class NewConnections:
    """The new connections of a server, oldest first; `close` closes one that is late or makes room for another."""

    def __init__(self, close: Callable[[Any], object]):
        self._close = close
        self._timers: dict[Any, asyncio.TimerHandle] = {}

    def add(self, connection: Any, limit: int, timeout: float) -> None:
        """Adds a connection, which must be removed within `timeout` seconds; closes the oldest one at the limit."""
        if len(self._timers) >= limit:
            self._expire(next(iter(self._timers)))
        self._timers[connection] = asyncio.get_running_loop().call_later(timeout, self._expire, connection)

    def remove(self, connection: Any) -> None:
        """Removes a connection, unless it has been removed before."""
        if (timer := self._timers.pop(connection, None)) is not None:
            timer.cancel()

    def _expire(self, connection: Any) -> None:
        self.remove(connection)
        self._close(connection)
