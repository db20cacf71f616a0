"""Streamable HTTP for the MCP server: its socket and connections.

    client ── uvicorn ── TokenMiddleware ─────── the SDK's application ── MCPServer
              sockets    token, Host, Origin,    bodies, MCP sessions
                         health, cancellation

Every user of this machine can connect. To keep anyone from locking others out, a connection must send its first request
soon, and the number of silent connections is limited. `http_gate` contains `TokenMiddleware`.
"""

import asyncio
import ipaddress
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import uvicorn
from mcp.server import mcpserver
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from ipybox.mcp_server.http_gate import IDLE_TIMEOUT, MAX_CLIENTS, TokenMiddleware, accepted_names, check_host
from ipybox.support.listen import NewConnections, listen
from ipybox.support.tokens import new_token, publish_token

logger = logging.getLogger(__name__)

PATH = "/mcp"

METRICS_PATH = "/metrics"

#: Connections per MCP session.
CONNECTIONS_PER_CLIENT = 8

#: Limit of connections that have not sent a complete request, beyond which the oldest is closed; and seconds until such
#: a connection is closed.
MAX_SILENT = 128
FIRST_REQUEST_TIMEOUT = 10

#: Maximum bytes of a request, without and with uploads of 64 MiB in base64.
MAX_REQUEST = 4 << 20
MAX_UPLOAD = 96 << 20

#: Seconds for connections to receive pending data at the end.
_LINGER = 1

#: A token in the characters of RFC 6750, too long to guess.
_TOKEN = re.compile(r"[\w.~+/-]{16,}=*", re.ASCII)

_NAMES_ARE_CHECKED = TransportSecuritySettings(enable_dns_rebinding_protection=False)

#: Returns the metrics and their content type, for a client's Accept header.
Exposition = Callable[[str], tuple[bytes, str]]


@dataclass(frozen=True)
class HTTPServerInfo:
    """A listening server, and the token that its requests need as `Authorization: Bearer <token>`."""

    url: str
    token: str
    #: Readable by the same user only, until the server ends.
    token_file: Path
    #: Whether other machines can reach it, unencrypted.
    beyond_machine: bool
    #: Ends when the server does.
    serving: asyncio.Task[None]
    #: Refuses new calls, and returns when those in progress have ended.
    drain: Callable[[], Awaitable[None]]

    def __str__(self) -> str:
        text = f"serving on {self.url}; the token is in {self.token_file}"
        risk = "connections are not encrypted: anyone who intercepts the token can use it"
        return f"{text}\nother machines can connect, and {risk}" if self.beyond_machine else text


@asynccontextmanager
async def listening(
    server: mcpserver.MCPServer[Any],
    host: str,
    port: int,
    token: str | None,
    kernel_sessions: int,
    max_request: int,
    metrics: Exposition,
    allowed_hosts: Sequence[str] = (),
) -> AsyncGenerator[HTTPServerInfo]:
    """Serves while the context is open; leaving it cancels requests in progress.

    At least `kernel_sessions` MCP sessions are allowed. Other arguments and errors are those of
    `MCPServer.run_http`.
    """
    if token is None:
        token = new_token()
    elif not _TOKEN.fullmatch(token):
        raise ValueError("the token must be at least 16 characters long and use only A-Z a-z 0-9 - . _ ~ + /")
    for name in allowed_hosts:
        check_host(name)
    with listen(host, port) as listener:
        address, port = listener.getsockname()[:2]
        clients = max(MAX_CLIENTS, kernel_sessions)
        gate = TokenMiddleware(token, *accepted_names(host, address, allowed_hosts), clients)
        server.middleware.append(gate.handle)
        _serve_metrics(server, metrics)
        gate.app = server.streamable_http_app(
            streamable_http_path=PATH,
            max_request_body_size=max_request,
            session_idle_timeout=IDLE_TIMEOUT,
            max_sessions=clients,
            transport_security=_NAMES_ARE_CHECKED,
        )
        web = _Uvicorn(_config(gate, clients * CONNECTIONS_PER_CLIENT))
        token_file = publish_token("mcp-server", port, token)
        serving = asyncio.create_task(web.serve([listener]))
        name = f"[{host}]" if ":" in host else host
        beyond_machine = not ipaddress.ip_address(address).is_loopback
        try:
            yield HTTPServerInfo(f"http://{name}:{port}{PATH}", token, token_file, beyond_machine, serving, gate.drain)
        finally:
            gate.close()
            web.should_exit = True
            await asyncio.wait([serving])
            token_file.unlink(missing_ok=True)


class _Connection(H11Protocol):
    # Aborts if its first request does not arrive soon.

    def __init__(self, *args: Any, silent: NewConnections, **options: Any):
        super().__init__(*args, **options)
        self._silent = silent

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._silent.add(self, MAX_SILENT, FIRST_REQUEST_TIMEOUT)

    def handle_events(self) -> None:
        super().handle_events()
        if self.headers is not None:  # pyright: ignore[reportUnnecessaryComparison] - until the first request
            self._silent.remove(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._silent.remove(self)


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # the application handles signals, because it stops more than this server


def _serve_metrics(server: mcpserver.MCPServer[Any], metrics: Exposition) -> None:
    async def answer(request: Request) -> Response:
        content, content_type = metrics(request.headers.get("accept", ""))
        return Response(content, headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    server.custom_route(METRICS_PATH, ["GET"], include_in_schema=False)(answer)


def _config(app: ASGIApp, connections: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=cast(Any, partial(_Connection, silent=NewConnections(lambda silent: silent.transport.abort()))),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=connections + MAX_SILENT,
        timeout_graceful_shutdown=_LINGER,
    )
