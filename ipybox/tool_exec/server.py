"""The tool server: runs tools of MCP servers for code in a kernel, and asks the application before each call.

It has two faces, which are two HTTP servers:

- the *guest* face serves connections that come from kernels (`accept_guest`). It can run a tool, nothing else.
- the *application* face serves connections of the application: private ones (`endpoint`) and, if a port is given,
  those that arrive there. It can also reset, tell the status, and open the approval channel.

Each face asks for its own token and refuses what a web page could send: a foreign Host, or any Origin.
"""

import asyncio
import hmac
import json
import logging
import math
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import ExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from ipybox.audit.steps import ToolCall
from ipybox.audit.trail import Trail
from ipybox.bounded_json import MAX_VALUES, costs_too_much
from ipybox.endpoint import Endpoint
from ipybox.errors import AuditError, IpyboxError
from ipybox.kernel_mgr.limits import format_bytes
from ipybox.listen import listen
from ipybox.printable import PrintableFormatter
from ipybox.tasks import TaskSet
from ipybox.tokens import new_token, publish_token
from ipybox.tool_exec.approval.client import ApprovalCallback
from ipybox.tool_exec.approval.protocol import OTHER_CLIENT, Decided
from ipybox.tool_exec.approval.server import ApprovalChannel
from ipybox.tool_exec.protocol import (
    APPROVAL_PATH,
    RESET_PATH,
    RUN_PATH,
    STATUS_PATH,
    RunReply,
    RunRequest,
    is_run_request,
)
from ipybox.tool_exec.seal import SealVerifier
from ipybox.tool_exec.sessions import MCPSessions
from ipybox.workspace.writable import WritablePlaces

if TYPE_CHECKING:
    from mcp_types import CallToolResult

logger = logging.getLogger(__name__)

#: The largest request that is read: the arguments of one tool call.
MAX_REQUEST_BYTES = 64 << 20

#: Of larger requests, few can be under way at once, and one is read at a time.
LARGE_REQUEST_BYTES = 1 << 16
MAX_LARGE_REQUESTS = 4

#: Seconds that a request has to arrive as a whole, once its turn has come.
BODY_TIMEOUT = 60.0

#: Kernel clients keep their connections, so the server does not close idle ones. Seconds.
KEEPALIVE = 24 * 3600.0

#: Seconds that calls under way have to end when the server stops.
SHUTDOWN_GRACE = 1.0

#: Connections that one guest may hold; it gets no more until some are closed.
MAX_GUEST_CONNECTIONS = 256

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class _Guest:
    """One whose calls are run: who approves them, the MCP servers that run them, and where they are recorded."""

    approvals: ApprovalChannel
    sessions: MCPSessions
    trail: Trail


class ToolServer:
    """Runs tools of MCP servers, which start at their first call and are kept.

    It runs in the event loop that starts it and leaves the application's signal handlers alone.

    Args:
        host: Where to listen if there is a port.
        port: The port to listen on, or None for no port at all; 0 picks a free one.
        approval_required: Whether the application has to accept each call.
        approval_timeout: Seconds until an approval request expires; None for never.
        connect_timeout: Seconds that an MCP server has to start and answer.
        log_to_stderr: Whether ipybox's log also goes to this process's stderr.
        log_level: Level of that log.
        sealed_for: A workspace. Calls from a guest must then carry a seal of their server's parameters that was made
            for it: always so where the guest is confined, as it could otherwise start any command outside.
        guest_token: The token that guests present, by default a new one.
        approver: Called with each `ApprovalRequest`, instead of an `ApprovalClient`; it has to return at once.
        trail: Where calls are recorded.
        places: The places that code can write, from which no server takes anything; by default the working directory.
        variables: Values of placeholders in servers' parameters that the environment does not have.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int | None = 8900,
        approval_required: bool = False,
        approval_timeout: float | None = 60,
        connect_timeout: float = 30,
        log_to_stderr: bool = False,
        log_level: str = "INFO",
        *,
        sealed_for: Path | None = None,
        guest_token: str | None = None,
        approver: ApprovalCallback | None = None,
        trail: Trail | None = None,
        places: WritablePlaces | None = None,
        variables: Mapping[str, str] | None = None,
    ):
        self.host = host
        self.port = port
        self.guest_token = guest_token or new_token()
        self._token = new_token()
        self._seals = None if sealed_for is None else SealVerifier(sealed_for)
        self._approvals = ApprovalChannel(approval_required, approval_timeout)
        self._new_sessions = partial(MCPSessions, connect_timeout, variables, places)
        self._sessions = self._new_sessions()
        self._application = _Guest(self._approvals, self._sessions, trail or Trail())
        #: Guests by their tokens.
        self._guests = {self.guest_token: self._application}
        self._log_handler = logging.StreamHandler(sys.stderr) if log_to_stderr else None
        if self._log_handler is not None:
            self._log_handler.setFormatter(PrintableFormatter())
        self._log_level = log_level
        self._approver = approver
        self._approver_attached = ExitStack()
        self._guest_face: web.AppRunner | None = None
        self._application_face: web.AppRunner | None = None
        self._tasks = TaskSet()
        self._token_file: Path | None = None
        self._stopped = asyncio.Event()
        self._large_requests = asyncio.Semaphore(MAX_LARGE_REQUESTS)
        self._large_body = asyncio.Lock()
        #: Connections of guests that are not known to the HTTP server yet.
        self._arriving: set[socket.socket] = set()
        self._refused = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def endpoint(self) -> Endpoint:
        """Where clients in this process reach the application face: over private sockets."""
        return Endpoint("tool-server", token=self._token, dial=self._dial)

    async def start(self) -> None:
        """Starts to serve.

        Raises:
            RuntimeError: If the server is already running.
            OSError: If the port is taken.
        """
        if self._application_face is not None:
            raise RuntimeError("the tool server is already running")
        listener = listen(self.host, self.port) if self.port is not None else None
        if listener is not None:
            # Who connects from now on is answered when the server is there, and needs the token already.
            self.port = int(listener.getsockname()[1])
            self._token_file = publish_token("tool-server", self.port, self._token)
        self._stopped.clear()
        if self._approver is not None:
            self._approver_attached.enter_context(self._approvals.attached(self._approver))
        if self._log_handler is not None:
            root = logging.getLogger("ipybox")
            root.addHandler(self._log_handler)
            root.setLevel(self._log_level)
        self._guest_face = await _face(self._guests.keys(), {("POST", RUN_PATH): self._run_for_guest})
        self._application_face = await _face(
            {self._token},
            {
                ("POST", RUN_PATH): self._run_for_application,
                ("PUT", RESET_PATH): self._reset,
                ("GET", STATUS_PATH): self._status,
                ("GET", APPROVAL_PATH): self._approval,
            },
        )
        if listener is not None:
            await web.SockSite(self._application_face, listener).start()

    async def stop(self) -> None:
        """Stops to serve and ends all MCP servers."""
        if self._token_file is not None:
            self._token_file.unlink(missing_ok=True)
            self._token_file = None
        # Who comes from now on is not served any more.
        faces = (self._guest_face, self._application_face)
        self._guest_face = self._application_face = None
        self._approver_attached.close()
        await self._approvals.disconnect()
        await self._tasks.cancel()
        for connection in self._arriving:
            connection.close()
        self._arriving.clear()
        await self._sessions.aclose()
        for face in faces:
            if face is not None:
                await face.cleanup()
        if self._log_handler is not None:
            logging.getLogger("ipybox").removeHandler(self._log_handler)
        self._stopped.set()

    async def join(self) -> None:
        """Waits until the server is stopped."""
        await self._stopped.wait()

    async def reset(self) -> None:
        """Stops all MCP servers; they start again at their next call."""
        await self._sessions.reset()

    @asynccontextmanager
    async def guest(self, token: str, approver: ApprovalCallback, trail: Trail) -> AsyncGenerator[MCPSessions]:
        """Runs the calls of another guest, too, with an approver and MCP servers of its own, which are yielded.

        Args:
            token: The token that this guest presents.
            approver: Called with each `ApprovalRequest` of this guest; it has to return at once.
            trail: Where the calls of this guest are recorded.
        """
        approvals = ApprovalChannel(self._approvals.approval_required, self._approvals.approval_timeout)
        async with self._new_sessions() as sessions:
            with approvals.attached(approver):
                self._guests[token] = _Guest(approvals, sessions, trail)
                try:
                    yield sessions
                finally:
                    del self._guests[token]

    def accept_guest(self, connection: socket.socket) -> None:
        """Serves a connection that comes from a kernel; takes ownership of the socket."""
        server = self._guest_face.server if self._guest_face is not None else None
        if server is None:
            connection.close()
        elif len(server.connections) + len(self._arriving) >= MAX_GUEST_CONNECTIONS:
            if not self._refused:
                logger.warning("refused a connection of a kernel that has %d, and will more", MAX_GUEST_CONNECTIONS)
                self._refused = True
            connection.close()
        else:
            self._arriving.add(connection)
            self._tasks.start(self._serve_guest(server, connection))

    async def _serve_guest(self, server: web.Server, connection: socket.socket) -> None:
        await _serve(server, connection)
        self._arriving.discard(connection)

    def _dial(self) -> socket.socket:
        server = self._application_face.server if self._application_face is not None else None
        if server is None:
            raise ConnectionRefusedError("the tool server is not running")
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        self._tasks.start(_serve(server, theirs))
        return ours

    async def _run_for_guest(self, request: web.Request) -> web.Response:
        guest = self._guests[request.headers["Authorization"].removeprefix("token ")]
        if request.content_length is None or request.content_length <= LARGE_REQUEST_BYTES:
            return await self._run(request, guest, self._seals)
        async with self._large_requests:
            return await self._run(request, guest, self._seals, self._large_body)

    async def _run_for_application(self, request: web.Request) -> web.Response:
        return await self._run(request, self._application, seals=None)

    async def _run(
        self, request: web.Request, guest: _Guest, seals: SealVerifier | None, reading: asyncio.Lock | None = None
    ) -> web.Response:
        try:
            async with reading or nullcontext():
                # Not by request.json(), which decodes as the sender says, in codecs that take minutes.
                call: object = json.loads(await _body(request), parse_constant=_finite, parse_float=_finite)
        except _RefusedError as refused:
            return _denied(guest, str(refused), refused.status)
        except (ValueError, RecursionError):
            call = None
        if not is_run_request(call):
            return _denied(guest, "not a tool call: see ipybox.tool_exec.protocol", HTTPStatus.BAD_REQUEST)
        if seals is not None:
            server_name, server_params = call["server_name"], call["server_params"]
            if not seals.accepts(server_name, server_params, call["seal"]):
                logger.warning("refused a call of %r with parameters that were not registered", server_name)
                error = (
                    f"MCP server {server_name!r} is not registered in this workspace with these parameters: register "
                    "it (again) from outside the sandbox"
                )
                return _denied(guest, error, HTTPStatus.FORBIDDEN)
        large = (request.content_length or 0) > LARGE_REQUEST_BYTES
        reply = await self._approve_and_call(call, guest, large=large)
        from pydantic_core import to_json  # not at the start; a call of a tool imports it anyway

        # Several times faster than Python's encoder, which holds up the event loop for a result of many megabytes.
        return web.Response(body=to_json(reply), content_type="application/json")

    async def _approve_and_call(self, call: RunRequest, guest: _Guest, *, large: bool) -> RunReply:
        server_name, tool_name, params = call["server_name"], call["tool_name"], call["server_params"]
        name = f"{server_name}.{tool_name}"
        async with guest.trail.tool_call(server_name, tool_name, call["tool_args"], params, large=large) as recorded:
            refusal = await self._refusal(call, guest, recorded)
            if refusal is not None:
                return RunReply(error=f"call of {name} was {refusal}")
            try:
                result = await guest.sessions.call(server_name, params, tool_name, call["tool_args"])
            except (IpyboxError, ValueError) as exc:
                recorded.fail(type(exc).__name__, str(exc))
                return RunReply(error=str(exc))
            reply = _reply(result, name)
            if "error" in reply:
                recorded.fail("tool_error", reply["error"])
            return reply

    async def _refusal(self, call: RunRequest, guest: _Guest, recorded: ToolCall) -> str | None:
        """Returns why a call may not be made, or None if it may; either is recorded."""
        try:
            decided = await guest.approvals.decide(
                call["server_name"],
                call["tool_name"],
                call["tool_args"],
                call["server_params"],
                call.get("output_mark", 0),
            )
            refusal = "rejected" if decided.reason is None else f"rejected: {decided.reason}"
        except (RuntimeError, TimeoutError) as exc:
            decided = Decided(False, "timeout" if isinstance(exc, TimeoutError) else "nobody", str(exc))
            refusal = f"not approved: {exc}"
        try:
            guest.trail.decided(recorded, decided)
        except AuditError as exc:
            recorded.fail("AuditError", str(exc), outcome="rejected")
            return f"not made: {exc}"
        return None if decided.accepted else refusal

    async def _reset(self, _request: web.Request) -> web.Response:
        await self.reset()
        return web.json_response({})

    async def _status(self, _request: web.Request) -> web.Response:
        return web.json_response({"servers": self._sessions.status(), "approval_client": self._approvals.open})

    async def _approval(self, request: web.Request) -> web.StreamResponse:
        if self._approvals.open:
            return web.json_response(RunReply(error=OTHER_CLIENT), status=HTTPStatus.CONFLICT)
        websocket = web.WebSocketResponse(max_msg_size=MAX_REQUEST_BYTES)
        await websocket.prepare(request)
        await self._approvals.connect(websocket)
        return websocket


def _reply(result: "CallToolResult", name: str) -> RunReply:
    """Returns what is answered to a call that a server has answered."""
    content = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    if not result.is_error:
        return RunReply(structured=result.structured_content, content=content)
    text = "\n".join(str(block["text"]) for block in content if block.get("type") == "text")
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    error = text or f"call of {name} failed, the server gave no reason"
    beside = [block for block in content if block.get("type") != "text"]
    return RunReply(error=error, content=beside) if beside else RunReply(error=error)


def _denied(guest: _Guest, error: str, status: HTTPStatus) -> web.Response:
    guest.trail.denied("tool_server", [error])
    return web.json_response(RunReply(error=error), status=status)


class _RefusedError(Exception):
    """A request is not read, or not parsed; the message says why."""

    def __init__(self, status: HTTPStatus, message: str):
        super().__init__(f"the tool server refused the call: {message}")
        self.status = status


async def _body(request: web.Request) -> bytes:
    """Returns the body of a request, of which the length is known before it is read.

    Raises:
        _RefusedError: If it is too large, compressed, of unknown length, late, or costs too much to parse.
    """
    if "Content-Encoding" in request.headers:
        raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "it is compressed")
    if request.content_length is None:
        raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "it does not tell its length")
    if request.content_length > MAX_REQUEST_BYTES:
        size, limit = format_bytes(request.content_length), format_bytes(MAX_REQUEST_BYTES)
        raise _RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"with its arguments it has {size}, but {limit} is all it can have"
        )
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            body = await request.read()
    except TimeoutError:
        raise _RefusedError(HTTPStatus.REQUEST_TIMEOUT, f"it did not arrive within {BODY_TIMEOUT:g} s") from None
    if costs_too_much(body):
        raise _RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"it holds more than {MAX_VALUES:,} values: pass them as text",
        )
    return body


def _finite(number: str) -> float:
    """Returns a number of a request.

    Raises:
        _RefusedError: If it is infinite or NaN, which Python's parser accepts, and with which rules can't compare.
    """
    value = float(number)
    if not math.isfinite(value):
        raise _RefusedError(HTTPStatus.BAD_REQUEST, f"{number[:20]} is not a finite number: pass it as text")
    return value


async def _serve(server: web.Server, connection: socket.socket) -> None:
    try:
        await asyncio.get_running_loop().connect_accepted_socket(server, connection)
    except OSError as exc:
        logger.debug("a connection ended before it was served: %s", exc)
        connection.close()


async def _face(tokens: Collection[str], routes: dict[tuple[str, str], Handler]) -> web.AppRunner:
    """Returns a running HTTP server with these routes, which listens nowhere yet; the tokens may change."""
    app = web.Application(middlewares=[_guard(tokens)], client_max_size=MAX_REQUEST_BYTES)
    for (method, path), handler in routes.items():
        app.router.add_route(method, path, handler)
    runner = web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,  # who hangs up withdraws the call
        keepalive_timeout=KEEPALIVE,
        shutdown_timeout=SHUTDOWN_GRACE,
        auto_decompress=False,
    )
    await runner.setup()
    return runner


def _guard(tokens: Collection[str]) -> Middleware:
    """Returns a middleware that lets only requests with one of the tokens through, and none that a web page made."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if "Origin" in request.headers or not _is_local(request.host):
            return web.json_response(RunReply(error="requests of web pages are refused"), status=403)
        presented = request.headers.get("Authorization", "").encode(errors="replace")
        if not any(hmac.compare_digest(presented, f"token {token}".encode()) for token in tokens):
            return web.json_response(RunReply(error="the tool server's token is missing or wrong"), status=401)
        return await handler(request)

    return guard


def _is_local(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
