"""An HTTP server for callers with tokens, which keeps each of them from using up the connections of the others.

A connection without a valid request belongs to nobody yet: their number and time are limited, and the oldest one makes
room. The first request names the caller, who has a reserve of the other connections.
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
from ipybox.support.listen import is_local
from ipybox.tool_exec.admission import DeniedError
from ipybox.tool_exec.dispatch import ToolCaller

logger = logging.getLogger(__name__)

#: Open connections of all callers together, and those that each caller gets even if others hold these.
MAX_CONNECTIONS = 256
CONNECTIONS_PER_CALLER = 32

#: Connections that have sent no request with a valid token, and their seconds.
MAX_UNHEARD = 256
UNHEARD_TIMEOUT = 10.0

#: Clients keep their connections, so the server does not close idle ones. Seconds.
KEEPALIVE = 24 * 3600.0

#: Answers a request of a caller, or raises a `DeniedError`.
Handler = Callable[[web.BaseRequest, ToolCaller], Awaitable[web.StreamResponse]]


class HTTPAPI(web.Server):
    """Answers requests for callers, by their tokens, and not for web pages; it has no listening socket.

    Args:
        callers: The callers by their tokens, which may change.
        handlers: What answers a request, by its method and path.
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
        #: Connections without a valid request, oldest first, and the token of each other one.
        self._unheard: dict[Any, asyncio.TimerHandle] = {}
        self._heard: dict[Any, str] = {}
        self._refused = False

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        """Limits the time until the first request, and closes the oldest connection without one if there are many."""
        super().connection_made(handler, transport)
        if len(self._unheard) >= MAX_UNHEARD:
            self._give_up(next(iter(self._unheard)))
        self._unheard[handler] = asyncio.get_running_loop().call_later(UNHEARD_TIMEOUT, self._give_up, handler)

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        """Forgets a connection."""
        super().connection_lost(handler, exc)
        self._heard.pop(handler, None)
        self._note_heard(handler)

    def _give_up(self, handler: Any) -> None:
        self._note_heard(handler)
        handler.force_close()

    def _note_heard(self, handler: Any) -> None:
        if (timer := self._unheard.pop(handler, None)) is not None:
            timer.cancel()

    def _admit(self, connection: Any, token: str) -> bool:
        """Returns whether a connection is among those that its caller may have."""
        if connection in self._heard:
            return True
        count = Counter(self._heard.values())[token]
        if count >= CONNECTIONS_PER_CALLER and len(self._heard) >= MAX_CONNECTIONS:
            if not self._refused:
                logger.warning("refused a connection of a kernel that has %d open; others are not logged", count)
                self._refused = True
            return False
        self._note_heard(connection)
        self._heard[connection] = token
        return True

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if "Origin" in request.headers or not is_local(request.host):
            return web.json_response(RunReply(error="requests from web pages are refused"), status=403)
        presented = request.headers.get("Authorization", "").encode(errors="replace")
        found = [token for token in self._callers if hmac.compare_digest(presented, f"token {token}".encode())]
        if not found:
            return web.json_response(RunReply(error="the request's token is missing or wrong"), status=401)
        if not self._admit(request.protocol, found[0]):
            error = RunReply(error="the kernel has too many open connections to the tool server")
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
