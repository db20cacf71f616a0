"""The HTTP servers of the tool server: one for kernels and one for the application, each with its own tokens."""

import asyncio
import hmac
import logging
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping

from aiohttp import web
from aiohttp.typedefs import Middleware

from ipybox.guest.tools.protocol import RunReply
from ipybox.support.listen import is_local
from ipybox.tool_exec.admission import MAX_REQUEST_BYTES

logger = logging.getLogger(__name__)

#: Kernel clients keep their connections, so the server does not close idle ones. Seconds.
KEEPALIVE = 24 * 3600.0

#: Seconds that calls in progress get to end when the server stops.
SHUTDOWN_GRACE = 1.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def start_api(tokens: Collection[str], routes: Mapping[tuple[str, str], Handler]) -> web.AppRunner:
    """Returns a running HTTP server with these routes, without a listening socket; the tokens may change."""
    app = web.Application(middlewares=[_guard(tokens)], client_max_size=MAX_REQUEST_BYTES)
    for (method, path), handler in routes.items():
        app.router.add_route(method, path, handler)
    runner = web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,  # a disconnect cancels the call
        keepalive_timeout=KEEPALIVE,
        shutdown_timeout=SHUTDOWN_GRACE,
        auto_decompress=False,
    )
    await runner.setup()
    return runner


async def serve_connection(server: web.Server, connection: socket.socket) -> None:
    """Serves a connection that was accepted elsewhere; takes ownership of the socket."""
    try:
        await asyncio.get_running_loop().connect_accepted_socket(server, connection)
    except OSError as exc:
        logger.debug("a connection ended before it was served: %s", exc)
        connection.close()


def _guard(tokens: Collection[str]) -> Middleware:
    """Returns a middleware that accepts only requests with one of the tokens, and no requests of web pages."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if "Origin" in request.headers or not is_local(request.host):
            return web.json_response(RunReply(error="requests from web pages are refused"), status=403)
        presented = request.headers.get("Authorization", "").encode(errors="replace")
        for token in tokens:
            if hmac.compare_digest(presented, f"token {token}".encode()):
                return await handler(request)
        return web.json_response(RunReply(error="the request's token is missing or wrong"), status=401)

    return guard
