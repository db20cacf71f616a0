"""The transport below an MCP session, and all that is known about how it ended.

`Connection.transport` returns what the SDK's client runs on. Whatever can end a connection is reported to
`Connection.end`, where the first cause wins:

    stdio    the server's stdout ended; the guard's last line on stderr says how (`mcp_guard.py`)
    http     a POST failed, or the server no longer knows the session: shows at the next call only
    sse      the event stream ended, or a POST failed

Messages name the server as it was written down, with its placeholders, and the values that were filled in
are taken out of all that servers and libraries say.
"""

import asyncio
import logging
import math
import os
import socket
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import httpx2
from mcp.client import Transport
from mcp.client.sse import sse_client
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED
from pydantic import ValidationError

from ipybox import mcp_guard
from ipybox.audit.redaction import Redactor
from ipybox.bounded_json import MAX_MESSAGE_BYTES
from ipybox.errors import MCPServerError
from ipybox.mcp_params import RemoteServer, StdioServer, parse_params, public_url
from ipybox.mcp_secrets import literal_secrets
from ipybox.mcp_transport import stdio_transport
from ipybox.mcp_watch import LINE_LENGTH, ObservedHTTPClient, StderrTail, WatchedStream
from ipybox.printable import printable
from ipybox.remote_http import Reach, bounded
from ipybox.vars import substitute, variables
from ipybox.workspace.programs import interpreter
from ipybox.workspace.stdio_servers import harden
from ipybox.workspace.writable import WritablePlaces

if TYPE_CHECKING:
    from ipybox.oauth.authenticator import Authenticator, SignIn

logger = logging.getLogger(__name__)

# How much later than the end of stdout the last lines on stderr may come.
_STDERR_TIMEOUT = 0.5
_LABEL_LENGTH = 200
_WRITE_TIMEOUT = 30.0


class Connection:
    """One connection to a server, from the attempt to make it to the reason why it ended.

    Args:
        server_params: The server, with placeholders.
        env: The values of placeholders.
        connect_timeout: Seconds until a remote server must accept a connection, for messages, too.
        deadline: When the server must have answered, on anyio's clock.
        sign_in: Shows a person where to sign in to a remote server; None if nobody is to be asked.
        places: The places that code can write, from which a stdio server takes nothing.

    Raises:
        MissingVariableError: A placeholder has no value in `env`.
        ValueError: The parameters are wrong, which may show only with their placeholders filled in.
    """

    def __init__(
        self,
        server_params: dict[str, Any],
        env: Mapping[str, str],
        connect_timeout: float,
        deadline: float,
        sign_in: "SignIn | None" = None,
        places: WritablePlaces | None = None,
    ):
        self._redactor = Redactor()
        self._redactor.know({name: env[name] for name in variables(server_params) if name in env})
        self._redactor.hide(secret.value for secret in literal_secrets(server_params))
        self.label = _label(parse_params(server_params), self._redactor)
        self.server = parse_params(substitute(server_params, env))
        #: Set as soon as the connection is known to be gone.
        self.ended = asyncio.Event()
        #: What was raised when it ended, never a group.
        self.failure: BaseException | None = None
        #: To be entered around all of it; while it isn't established, its end and the deadline cancel that.
        self.scope = anyio.CancelScope(deadline=deadline)
        self.established = False
        self.timed_out = False
        #: Whether this is a stdio server that refused to be initialized, as one of a later era may do.
        self.refused = False
        #: Whether we ended it.
        self.deliberate = False
        self._connect_timeout = connect_timeout
        self._places = places or WritablePlaces(Path.cwd())
        self._limits = {self.scope}
        self._sign_in = sign_in
        self._auth: Authenticator | None = None
        self._cause: str | None = None
        self._stream_error: str | None = None
        self._noise: str | None = None
        self._http_status: int | None = None
        self._session_denied = False
        self._stderr: StderrTail | None = None

    @property
    def probes(self) -> bool:
        """Whether the protocol's version is asked for first, which came with 2026-07-28.

        Not with stdio: a server that doesn't expect it may exit, as those made with rmcp do
        (https://github.com/0xMassi/webclaw/issues/107), or fall silent, as those made with the Python SDK 1.2
        do. Nor with SSE, which is older than the probe. HTTP servers answer, because a request is a request.
        """
        return isinstance(self.server, RemoteServer) and self.server.kind == "http"

    @property
    def server_exited(self) -> bool:
        """Whether this is a stdio server that ended by itself, as far as is known."""
        return isinstance(self.server, StdioServer) and self.ended.is_set() and not self.deliberate

    def establish(self) -> None:
        """Note that the server has answered: from now on there is no deadline."""
        self.established = True
        self.scope.deadline = math.inf

    async def transport(self) -> Transport:
        """Return the transport for the SDK's client; it starts the server when entered.

        Raises:
            MCPServerError: The command of a stdio server does not exist, or lies where code can write.
        """
        server = self.server
        if isinstance(server, StdioServer):
            return self._stdio(await asyncio.to_thread(self._hardened, server))
        return self._sse(server) if server.kind == "sse" else self._http(server)

    def end(self, cause: str | None = None, *, deliberate: bool = False) -> None:
        """Note that the connection is gone, and why if that is known. Only the first call counts."""
        if self.ended.is_set():
            return
        self._cause, self.deliberate = cause, deliberate
        self.ended.set()
        if not self.established:
            self.scope.cancel()

    def finish(self, exc: Exception | None = None) -> None:
        """Note that the SDK's client is closed, and what it raised; counts unless a better cause is known."""
        self.timed_out = not self.established and not self.ended.is_set() and exc is None
        if exc is not None:
            self.failure = _leaf(exc)
            if not self.server_exited:
                answered = isinstance(self.failure, (MCPError, RuntimeError)) and not self.established
                self.refused = answered and isinstance(self.server, StdioServer)
                self._cause = self._cause or self._plain(self.failure)
        self.end(self._cause)

    @contextmanager
    def time_limit(self, seconds: float) -> Generator[None]:
        """A context that raises TimeoutError when it took too long, not counting what `waiting` covers."""
        with anyio.fail_after(seconds) as limit:
            self._limits.add(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Stops the time limits while a person, not the server, is waited for."""
        began = anyio.current_time()
        stopped = {limit: limit.deadline for limit in self._limits}
        for limit in stopped:
            limit.deadline = math.inf
        try:
            yield
        finally:
            for limit, deadline in stopped.items():
                limit.deadline = deadline + anyio.current_time() - began

    def is_loss(self, exc: MCPError) -> bool:
        """Tell whether an error of the SDK means that the connection is gone, and note it if so.

        The code alone doesn't tell: servers answer with the SDK's CONNECTION_CLOSED (-32000) too.
        """
        if exc.code == CONNECTION_CLOSED and exc.message.startswith(("Connection closed", "SSE stream")):
            self.end(None if exc.message == "Connection closed" else exc.message)
        elif exc.message in ("Session terminated", "Server returned an error response"):
            self.end(f"HTTP {self._http_status}")
        else:
            return self._session_denied
        return True

    def explain(self, what: str) -> str:
        """Return a message that says `what` happened to which server, why, and the server's last words."""
        text = f"{what} {self.label}: {self._reason()}"
        if self._noise is not None:
            text += f"; it wrote {self._noise!r} where an MCP message belongs"
        if self._stderr is not None and self._stderr.lines and not self.deliberate:
            text += "".join(["; its last lines on stderr:", *(f"\n    {line}" for line in self._stderr.lines)])
        return self.redact(text)

    def complain(self, problem: str) -> str:
        """Return a message about a problem with the server."""
        return self.redact(f"{self.label}: {problem}")

    def redact(self, text: str) -> str:
        """Put the placeholders back in where their values appear in a text, and take out other secrets."""
        if self._auth is not None:
            self._redactor.hide(self._auth.secrets)
        return self._redactor.known(text)

    def _stream_failed(self, item: Exception) -> None:
        """Note an error that the transport found in the stream and went on after."""
        if isinstance(item, ValidationError):
            self._note_noise(str(item.errors()[0]["input"]))
        else:
            self._stream_error = self._plain(item)

    def _note_noise(self, text: str) -> None:
        if self._noise is None:
            self._noise = text[:LINE_LENGTH]

    def _refuse(self, why: str) -> None:
        """Ends the connection to a server of which no more is read."""
        self.end(why, deliberate=True)

    def _post_answered(self, response: httpx2.Response) -> None:
        """Note the status with which the server took a message, where the SDK would lose it."""
        status = response.status_code
        self._http_status = status if status >= 400 else None
        if status < 400:
            return
        if isinstance(self.server, RemoteServer) and self.server.kind == "sse":
            # The SDK logs this and leaves the call without an answer.
            self.end(f"HTTP {status}")
        elif (
            # 404 by the specification; 400 by the reference servers
            status in (400, 404)
            and "mcp-session-id" in response.request.headers
            and b'"method":"notifications/' not in response.request.content
        ):
            self._session_denied = True
            self.end(f"the server no longer knows the session (HTTP {status})")

    @asynccontextmanager
    async def _stdio(self, server: StdioServer) -> AsyncGenerator[tuple[Any, Any]]:
        with StderrTail(self._log) as self._stderr:
            async with stdio_transport(
                [str(interpreter()), "-I", "-S", mcp_guard.__file__, "--", server.command, *server.args],
                env=get_default_environment() | server.env,
                cwd=server.cwd,
                stderr=self._stderr.writer,
                on_noise=self._note_noise,
                on_excess=self._refuse,
            ) as (read, write):
                self._stderr.writer.close()
                try:
                    yield self._watched(read), write
                finally:
                    if self.server_exited:
                        # Before stdin is closed, which the guard would take as the order to end the server.
                        with anyio.move_on_after(_STDERR_TIMEOUT, shield=True):
                            await self._stderr.ended.wait()

    @asynccontextmanager
    async def _http(self, server: RemoteServer) -> AsyncGenerator[tuple[Any, Any]]:
        async with (
            self._http_client(server) as client,
            # The SDK's default, 1 MiB, is less than many an image.
            streamable_http_client(server.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as (
                read,
                write,
            ),
        ):
            yield self._watched(read), write

    @asynccontextmanager
    async def _sse(self, server: RemoteServer) -> AsyncGenerator[tuple[Any, Any]]:
        def client(*_: Any, **__: Any) -> httpx2.AsyncClient:
            return self._http_client(server)

        async with sse_client(server.url, httpx_client_factory=client) as (read, write):
            yield self._watched(read), write

    def _http_client(self, server: RemoteServer) -> httpx2.AsyncClient:
        reach = Reach(server.url, trusted=server.oauth.issuer if server.oauth is not None else None)
        if not server.has_credentials:
            # What it imports is for remote servers only.
            from ipybox.oauth.authenticator import Authenticator

            self._auth = Authenticator(server, self._sign_in, self.waiting, reach)
        # No limit on reading: how long a tool may take is the caller's business, and an idle event stream
        # is none of ours.
        timeout = httpx2.Timeout(None, connect=self._connect_timeout, write=_WRITE_TIMEOUT)
        return ObservedHTTPClient(
            server.headers,
            timeout,
            self._auth,
            bounded(reach, is_server=True, on_excess=self._refuse),
            on_answer=self._post_answered,
            on_failure=lambda exc: self.end(self._plain(exc)),
        )

    def _watched(self, stream: Any) -> WatchedStream:
        return WatchedStream(stream, on_end=self.end, on_error=self._stream_failed)

    def _hardened(self, server: StdioServer) -> StdioServer:
        """Returns the server as it is started: by a program that exists, taking nothing from what code can write."""
        if server.cwd is not None and not Path(server.cwd).is_dir():
            raise MCPServerError(self.redact(f"can't start {self.label}: no such directory: {server.cwd}"))
        try:
            hardened = harden(server, self._places)
        except MCPServerError as exc:
            raise MCPServerError(self.redact(f"can't start {self.label}: {exc}")) from None
        if not os.access(hardened.command, os.X_OK):
            raise MCPServerError(self.redact(f"can't start {self.label}: command not found: {server.command}"))
        return hardened

    def _reason(self) -> str:
        if self._cause is not None:
            return self._cause
        if self.timed_out:
            return f"no answer within {self._connect_timeout:g} s"
        if self._stderr is None:
            return self._stream_error or "the server closed the connection"
        before = "" if self.established else " before answering"
        return f"it {self._stderr.report or 'closed its stdout'}{before}"

    def _plain(self, exc: BaseException) -> str:
        """Say in plain words what an exception of the SDK or the HTTP library means."""
        match exc:
            case httpx2.HTTPStatusError():
                return f"HTTP {exc.response.status_code}"
            case httpx2.SSEError():
                return f"not an MCP server: {exc}"
            case httpx2.ConnectTimeout():
                return f"no connection within {self._connect_timeout:g} s"
            case httpx2.ConnectError():
                return _connect_error(exc)
            case MCPError() if exc.message.startswith("Unexpected content type"):
                return f"not an MCP server: {exc.message[0].lower()}{exc.message[1:]}"
            case MCPError() if self._http_status is not None:
                return f"HTTP {self._http_status}: {exc.message}"
            case MCPError():
                return f"it answered: {exc.message}"
            case ValidationError():
                return f"its answer is not valid MCP: {exc.errors()[0]['msg']}"
            case _:
                return str(exc) or type(exc).__name__

    def _log(self, line: str) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s", printable(self.complain(line)))


def _label(server: StdioServer | RemoteServer, redactor: Redactor) -> str:
    if isinstance(server, StdioServer):
        line = redactor.known(" ".join(" ".join([server.command, *server.args]).split()))
        return f"`{line}`" if len(line) <= _LABEL_LENGTH else f"`{line[:_LABEL_LENGTH]}…`"
    return redactor.known(public_url(server.url))


def _leaf(exc: BaseException) -> BaseException:
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    return exc


def _connect_error(exc: httpx2.ConnectError) -> str:
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        if isinstance(cause, socket.gaierror):
            return "unknown host"
        cause = _leaf(cause)  # a group has one for each address of the host
        cause = cause.__cause__ or cause.__context__
    return f"can't connect: {exc}"
