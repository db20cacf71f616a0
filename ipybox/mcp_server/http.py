"""Streamable HTTP for the MCP server: which requests are accepted, and how they end.

    client ── uvicorn ── TokenMiddleware ── the SDK's application ── MCPServer
              sockets    token              Host, Origin, bodies,
                         ends               MCP sessions

A client with the token may do everything that ipybox can do. `Host` and `Origin` are checked in addition, so that web
pages can't even guess tokens. If a client disconnects during a request, the request is cancelled, as 2026-07-28
requires. Earlier revisions would let it run on; but without an event store, which nothing here needs, no client could
get its result. https://modelcontextprotocol.io/specification/2025-11-25/basic/transports
"""

import asyncio
import hmac
import ipaddress
import re
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import psutil
import uvicorn
from mcp.server import mcpserver
from mcp.server.context import CallNext, ServerRequestContext
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ipybox.support.listen import listen
from ipybox.support.tokens import new_token, publish_token

PATH = "/mcp"

#: The path of the metrics, in the format of Prometheus.
METRICS_PATH = "/metrics"

#: Limit of concurrent MCP sessions, or `max_sessions` if that is higher, and seconds without a request after which one
#: ends. A client that returns after that starts a new MCP session; kernels are not affected.
MAX_CLIENTS = 64
IDLE_TIMEOUT = 30 * 60

#: Concurrent connections of a client.
CONNECTIONS_PER_CLIENT = 8

#: Bytes of a request: of any request, and of an upload of 64 MiB in base64.
MAX_REQUEST = 4 << 20
MAX_UPLOAD = 96 << 20

#: Seconds that connections have at the end to receive pending data.
_LINGER = 1

#: A given token must match this: the characters are those of RFC 6750, and the length prevents guessing.
_TOKEN = re.compile(r"[\w.~+/-]{16,}=*", re.ASCII)

#: The key of a request's `HTTPExchange` in its ASGI scope.
_EXCHANGE = "ipybox.exchange"

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class HTTPServerInfo:
    """A listening server.

    Attributes:
        url: The address of its endpoint.
        token: The token that requests need, as `Authorization: Bearer <token>`.
        token_file: The file with the token, readable by the same user only, until the server ends.
        beyond_machine: Whether other machines can reach it, unencrypted.
        serving: Ends when the server does.
    """

    url: str
    token: str
    token_file: Path
    beyond_machine: bool
    serving: asyncio.Task[None]


@dataclass(frozen=True)
class HTTPLimits:
    """What a server accepts.

    Attributes:
        clients: Number of concurrent MCP sessions.
        connections: Number of concurrent connections.
        request: Bytes of the largest request.
    """

    clients: int
    connections: int
    request: int

    @classmethod
    def of(cls, kernel_sessions: int, request: int) -> "HTTPLimits":
        """Returns the limits of a server with so many kernel sessions."""
        clients = max(MAX_CLIENTS, kernel_sessions)
        return cls(clients, clients * CONNECTIONS_PER_CLIENT, request)


#: Returns the metrics and the type of their content, for the types that a client accepts.
Exposition = Callable[[str], tuple[bytes, str]]


@asynccontextmanager
async def listening(
    server: mcpserver.MCPServer[Any],
    host: str,
    port: int,
    token: str | None,
    limits: HTTPLimits,
    metrics: Exposition,
) -> AsyncGenerator[HTTPServerInfo]:
    """Serves while the context is open; its end cancels requests in progress.

    Args:
        server: Handles the requests.
        host: A name or address of this machine.
        port: A port, or 0 for any free one.
        token: The token that requests need; None for a random one.
        limits: What the server accepts.
        metrics: Returns the metrics, which a route of their own serves.

    Raises:
        OSError: If it can't listen on this address.
        ValueError: If the token is too short or has characters that are not allowed.
    """
    if token is None:
        token = new_token()
    elif not _TOKEN.fullmatch(token):
        raise ValueError("the token must have 16 or more of the characters A-Z a-z 0-9 - . _ ~ + /")
    with listen(host, port) as listener:
        address, port = listener.getsockname()[:2]
        server.middleware.append(_until_client_goes)
        accepted = security(host, address)
        _serve_metrics(server, metrics, accepted)
        app = server.streamable_http_app(
            streamable_http_path=PATH,
            max_request_body_size=limits.request,
            session_idle_timeout=IDLE_TIMEOUT,
            max_sessions=limits.clients,
            transport_security=accepted,
        )
        gate = TokenMiddleware(app, token)
        web = _Uvicorn(_config(gate, limits.connections))
        token_file = publish_token("mcp-server", port, token)
        serving = asyncio.create_task(web.serve([listener]))
        name = f"[{host}]" if ":" in host else host
        beyond_machine = not ipaddress.ip_address(address).is_loopback
        try:
            yield HTTPServerInfo(f"http://{name}:{port}{PATH}", token, token_file, beyond_machine, serving)
        finally:
            gate.close()
            web.should_exit = True
            await asyncio.wait([serving])
            token_file.unlink(missing_ok=True)


class TokenMiddleware:
    """Accepts requests with the token, and cancels them when it is closed."""

    def __init__(self, app: ASGIApp, token: str):
        self._app = app
        self._token = token.encode()
        self._exchanges: set[HTTPExchange] = set()
        self._closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request (ASGI)."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if (refusal := self._refusal(scope)) is not None:
            return await refusal(scope, receive, send)
        scope[_EXCHANGE] = exchange = HTTPExchange(receive, send)
        self._exchanges.add(exchange)
        try:
            with exchange.ends():
                await self._app(scope, exchange.receive, exchange.send)
            await exchange.complete(scope)
        except anyio.ClosedResourceError:
            # The SDK acknowledges a notification, but then has no session to deliver it to.
            if not exchange.is_complete:
                raise
        finally:
            self._exchanges.discard(exchange)
        return None

    def close(self) -> None:
        """Ends all requests, and rejects new ones."""
        self._closed = True
        for exchange in self._exchanges:
            exchange.end()

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        scheme, _, presented = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return _unauthorized("Bearer", "this server needs a token: Authorization: Bearer <token>")
        if not hmac.compare_digest(presented.strip().encode(errors="replace"), self._token):
            return _unauthorized('Bearer error="invalid_token"', "this is not the token of this server")
        return _stopping() if self._closed else None


class HTTPExchange:
    """A request, its response, and the work that ends with them."""

    def __init__(self, receive: Receive, send: Send):
        self._receive = receive
        self._send = send
        self._started = False
        #: Whether the whole response was sent, or the client is gone.
        self.is_complete = False
        self._scopes: set[anyio.CancelScope] = set()

    @contextmanager
    def ends(self) -> Generator[None]:
        """Cancels the work in this context, but nothing outside of it, if the request ends early."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)

    def end(self) -> None:
        """Ends the request early."""
        for scope in self._scopes:
            scope.cancel()

    async def receive(self) -> Message:
        """Receives a part of the request, and ends the request if the client is gone."""
        message = await self._receive()
        if message["type"] == "http.disconnect" and not self.is_complete:
            self.is_complete = True
            self.end()
        return message

    async def send(self, message: Message) -> None:
        """Sends a part of the response; drops data after its end."""
        if self.is_complete:
            return
        self._started = True
        self.is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def complete(self, scope: Scope) -> None:
        """Completes a response that ended early."""
        if self.is_complete:
            return
        if self._started:
            await self.send({"type": "http.response.body"})
        else:
            await _stopping()(scope, self._receive, self._send)


async def _until_client_goes(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
    """Ends the handling of a request with its HTTP request (middleware of the SDK's server).

    In the sessions of earlier revisions, the handling is not in the task of the HTTP request.
    """
    exchange: HTTPExchange | None = None if ctx.request is None else ctx.request.scope.get(_EXCHANGE)
    if exchange is None:
        return await call_next(ctx)
    with exchange.ends():
        return await call_next(ctx)
    raise MCPError(INTERNAL_ERROR, "the request has ended early")


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the application, which stops more than this server."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _serve_metrics(server: mcpserver.MCPServer[Any], metrics: Exposition, accepted: TransportSecuritySettings) -> None:
    """Adds the route of the metrics, with the same checks of `Host` and `Origin` as the endpoint."""
    check = TransportSecurityMiddleware(accepted)

    async def answer(request: Request) -> Response:
        if (refusal := await check.validate_request(request)) is not None:
            return refusal
        content, content_type = metrics(request.headers.get("accept", ""))
        return Response(content, headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    server.custom_route(METRICS_PATH, ["GET"], include_in_schema=False)(answer)


def _config(app: ASGIApp, connections: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=connections,
        timeout_graceful_shutdown=_LINGER,
    )


def security(host: str, address: str) -> TransportSecuritySettings:
    """Returns the accepted values of `Host` and `Origin`: this machine's names, and pages that it serves to itself."""
    names = {*_LOOPBACK, host, address}
    if ipaddress.ip_address(address).is_unspecified:
        interfaces = psutil.net_if_addrs().values()
        names |= {socket.gethostname(), *(each.address.partition("%")[0] for every in interfaces for each in every)}
    hosts = [f"[{name}]" if ":" in name else name for name in sorted(names)]
    origins = [f"{scheme}://{name}" for scheme in ("http", "https") for name in ("localhost", "127.0.0.1", "[::1]")]
    return TransportSecuritySettings(allowed_hosts=_any_port(hosts), allowed_origins=_any_port(origins))


def _any_port(names: list[str]) -> list[str]:
    return [*names, *(f"{name}:*" for name in names)]


def _unauthorized(challenge: str, text: str) -> PlainTextResponse:
    return PlainTextResponse(text, 401, {"WWW-Authenticate": challenge})


def _stopping() -> PlainTextResponse:
    return PlainTextResponse("ipybox is stopping", 503)
