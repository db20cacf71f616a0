"""The tool server: runs tools of MCP servers, and functions of the application, on behalf of kernels.

It serves two HTTP APIs, each with its own tokens:

- The *kernel API* (`kernel_requests`) serves connections from kernels (`accept_kernel_connection`).
- The *application API* serves connections to the port, if there is one. It can also reset the server, report its
  status, and open the approval channel.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Self

from aiohttp import web

from ipybox.audit.recorder import SessionRecorder
from ipybox.guest.tools.protocol import APPROVAL_PATH, MAX_REQUEST_BYTES, RESET_PATH, STATUS_PATH, RunReply
from ipybox.support.listen import listen
from ipybox.support.printable import PrintableFormatter
from ipybox.support.tasks import TaskSet
from ipybox.support.tokens import new_token, publish_token
from ipybox.tool_exec.approval.protocol import OTHER_CLIENT
from ipybox.tool_exec.approval.server import ApprovalChannel
from ipybox.tool_exec.dispatch import ToolCaller
from ipybox.tool_exec.http_api import HTTPAPI, MAX_UNAUTHENTICATED
from ipybox.tool_exec.kernel_requests import KernelRequests
from ipybox.tool_exec.server_connections import ServerConnections
from ipybox.workspace.seal import SealVerifier
from ipybox.workspace.writable import WritablePlaces

if TYPE_CHECKING:
    from ipybox.tool_exec.function_tools import FunctionTools

logger = logging.getLogger(__name__)

#: Seconds for calls in progress to finish when the server stops.
SHUTDOWN_GRACE = 1.0


class ToolServer:
    """Runs tools of MCP servers, which start at their first call and keep running.

    It runs in the event loop that starts it, and does not change the application's signal handlers.

    Args:
        host: The host to listen on if there is a port.
        port: The port to listen on, or None for no port; 0 picks a free one.
        approval_required: Whether the application must accept each call.
        approval_timeout: Seconds until an approval request expires; None for no limit.
        connect_timeout: Seconds for an MCP server to start and answer.
        log_to_stderr: Whether ipybox's log also goes to this process's stderr.
        log_level: Level of that log.
        sealed_workspace: If given, calls from a kernel must carry a seal of their server's parameters for this
            workspace. Required for confined kernels: otherwise, code could start any command outside the sandbox.
        caller: The caller of both APIs; by default a kernel with a new token, whose calls an `ApprovalClient` decides
            on. `serving` adds more callers.
        places: The places that code can write; servers load nothing from them. By default the working directory.
        read_variables: Returns values for placeholders in server parameters that the environment does not set. Called
            whenever a server starts.
        install: Installs a package for a kernel, or removes it if the second argument is true, and returns what was
            done. Called after approval of `ipybox.install_package` or `ipybox.uninstall_package`. If None, code can't
            install packages.
        functions: The functions of the application, as tools of a server named `app`.
        shell_commands: Whether kernels ask for approval of shell commands, as calls of `ipybox.shell`.
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
        sealed_workspace: Path | None = None,
        caller: ToolCaller | None = None,
        places: WritablePlaces | None = None,
        read_variables: Callable[[], Mapping[str, str]] = dict,
        install: Callable[[str, bool], Awaitable[str]] | None = None,
        functions: "FunctionTools | None" = None,
        shell_commands: bool = False,
    ):
        self.host = host
        self.port = port
        self._approvals = ApprovalChannel(approval_required, approval_timeout)
        self._new_connections = partial(ServerConnections, connect_timeout, read_variables, places)
        self._connections = self._new_connections()
        self._functions = functions
        if caller is None:
            seals = SealVerifier(sealed_workspace) if sealed_workspace is not None else None
            caller = ToolCaller(
                token=new_token(), approvals=self._approvals, recorder=SessionRecorder(), registrations=seals
            )
        self.kernel_token = caller.token
        self._application = replace(caller, connections=self._connections, functions=functions)
        #: Kernels by token.
        self._callers = {self.kernel_token: self._application}
        self._log_handler = logging.StreamHandler(sys.stderr) if log_to_stderr else None
        self._log_level = log_level
        self._kernel_requests = KernelRequests(sealed_workspace is not None, install, shell_commands)
        self._kernel_api: web.ServerRunner | None = None
        self._application_api: web.ServerRunner | None = None
        self._tasks = TaskSet()
        self._token_file: Path | None = None
        self._stopped = asyncio.Event()
        #: Connections from kernels that the HTTP server has not received yet.
        self._arriving: set[socket.socket] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Starts serving.

        Raises:
            RuntimeError: If the server is already running.
            OSError: If the port is taken.
        """
        if self._kernel_api is not None:
            raise RuntimeError("the tool server is already running")
        listener = listen(self.host, self.port) if self.port is not None else None
        self._stopped.clear()
        self._connections.closed = False
        if self._log_handler is not None:
            self._log_handler.setFormatter(PrintableFormatter())
            root = logging.getLogger("ipybox")
            root.addHandler(self._log_handler)
            root.setLevel(self._log_level)
        try:
            await self._serve(listener)
        except BaseException:
            if listener is not None:
                listener.close()
            await asyncio.shield(self.stop())
            raise

    async def stop(self) -> None:
        """Stops serving and ends all MCP servers."""
        if self._token_file is not None:
            self._token_file.unlink(missing_ok=True)
            self._token_file = None
        # From here on, new connections are refused.
        apis = (self._kernel_api, self._application_api)
        self._kernel_api = self._application_api = None
        await self._approvals.disconnect()
        await self._tasks.cancel()
        for connection in self._arriving:
            connection.close()
        self._arriving.clear()
        await self._connections.aclose()
        for api in apis:
            if api is not None:
                await api.cleanup()
        if self._log_handler is not None:
            logging.getLogger("ipybox").removeHandler(self._log_handler)
        self._stopped.set()

    async def _serve(self, listener: socket.socket | None) -> None:
        self._kernel_api = _runner(HTTPAPI(self._callers, self._kernel_requests.handlers))
        if listener is not None:
            await self._serve_application(listener)
        await self._kernel_api.setup()

    async def _serve_application(self, listener: socket.socket) -> None:
        # Clients can connect already, so the token must exist. They get answers once the server runs.
        self.port, token = int(listener.getsockname()[1]), new_token()
        self._token_file = publish_token("tool-server", self.port, token)
        handlers = {
            **KernelRequests().handlers,  # need no seal
            ("PUT", RESET_PATH): self._reset,
            ("GET", STATUS_PATH): self._status,
            ("GET", APPROVAL_PATH): self._approval,
        }
        self._application_api = _runner(HTTPAPI({token: self._application}, handlers))
        await self._application_api.setup()
        await web.SockSite(self._application_api, listener).start()

    async def join(self) -> None:
        """Waits until the server is stopped."""
        await self._stopped.wait()

    async def reset(self) -> None:
        """Stops all MCP servers; they start again at their next call."""
        await self._connections.reset()

    @asynccontextmanager
    async def serving(self, caller: ToolCaller) -> AsyncGenerator[ServerConnections]:
        """Serves a kernel's calls in the context, with MCP servers of its own; yields the connections to them."""
        if caller.token == self.kernel_token:
            try:
                yield self._connections
            finally:
                await self._connections.reset()
            return
        connections = self._new_connections()
        self._callers[caller.token] = replace(caller, connections=connections, functions=self._functions)
        try:
            yield connections
        finally:
            del self._callers[caller.token]
            await connections.aclose()

    def accept_kernel_connection(self, connection: socket.socket) -> None:
        """Serves a connection from a kernel; takes ownership of the socket."""
        server = self._kernel_api.server if self._kernel_api is not None else None
        if server is None or len(self._arriving) >= MAX_UNAUTHENTICATED:
            connection.close()
        else:
            self._arriving.add(connection)
            self._tasks.start(self._serve_kernel(server, connection))

    async def _serve_kernel(self, server: web.Server, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(server, connection)
        except OSError as exc:
            logger.debug("a connection ended before it was served: %s", exc)
            connection.close()
        self._arriving.discard(connection)

    async def _reset(self, *_: object) -> web.Response:
        await self.reset()
        return web.json_response({})

    async def _status(self, *_: object) -> web.Response:
        return web.json_response({"servers": self._connections.status(), "approval_client": self._approvals.open})

    async def _approval(self, request: web.BaseRequest, _: ToolCaller) -> web.StreamResponse:
        if self._approvals.open:
            return web.json_response(RunReply(error=OTHER_CLIENT), status=HTTPStatus.CONFLICT)
        websocket = web.WebSocketResponse(max_msg_size=MAX_REQUEST_BYTES)
        await websocket.prepare(request)
        await self._approvals.connect(websocket)
        return websocket


def _runner(api: HTTPAPI) -> web.ServerRunner:
    return web.ServerRunner(api, shutdown_timeout=SHUTDOWN_GRACE)
