"""An HTTP server for callers with tokens, in which no caller can use up the connections of another.

A connection is unauthenticated until its first valid request. The number and lifetime of such connections are limited;
the oldest one makes room for a new one. Authenticated connections count towards their caller, which has a reserve.
"""

import asyncio
import hmac
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from aiohttp import web

from ipybox.guest.tools.protocol import RunReply
from ipybox.support.listen import NewConnections, is_local
from ipybox.tool_exec.admission import DeniedError
from ipybox.tool_exec.dispatch import ToolCaller

logger = logging.getLogger(__name__)

#: Maximum connections of all callers, and the number that each caller may open even if that maximum is reached.
MAX_CONNECTIONS = 256
CONNECTIONS_PER_CALLER = 32

#: Maximum unauthenticated connections, and the seconds until each is closed.
MAX_UNAUTHENTICATED = 256
AUTH_TIMEOUT = 10.0

#: Seconds until an idle connection is closed: long, because clients reuse their connections.
KEEPALIVE = 24 * 3600.0

#: Answers a caller's request, or raises a `DeniedError`.
Handler = Callable[[web.BaseRequest, ToolCaller], Awaitable[web.StreamResponse]]


class HTTPAPI(web.Server):
    """Answers requests from callers with tokens, and refuses web pages. It has no listening socket.

    Args:
        callers: The callers by token; the mapping may change.
        handlers: The handlers of requests by method and path.
    """

    def __init__(self, callers: Mapping[str, ToolCaller], handlers: Mapping[tuple[str, str], Handler]):
        super().__init__(
            self._answer,
            access_log=None,
            handler_cancellation=True,  # a disconnect cancels the call
            keepalive_timeout=KEEPALIVE,
            auto_decompress=False,
        )
        self._callers, self._handlers = callers, handlers
        self._unauthenticated = NewConnections(lambda handler: handler.force_close())
        #: The tokens of the authenticated connections.
        self._authenticated: dict[Any, str] = {}
        self._refused = False

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        """Limits the time until the first valid request; closes the oldest unauthenticated connection at the limit."""
        super().connection_made(handler, transport)
        self._unauthenticated.add(handler, MAX_UNAUTHENTICATED, AUTH_TIMEOUT)

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        """Removes a connection."""
        super().connection_lost(handler, exc)
        self._authenticated.pop(handler, None)
        self._unauthenticated.remove(handler)

    def _admit(self, connection: Any, token: str) -> bool:
        """Returns whether a connection is within its caller's limit, and counts it."""
        if connection in self._authenticated:
            return True
        count = Counter(self._authenticated.values())[token]
        if count >= CONNECTIONS_PER_CALLER and len(self._authenticated) >= MAX_CONNECTIONS:
            if not self._refused:
                logger.warning("refused a connection of a kernel that has %d open; others are not logged", count)
                self._refused = True
            return False
        self._unauthenticated.remove(connection)
        self._authenticated[connection] = token
        return True

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if "Origin" in request.headers or not is_local(request.host):
            return web.json_response(RunReply(error="requests from web pages are refused"), status=403)
        presented = request.headers.get("Authorization", "").encode(errors="replace")
        found = [token for token in self._callers if hmac.compare_digest(presented, f"token {token}".encode())]
        if not found:
            return web.json_response(RunReply(error="the request's token is missing or wrong"), status=401)
        if not self._admit(request.protocol, found[0]):
            problem = "the kernel has too many open connections to the tool server: use run_many for concurrent calls"
            error = RunReply(error=problem)
            return web.json_response(error, status=HTTPStatus.SERVICE_UNAVAILABLE, headers={"Connection": "close"})
        handler = self._handlers.get((request.method, request.path))
        if handler is None:
            return web.Response(status=404)
        caller = self._callers[found[0]]
        try:
            return await handler(request, caller)
        except DeniedError as exc:
            caller.recorder.denied("tool_server", [str(exc)])
            return web.json_response(RunReply(error=str(exc)), status=exc.status)
