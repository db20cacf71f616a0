"""Decides which HTTP requests reach the MCP server, and ends them.

A request without the token closes its connection. `Host` and `Origin` are checked as well, so that web pages can't even
guess tokens.

If a client disconnects during a request, the request is cancelled, as MCP 2026-07-28 requires. Earlier revisions let it
continue, but without an event store, its result could not be retrieved.
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports
"""

import asyncio
import hmac
import ipaddress
import logging
import re
import socket
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import anyio
import psutil
from mcp.server.context import CallNext, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ipybox.support.printable import printable

logger = logging.getLogger(__name__)

#: Reports whether the server accepts calls; needs no token.
HEALTH_PATH = "/health"

#: Limit of concurrent MCP sessions, unless `max_sessions` is higher; and seconds without a request until one is ended.
#: A client that returns later starts a new MCP session; kernels are not affected.
MAX_CLIENTS = 64
IDLE_TIMEOUT = 30 * 60

#: Maximum characters of a client's name, and of its version, in the log.
_LABEL = 64

#: The key of a request's `HTTPExchange` in its ASGI scope.
_EXCHANGE = "ipybox.exchange"

#: A host that an operator allows: a name or an address, without a port.
_HOST = re.compile(r"[\w-]+(\.[\w-]+)*\.?|\[[0-9a-f:.]+\]", re.ASCII | re.IGNORECASE)

#: The port at the end of a `Host` or `Origin` header.
_PORT = re.compile(r":[0-9]{1,5}\Z")

_TOO_MANY_CLIENTS = (
    "the limit of {limit} MCP sessions is reached: end a session (DELETE), wait until one has been idle for "
    f"{IDLE_TIMEOUT / 60:g} minutes, or start ipybox with a higher --max-sessions"
)

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class TokenMiddleware:
    """Passes requests with the right token, host and origin on to `app`, which accepts `max_clients` MCP sessions."""

    app: ASGIApp

    def __init__(self, token: str, hosts: Collection[str], origins: Collection[str], max_clients: int = MAX_CLIENTS):
        self._token = token.encode()
        self._hosts, self._origins = hosts, origins
        self._max_clients = max_clients
        self._exchanges: set[HTTPExchange] = set()
        #: An event per call in progress, set when the call ends.
        self._calls: set[asyncio.Event] = set()
        self._draining = self._closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request (ASGI)."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if (answer := self._health() if scope["path"] == HEALTH_PATH else self._refusal(scope)) is not None:
            return await answer(scope, receive, send)
        scope[_EXCHANGE] = exchange = HTTPExchange(receive, send, self._max_clients)
        self._exchanges.add(exchange)
        try:
            with exchange.ends():
                await self.app(scope, exchange.receive, exchange.send)
            await exchange.complete(scope)
        except anyio.ClosedResourceError:
            # The SDK acknowledges a notification, but then has no session to deliver it to.
            if not exchange.is_complete:
                raise
        finally:
            self._exchanges.discard(exchange)
            if scope["method"] == "DELETE":
                logger.info("a client ended its MCP session")
        return None

    async def handle(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
        """Handles an MCP request until its HTTP request ends (middleware of the SDK's server)."""
        if ctx.method in ("initialize", "server/discover"):
            logger.info("client connected: %s", _client_label(ctx))
        if ctx.method != "tools/call":
            return await _cancel_on_disconnect(ctx, call_next)
        if self._draining:
            raise MCPError(INTERNAL_ERROR, "ipybox is shutting down and accepts no new calls")
        ended = asyncio.Event()
        self._calls.add(ended)
        try:
            return await _cancel_on_disconnect(ctx, call_next)
        finally:
            self._calls.discard(ended)
            ended.set()

    async def drain(self) -> None:
        """Refuses new calls, and returns when those in progress have ended."""
        self._draining = True
        while self._calls:
            await next(iter(self._calls)).wait()

    def _health(self) -> PlainTextResponse:
        ok = PlainTextResponse("ok", headers={"Connection": "close", "Cache-Control": "no-store"})
        return _stopping() if self._draining or self._closed else ok

    def close(self) -> None:
        """Ends all requests and rejects new ones."""
        self._closed = True
        for exchange in self._exchanges:
            exchange.end()

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        scheme, _, presented = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return _unauthorized("Bearer", "this server requires a token: Authorization: Bearer <token>")
        if not hmac.compare_digest(presented.strip().encode(errors="replace"), self._token):
            return _unauthorized('Bearer error="invalid_token"', "wrong token for this server")
        if not all(_PORT.sub("", host) in self._hosts for host in headers.getlist("host") or [""]):
            return PlainTextResponse("Invalid Host header", HTTPStatus.MISDIRECTED_REQUEST)
        if not all(_PORT.sub("", origin) in self._origins for origin in headers.getlist("origin")):
            return PlainTextResponse("Invalid Origin header", HTTPStatus.FORBIDDEN)
        return _stopping() if self._closed else None


class HTTPExchange:
    """A request, its response, and the work that ends with them."""

    def __init__(self, receive: Receive, send: Send, max_clients: int):
        self._receive = receive
        self._send = send
        self._max_clients = max_clients
        self._started = False
        #: Whether the whole response was sent, or the client is gone.
        self.is_complete = False
        self._scopes: set[anyio.CancelScope] = set()

    @contextmanager
    def ends(self) -> Generator[None]:
        """Cancels only the work in this context if the request ends early."""
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
        """Receives a part of the request; ends the request if the client is gone."""
        message = await self._receive()
        if message["type"] == "http.disconnect" and not self.is_complete:
            self.is_complete = True
            self.end()
        return message

    async def send(self, message: Message) -> None:
        """Sends a part of the response; drops data after its end."""
        if self.is_complete:
            return
        if message["type"] == "http.response.start" and message["status"] == HTTPStatus.SERVICE_UNAVAILABLE:
            # The SDK's application sends this status only to refuse an MCP session, and names no remedy.
            self.is_complete = True
            text = _TOO_MANY_CLIENTS.format(limit=self._max_clients)
            logger.warning("refused a client: %s", text)
            error = {"jsonrpc": "2.0", "id": None, "error": {"code": INTERNAL_ERROR, "message": text}}
            await JSONResponse(error, message["status"])({"type": "http"}, self._receive, self._send)
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


async def _cancel_on_disconnect(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
    # In sessions of earlier revisions, a task other than the HTTP request's handles the message.
    assert ctx.request is not None
    exchange: HTTPExchange = ctx.request.scope[_EXCHANGE]
    with exchange.ends():
        return await call_next(ctx)
    raise MCPError(INTERNAL_ERROR, "the request ended early")


def _client_label(ctx: ServerRequestContext[Any, Any]) -> str:
    match ctx.params:
        case {"clientInfo": {**known}} | {"_meta": {"io.modelcontextprotocol/clientInfo": {**known}}}:
            label = " ".join(str(known[key])[:_LABEL] for key in ("name", "version") if key in known)
        case _:
            label = ""
    address = ctx.request.client.host if ctx.request is not None and ctx.request.client is not None else "?"
    return printable(f"{label or 'without a name'}, from {address}")


def accepted_names(host: str, address: str, allowed_hosts: Sequence[str]) -> tuple[set[str], set[str]]:
    """Returns the accepted hosts and origins: those of this machine, and allowed hosts."""
    names = {host, address, *allowed_hosts, *_LOOPBACK}
    if ipaddress.ip_address(address).is_unspecified:
        interfaces = psutil.net_if_addrs().values()
        names |= {socket.gethostname(), *(each.address.partition("%")[0] for every in interfaces for each in every)}
    hosts = {f"[{name}]" if ":" in name and not name.startswith("[") else name for name in names}
    origins = {f"{scheme}://{name}" for scheme in ("http", "https") for name in _LOOPBACK}
    return hosts, origins | {f"https://{name}" for name in allowed_hosts}


def check_host(name: str) -> None:
    """Raises a ValueError if an allowed host is not just a name or address, for example if it includes a port."""
    if not _HOST.fullmatch(name):
        raise ValueError(f"{name!r} is not a host name: leave out the scheme, port and path, and don't use patterns")


def _unauthorized(challenge: str, text: str) -> PlainTextResponse:
    return PlainTextResponse(text, 401, {"WWW-Authenticate": challenge, "Connection": "close"})


def _stopping() -> PlainTextResponse:
    return PlainTextResponse("ipybox is shutting down", 503, {"Connection": "close"})
