"""An HTTP server whose connections nobody can use up: any program on this machine can connect."""

import asyncio
from typing import Any

from aiohttp import web

from ipybox.support.listen import NewConnections


class LimitedServer(web.Server):
    """Closes connections that are late with their first valid request, or too many.

    Args:
        limit: The number of connections without a valid request; the oldest one makes room for another.
        timeout: The seconds until each is closed, unless `admit` is called.
    """

    def __init__(self, handler: Any, limit: int, timeout: float, **options: Any):
        super().__init__(handler, access_log=None, **options)
        self._new, self._limit, self._timeout = NewConnections(lambda each: each.force_close()), limit, timeout

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        """Adds a connection."""
        super().connection_made(handler, transport)
        self._new.add(handler, self._limit, self._timeout)

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        """Removes a connection."""
        super().connection_lost(handler, exc)
        self._new.remove(handler)

    def admit(self, connection: Any) -> None:
        """Keeps a connection open, from its first valid request on."""
        self._new.remove(connection)
