"""A client of one MCP server: parameters → transport → session.

An owner task per client enters and leaves the SDK's client, because anyio's cancel scopes require that one task does
both; any task may close the client or call it. When the connection ends for any reason (`connection.py`), the owner
leaves the SDK's client: calls in flight fail, the server's process and pipes close, and `wait_closed` returns.

All errors surface as ipybox's exceptions. Stopping is bounded: the guard ends a server within `process_guard.EXIT_GRACE
+ TERM_GRACE`, and the transport escalates if even that fails.
"""

import asyncio
import logging
import math
import os
from collections import ChainMap
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar

import anyio
import mcp_types
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from pydantic_core import to_json

from ipybox.mcp_client.answers import MAX_TOOLS, ToolList, ToolResult, tool_result, wrap_dispatcher
from ipybox.mcp_client.connection import ClientConnection, TimeLimits
from ipybox.mcp_client.failures import error_text, validation_text
from ipybox.mcp_client.oauth import SignIn
from ipybox.mcp_client.params import RemoteParams, parse_params
from ipybox.support.bounded_json import MAX_VALUES
from ipybox.support.errors import IpyboxError, MCPConnectionLost, MCPServerError, MissingVariableError, ToolRunnerError
from ipybox.workspace.writable import WritablePlaces

logger = logging.getLogger(__name__)

#: Maximum number of `tools/list` pages; more count as endless.
PAGE_LIMIT = 1000

# How often tools are listed at most because they changed meanwhile.
_MAX_CHANGES = 10
# How long a server without tools may take to announce some, and any server to answer a ping.
_ANNOUNCEMENT_TIMEOUT = 5.0

# The longest that the SDK and the guard need to stop a server, plus a margin.
_STOP_TIMEOUT = 6.0

_T = TypeVar("_T")


class MCPClient:
    """A connection to the MCP server that `server_params` describe: a context manager that can be entered once.

    Args:
        server_params: See `params.py`. `${NAME}` in any value is replaced by the environment variable when the client
            is entered, or by its value in `variables`.
        connect_timeout: Seconds for the server to start and answer.
        sign_in: Shows a person the URL at which to sign in to a remote server (OAuth), and may wait for the person.
            Without it, stored sign-ins are used, and renewed silently.
        variables: Values of placeholders that the environment lacks.
        secrets: Values of placeholders that the environment does not change.
        places: The places that code can write, from which a stdio server loads nothing; by default the working
            directory.
        on_progress: Called with each line that a stdio server or its launcher writes to stderr until it has answered.

    Raises:
        ValueError: If the parameters have a wrong shape; the message names the key.
        MissingVariableError: On entering, if a placeholder has no value.
        MCPServerError: On entering, for every other failure.
    """

    def __init__(
        self,
        server_params: dict[str, Any],
        connect_timeout: float = 10,
        *,
        sign_in: SignIn | None = None,
        variables: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        places: WritablePlaces | None = None,
        on_progress: Callable[[str], None] | None = None,
    ):
        self._connect_timeout = connect_timeout
        env = ChainMap(dict(secrets or {}), os.environ, dict(variables or {}))
        described = parse_params(server_params)
        self._options = described, server_params, env, connect_timeout, sign_in, places, on_progress
        self._owner: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._error: Exception | None = None
        self._connection: ClientConnection | None = None
        self._client: Client | None = None
        self._tools_changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        if self._owner is not None:
            raise RuntimeError("an MCPClient can be entered only once")
        self._owner = asyncio.create_task(self._own(), name="ipybox-mcp-client")
        try:
            await self._settled.wait()
        except asyncio.CancelledError:
            await self.close()
            raise
        if self._error is not None:
            raise self._error
        if self._client is None:
            raise MCPServerError("the client was closed before it was connected")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def closed(self) -> bool:
        """Whether the connection has ended, because it was closed or because the server is gone."""
        return self._connection is not None and self._connection.ended.is_set()

    async def wait_closed(self) -> None:
        """Waits until the connection has ended; for a stdio server, that is as soon as it dies."""
        await self._established()[1].ended.wait()

    async def close(self, reason: str = "the client was closed") -> None:
        """Ends the connection, and stops a server that this client started. Calls in flight fail with `reason`."""
        if self._owner is None:
            return
        if self._connection is not None:
            self._connection.mark_ended(reason, deliberate=True)
        else:
            self._owner.cancel()  # before its first step
        await asyncio.wait({self._owner}, timeout=_STOP_TIMEOUT)
        if self._owner.cancelled():
            self._settled.set()
        if not self._owner.done():
            logger.error("an MCP server could not be stopped within %g s", _STOP_TIMEOUT)
            self._owner.cancel()

    @property
    def tools_changed(self) -> bool:
        """Whether the server has announced a change of its tools since they were listed."""
        return self._tools_changed.is_set()

    async def list_tools(self) -> ToolList:
        """Returns the server's tools, from all pages, with remarks on malformed ones.

        If the server announces that they have changed, they are listed again. A server that has no tools yet, but
        supports such announcements, gets some time to send one.

        Raises:
            MCPServerError: If the server can't list them, takes longer than the connect timeout for all pages, or
                its pages don't end.
            MCPConnectionLost: If it sends more than 32 MiB or 500,000 values meanwhile, which ends the connection.
        """
        client, connection = self._established()
        capability = client.server_capabilities.tools
        # With newer protocol versions, servers announce nothing unless asked to.
        announced = client.protocol_version not in MODERN_PROTOCOL_VERSIONS and capability and capability.list_changed
        tools = ToolList()
        for _ in range(_MAX_CHANGES):
            self._tools_changed.clear()
            tools = await self._list_tools(client, connection)
            if announced:
                await self._await_announcements(client, connection, late=not tools)
            if not self._tools_changed.is_set():
                break
        return tools

    async def _await_announcements(self, client: Client, connection: ClientConnection, *, late: bool) -> None:
        """Waits until the server's announcements so far are read and, if `late`, a while longer for a first one."""
        with suppress(TimeoutError), connection.limits.limit(_ANNOUNCEMENT_TIMEOUT):
            with suppress(IpyboxError):
                await self._request(client.session.send_ping())  # its answer follows earlier messages
            if late and not connection.ended.is_set():
                await self._tools_changed.wait()

    async def _note_change(self, message: mcp_types.ServerNotification | Exception) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._tools_changed.set()

    async def _list_tools(self, client: Client, connection: ClientConnection) -> ToolList:
        tools = ToolList(connection.choice)
        cursor: str | None = None
        cursors: set[str] = set()
        connection.message_limit.listed = 0, 0
        try:
            with connection.limits.limit(self._connect_timeout):
                while len(cursors) < PAGE_LIMIT:
                    page = await self._request(client.list_tools(cursor=cursor))
                    tools.add(page)
                    if len(tools) > MAX_TOOLS:
                        break
                    cursor = page.next_cursor
                    if not cursor:
                        return tools
                    if cursor in cursors:
                        tools.remarks.append(
                            "the tool list may be incomplete: the server keeps returning the same page"
                        )
                        return tools
                    cursors.add(cursor)
            problem = f"tools/list returned more than {PAGE_LIMIT} pages, or {MAX_TOOLS:,} tools"
            raise MCPServerError(connection.error_text(problem))
        except TimeoutError as exc:
            problem = f"no complete response to tools/list within {self._connect_timeout:g} s"
            raise MCPServerError(connection.error_text(problem)) from exc
        except ToolRunnerError as exc:
            if client.server_capabilities.tools is not None:
                raise MCPServerError(connection.error_text(f"can't list its tools: {exc}")) from exc.__cause__
        finally:
            connection.message_limit.listed = None
        return tools

    async def call(self, tool_name: str, tool_args: dict[str, Any]) -> ToolResult:
        """Calls a tool and returns the server's result, `is_error` or not.

        Raises:
            ToolRunnerError: If the arguments are not JSON, the server rejects the call, or its response isn't valid.
            MCPConnectionLost: If the connection ends before the response.
        """
        client, _ = self._established()
        try:
            values = tool_args.values()
            if {*map(type, values)} != {str} or not all(map(str.isascii, values)):
                to_json(tool_args)  # the SDK would end the connection
        except ValueError as exc:
            raise ToolRunnerError(f"can't send the arguments of {tool_name}: {exc}") from exc
        return tool_result(await self._request(client.call_tool(tool_name, tool_args)))

    async def run(self, tool_name: str, tool_args: dict[str, Any]) -> dict[str, Any] | str | None:
        """Calls a tool and returns the value of its result; raises what `call` and `tool_value` raise."""
        return tool_value(await self.call(tool_name, tool_args))

    async def _own(self) -> None:
        """Runs the session from start to end; the only task that enters and leaves it."""
        deadline = anyio.current_time() + self._connect_timeout
        try:
            failed = await self._hold_session(deadline)
            if failed is not None and failed.refused:
                failed = await self._hold_session(deadline, probe=True)
            if failed is not None:
                self._error = MCPServerError(failed.explain("can't connect to"))
                self._error.__cause__ = failed.failure
        except (MissingVariableError, MCPServerError, ValueError) as exc:
            self._error = exc
        finally:
            self._settled.set()

    async def _hold_session(self, deadline: float, *, probe: bool = False) -> ClientConnection | None:
        """Connects and waits until the connection ends; returns the connection if connecting failed.

        With `probe`, the client first asks for the protocol version, as protocol version 2026-07-28 defines.
        """
        connection = self._connection = ClientConnection(
            *self._options, TimeLimits(anyio.CancelScope(deadline=deadline))
        )
        # HTTP servers answer every request, but stdio servers may exit (https://github.com/0xMassi/webclaw/issues/107)
        # or stop answering, like those built with the Python SDK 1.2. SSE predates the probe.
        probe = probe or (isinstance(connection.server, RemoteParams) and connection.server.kind == "http")
        failure: Exception | None = None
        with connection.limits.scope:
            try:
                async with Client(
                    await connection.transport(),
                    mode="auto" if probe else "legacy",
                    cache=None,
                    message_handler=self._note_change,
                ) as client:
                    client.session.validate_tool_result = _leave_unchecked
                    wrap_dispatcher(client.session, partial(connection.mark_ended, deliberate=True))
                    connection.established, connection.message_limit.most = True, MAX_VALUES
                    connection.limits.scope.deadline = math.inf
                    self._client = client
                    self._settled.set()
                    await connection.ended.wait()
            except MCPServerError:
                raise
            except Exception as exc:  # the SDK and HTTP raise all sorts, in groups; translated here, once
                failure = exc
        connection.mark_closed(failure)
        return None if connection.established else connection

    async def _request(self, request: Awaitable[_T]) -> _T:
        """Awaits a response of the server and translates errors."""
        _, connection = self._established()
        try:
            return await request
        except MCPError as exc:
            failure = connection.failure_of(exc)
            if failure is None:
                raise ToolRunnerError(connection.redact(error_text(exc.error))) from exc
            if connection.ended.is_set():
                raise await self._loss() from exc
            raise connection.error_for(failure) from exc
        except ValidationError as exc:
            problem = f"the server's response is not valid MCP: {validation_text(exc)}"
            raise ToolRunnerError(connection.redact(problem)) from exc
        except RuntimeError as exc:  # the SDK's, for example for endless elicitation requests
            if connection.ended.is_set():
                raise await self._loss() from exc
            raise ToolRunnerError(connection.redact(str(exc))) from exc

    async def _loss(self) -> MCPConnectionLost:
        _, connection = self._established()
        if not connection.deliberate and self._owner is not None:
            # The owner task ends by collecting the server's exit code and last output.
            await asyncio.wait({self._owner}, timeout=_STOP_TIMEOUT)
        return MCPConnectionLost(connection.explain("lost the connection to"))

    def _established(self) -> tuple[Client, ClientConnection]:
        if self._client is None or self._connection is None:
            raise RuntimeError("the MCPClient is not connected: enter it with `async with` first")
        return self._client, self._connection


async def _leave_unchecked(name: str, result: mcp_types.CallToolResult) -> None:
    """Replaces the SDK's check of a result against the tool's output schema, which could take years.

    The server chooses both, and could combine a pattern such as `^(a+)+$` with a long text. The `Result` of a generated
    module checks the types in the kernel, where a cell's timeout ends the check.
    """


def tool_value(result: ToolResult) -> dict[str, Any] | str | None:
    """Returns a result's structured content, else its text blocks joined by newlines, or None if it has neither.

    Raises:
        ToolRunnerError: If the result is an error; the message is its text.
    """
    texts = [str(block["text"]) for block in result.content if block["type"] == "text"]
    text = "\n".join(texts) if texts else None
    if result.is_error:
        raise ToolRunnerError(text or "the tool failed without a message")
    return text if result.structured_content is None else result.structured_content
