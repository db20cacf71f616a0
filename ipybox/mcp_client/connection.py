"""The transport of an MCP session, and the reason why it ended. `MCPClient` owns one `ClientConnection`.

Every possible end of a connection is reported to `ClientConnection.mark_ended`, where the first cause wins:

    stdio    the server's stdout ended; the guard's last line on stderr says how (`process_guard.py`)
    http     only this process ends it, because each request has a connection of its own
    sse      the event stream ended

A failed POST ends only its own request (`http_client.py`), unless the server can't be reached while connecting.

Messages show the placeholders in the parameters; their values are removed from all text of servers and libraries.
"""

import asyncio
import logging
import math
import os
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.client import Transport
from mcp.client.sse import sse_client
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, RequestId

from ipybox.audit.redaction import Redactor, is_key, is_secret
from ipybox.mcp_client import process_guard
from ipybox.mcp_client.failures import STDERR_LINES, ServerStderr, failure_text, first_leaf, readable_line
from ipybox.mcp_client.http_client import MCPHTTPClient, PostFailure
from ipybox.mcp_client.oauth import SignIn, SignInError
from ipybox.mcp_client.params import RemoteParams, StdioParams, parse_params, public_url
from ipybox.mcp_client.secrets import literal_secrets
from ipybox.mcp_client.stdio_servers import harden_stdio_params
from ipybox.mcp_client.transport import stdio_transport
from ipybox.support.bounded_json import MAX_MESSAGE_BYTES, ExcessError, MessageLimit
from ipybox.support.child import MAX_LENGTH
from ipybox.support.errors import MCPConnectionLost, MCPServerError, MCPSessionExpired, ToolRunnerError
from ipybox.support.placeholders import fill_in, substitute, variables
from ipybox.support.printable import printable
from ipybox.workspace.seal import secret_hash
from ipybox.workspace.writable import WritablePlaces, interpreter

if TYPE_CHECKING:
    from ipybox.mcp_client.oauth.authenticator import Authenticator

logger = logging.getLogger(__name__)

# Seconds to wait for the last lines on stderr after the end of stdout.
_STDERR_TIMEOUT = 0.5
_LABEL_LENGTH = 200

#: What to install to get a missing program that starts servers.
_PACKAGES = {"uvx": "uv", "npx": "Node.js", "docker": "Docker"}


@dataclass(frozen=True)
class TimeLimits:
    """The time limits of a connection, which pause while ipybox waits for a person instead of the server."""

    #: Has the deadline at which the connection must be established.
    scope: anyio.CancelScope
    _others: set[anyio.CancelScope] = field(default_factory=set[anyio.CancelScope])

    @contextmanager
    def limit(self, seconds: float) -> Generator[None]:
        """A context that raises TimeoutError when it takes too long, not counting the time in `paused`."""
        with anyio.fail_after(seconds) as limit:
            self._others.add(limit)
            try:
                yield
            finally:
                self._others.discard(limit)

    @contextmanager
    def paused(self) -> Generator[None]:
        """A context that pauses the time limits while ipybox waits for a person."""
        began = anyio.current_time()
        stopped = {limit: limit.deadline for limit in (self.scope, *self._others)}
        for limit in stopped:
            limit.deadline = math.inf
        try:
            yield
        finally:
            for limit, deadline in stopped.items():
                limit.deadline = deadline + anyio.current_time() - began


@dataclass(eq=False)
class ClientConnection:
    """One connection to a server, from the first attempt to the reason why it ended; see `MCPClient` for its options.

    Attributes:
        described: The server as `server_params` describe it, with placeholders.
        env: The values of placeholders.
        limits: The time limits for connecting and for listing tools. The owner enters `limits.scope` around the
            connection: until it is established, the deadline or the connection's end cancels the scope.

    Raises:
        MissingVariableError: If a placeholder has no value in `env`.
        ValueError: If the parameters are invalid, possibly only after their placeholders are replaced.
    """

    described: StdioParams | RemoteParams
    server_params: dict[str, Any]
    env: Mapping[str, str]
    connect_timeout: float
    sign_in: SignIn | None
    places: WritablePlaces | None
    on_progress: Callable[[str], None] | None
    limits: TimeLimits
    #: Set as soon as the connection is known to have ended.
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    #: The exception that ended it, never a group.
    failure: BaseException | None = None
    established: bool = False
    #: Whether this is a stdio server that rejected initialization, possibly because it needs a newer protocol.
    refused: bool = False
    #: Whether ipybox ended it.
    deliberate: bool = False
    message_limit: MessageLimit = field(default_factory=MessageLimit)
    #: Adds access tokens to the requests to a remote server.
    auth: "Authenticator | None" = None
    _cause: str | None = None
    _noise: str = ""
    _received: MemoryObjectSendStream[SessionMessage] | None = None
    _stderr: ServerStderr | None = None

    def __post_init__(self) -> None:
        self.server: StdioParams | RemoteParams = self.described
        self._values: dict[str, str] = {}
        if placeholders := variables(self.server_params):
            self._values = {name: self.env[name] for name in placeholders if name in self.env}
            self.server = parse_params(substitute(self.server_params, self._values))

    @cached_property
    def choice(self) -> str:
        """A hash of what placeholders choose, see `ToolSpec.chosen`; keys and other secrets don't count."""
        if not self._values:
            return ""
        chosen = {**self.server_params}
        for key in ("env", "headers"):
            fields: dict[str, str] = chosen.get(key) or {}
            filled = fill_in(fields, self._values)
            # A URL is an address even if it contains a password.
            chosen[key] = {
                name: fields[name] for name, value in filled.items() if "://" in value or not is_secret(name, value)
            }
        values = {name: value for name, value in self._values.items() if not is_key(value)}
        return secret_hash(fill_in(chosen, values)) if variables(chosen) else ""

    @cached_property
    def label(self) -> str:
        """What messages call the server: its command line, shortened, or its URL, without secrets."""
        if isinstance(self.described, RemoteParams):
            return self._redactor.known(public_url(self.described.url))
        words = " ".join([self.described.command, *self.described.args]).split()
        line = self._redactor.known(" ".join(words))
        return f"`{line}`" if len(line) <= _LABEL_LENGTH else f"`{line[:_LABEL_LENGTH]}…`"

    @cached_property
    def _redactor(self) -> Redactor:
        redactor = Redactor()
        redactor.add_secrets(self._values)
        redactor.hide(secret.value for secret in literal_secrets(self.described))
        return redactor

    @property
    def server_exited(self) -> bool:
        """Whether this is a stdio server that is known to have ended by itself."""
        return isinstance(self.server, StdioParams) and self.ended.is_set() and not self.deliberate

    async def transport(self) -> Transport:
        """Returns the transport for the SDK's client; it starts the server when entered.

        Raises an MCPServerError for a command that doesn't exist, or that code can write.
        """
        if isinstance(self.server, RemoteParams):
            return self._remote(self.server)
        return self._stdio(await asyncio.to_thread(self._hardened, self.server))

    def mark_ended(self, cause: str | ExcessError | None = None, *, deliberate: bool = False) -> None:
        """Records that the connection has ended, and the cause, if known. Only the first call counts."""
        if self.ended.is_set():
            return
        self._cause = cause if cause is None else str(cause)
        self.deliberate = deliberate or isinstance(cause, ExcessError)
        self.ended.set()
        if not self.established:
            self.limits.scope.cancel()

    def mark_closed(self, exc: Exception | None = None) -> None:
        """Records that the SDK's client is closed, and what it raised, unless a better cause is known."""
        if exc is None:
            if not self.established and not self.ended.is_set():
                self._cause = f"no response within {self.connect_timeout:g} s"
        else:
            self.failure = first_leaf(exc)
            if not self.server_exited:
                answered = isinstance(self.failure, (MCPError, RuntimeError)) and not self.established
                self.refused = answered and isinstance(self.server, StdioParams)
                self._cause = self._cause or self.plain(self.failure)
        self.mark_ended(self._cause)

    def failure_of(self, exc: MCPError) -> PostFailure | None:
        """Returns why a request got no answer; None if the error is the server's answer."""
        if isinstance(exc.error.data, PostFailure):
            return exc.error.data
        if exc.code != CONNECTION_CLOSED:  # even with it, the error may be the server's
            return None
        if exc.message == "Connection closed":
            self.mark_ended()
        elif not exc.message.startswith("SSE stream"):
            return None
        return PostFailure("unknown", exc.message.replace("SSE stream", "its event stream"))

    def error_for(self, failure: PostFailure) -> MCPServerError | ToolRunnerError:
        """Returns the error for a request that failed without ending the connection."""
        reason = self.plain(failure.reason)
        match failure.outcome:
            case "refused":
                return ToolRunnerError(self.error_text(reason))
            case "unsent" if isinstance(failure.reason, SignInError):
                return MCPServerError(self.error_text(reason))
            case "unsent":
                return MCPServerError(self.redact(f"can't reach {self.label}: {reason}; the request was not sent"))
            case "unknown":
                sent = f"the request was sent to {self.label}, but its outcome is unknown: {reason}"
                return MCPConnectionLost(self.redact(sent))
            case "expired":
                return MCPSessionExpired(self.error_text(f"it no longer knows the session: {reason}"))

    def explain(self, what: str) -> str:
        """Returns a message that says `what` happened to which server, why, and the server's last lines on stderr."""
        text = f"{what} {self.label}: {self._reason()}"
        if self._noise:
            text += f"; it wrote {self._noise!r} instead of an MCP message"
        if self._stderr is not None and self._stderr.last and not self.deliberate:
            lines = self._stderr.last[-STDERR_LINES:]
            text += "".join(["; last lines on stderr:", *(f"\n    {line}" for line in lines)])
        return self.redact(text)

    def error_text(self, problem: str) -> str:
        """Returns a message about a problem with the server."""
        return self.redact(f"{self.label}: {problem}")

    def redact(self, text: str) -> str:
        """Replaces the values of placeholders in a text by the placeholders, and removes other secrets."""
        if self.auth is not None:
            self._redactor.hide(self.auth.secrets)
        return self._redactor.known(text)

    def note_noise(self, text: str) -> None:
        """Records what a server sent instead of a message; only the first text counts."""
        self._noise = self._noise or text[:MAX_LENGTH]

    def plain(self, exc: BaseException | str) -> str:
        """Returns in plain words what an exception of the SDK or the HTTP library means."""
        return failure_text(exc, self.connect_timeout)

    async def post_failed(self, request_id: RequestId, failure: PostFailure) -> None:
        """Answers a request to a remote server in place of the server."""
        if not self.established and failure.outcome == "unsent":
            # A version probe that was not sent says nothing about versions.
            self.mark_ended(self.plain(failure.reason))
            return
        # No server can send such an object as data.
        error = ErrorData(code=INTERNAL_ERROR, message="the request failed", data=failure)
        await self.add_message(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))

    async def add_message(self, message: JSONRPCMessage) -> None:
        """Adds a message to the stream of a remote server's messages."""
        assert self._received is not None  # since before the first request
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._received.send(SessionMessage(message))

    @asynccontextmanager
    async def _observed(self, messages: Any) -> AsyncGenerator[Any]:
        """Yields the stream of a server's messages, including those from `add_message`."""
        self._received, observed = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pass_on, messages, self._received)
            try:
                yield observed
            finally:
                tasks.cancel_scope.cancel()
                observed.close()

    async def _pass_on(self, messages: Any, received: MemoryObjectSendStream[SessionMessage]) -> None:
        error: str | None = None
        async with received:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async for item in messages:
                    if isinstance(item, Exception):
                        error = self.plain(item)
                    else:
                        await received.send(item)
            # If the SDK's client has closed its end, the transport ends for that reason.
            if received.statistics().open_receive_streams:
                self.mark_ended(error)

    @asynccontextmanager
    async def _stdio(self, server: StdioParams) -> AsyncGenerator[tuple[Any, Any]]:
        self._stderr = stderr = ServerStderr(self._log)
        try:
            with os.fdopen(await stderr.open(), "w") as writer:
                async with stdio_transport(
                    [str(interpreter()), "-I", "-S", process_guard.__file__, "--", server.command, *server.args],
                    env=get_default_environment() | server.env,
                    cwd=server.cwd,
                    stderr=writer,
                    limit=self.message_limit,
                    on_noise=self.note_noise,
                    on_end=self.mark_ended,
                ) as streams:
                    writer.close()
                    try:
                        yield streams
                    finally:
                        if self.server_exited:
                            # Before stdin is closed, because the guard then ends the server.
                            with anyio.CancelScope(shield=True):
                                await stderr.settled(_STDERR_TIMEOUT)
        finally:
            with anyio.CancelScope(shield=True):
                await stderr.close()

    @asynccontextmanager
    async def _remote(self, server: RemoteParams) -> AsyncGenerator[tuple[Any, Any]]:
        def client(*_: Any, **__: Any) -> MCPHTTPClient:
            return MCPHTTPClient(self, server)

        async with AsyncExitStack() as stack:
            if server.kind == "sse":
                streams = sse_client(server.url, httpx_client_factory=client)
            else:
                http = await stack.enter_async_context(client())
                # The SDK's default, 1 MiB, is too small for many images.
                streams = streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
            read, write = await stack.enter_async_context(streams)
            yield await stack.enter_async_context(self._observed(read)), write

    def _hardened(self, server: StdioParams) -> StdioParams:
        """Returns the parameters to start a server with: an existing program, and nothing that code can write."""
        try:
            if server.cwd is not None and not Path(server.cwd).is_dir():
                raise MCPServerError(f"no such directory: {server.cwd}")
            hardened = harden_stdio_params(server, self.places or WritablePlaces(Path.cwd()))
            if not os.access(hardened.command, os.X_OK):
                raise MCPServerError(_not_found(server.command))
        except MCPServerError as exc:
            raise MCPServerError(self.redact(f"can't start {self.label}: {exc}")) from None
        return hardened

    def _reason(self) -> str:
        if self._cause is not None:
            return self._cause
        if self._stderr is None:
            return "the server closed the connection"
        before = "" if self.established else " before responding"
        return f"it {self._stderr.report or 'closed its stdout'}{before}"

    def _log(self, line: str) -> None:
        if self.on_progress is not None and not self.established:
            self.on_progress(printable(self.redact(readable_line(line))))
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s", printable(self.error_text(line)))


def _not_found(command: str) -> str:
    """Returns the error for a command that is not on PATH, with what to do about it."""
    said = f"command not found: {command}"
    if " " in command:
        return f"{said}; put the program's arguments in `args`"
    if "/" in command:
        return said
    return f"{said}; install {_PACKAGES.get(command, 'it')}, or give its absolute path"
