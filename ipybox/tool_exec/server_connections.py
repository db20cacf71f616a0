"""The MCP servers of a tool server: each starts at its first call and keeps running.

The first call starts a server connection; concurrent calls wait for it. The connection ends when

    - the server crashes, the connection breaks, or the start fails
    - the server is called with other parameters
    - `reset` or `aclose` is called

Calls in flight then fail. The next call starts a new connection after the old server is gone: two servers with the same
name never run at the same time.

If a remote server no longer knows a call's session, the call is repeated once in a new session, as the specification
requires, unless its tool has changed. The old connection stays open until its other calls end, because they may still
be answered.
"""

import asyncio
import importlib
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ipybox.support.errors import (
    IpyboxError,
    MCPConnectionLost,
    MCPServerError,
    MCPSessionExpired,
    MissingVariableError,
    ToolRunnerError,
)
from ipybox.support.tasks import Detached
from ipybox.workspace.seal import ImportedSecrets

if TYPE_CHECKING:
    from ipybox.guest.tools.protocol import RunRequest
    from ipybox.mcp_client.answers import ToolList, ToolResult
    from ipybox.mcp_client.client import MCPClient
    from ipybox.workspace.writable import WritablePlaces


#: Seconds after which a server's tools are listed again to decide on a call: not every server announces changes.
LISTED_FOR = 60.0


class ServerConnections:
    """Connections to MCP servers, by name. The arguments are those of `ToolServer`."""

    def __init__(
        self,
        connect_timeout: float,
        read_variables: Callable[[], Mapping[str, str]] = dict,
        places: "WritablePlaces | None" = None,
    ):
        self._connect_timeout, self._read_variables, self._places = connect_timeout, read_variables, places
        self._connections: dict[str, _ServerConnection] = {}
        #: Whether calls are refused: from `aclose` until the owner resets it.
        self.closed = False

    async def call(
        self,
        server_name: str,
        server_params: dict[str, Any],
        tool_name: str,
        tool_args: dict[str, Any],
        definition: str | None = None,
    ) -> "ToolResult":
        """Returns the server's result of a tool call, even if `is_error` is set.

        Starts the server if it isn't running with these parameters. Cancelling cancels this call only. If a
        `definition` is given, the tool must still have it.

        Raises:
            ToolRunnerError: If the server rejects the call; contains the server's text. Or if the tool has changed.
            MCPConnectionLost: If the connection ends before the response, or all connections are closed.
            MCPServerError: If the server can't be started or reached. The next call tries again.
            MissingVariableError: If a placeholder in the parameters has no value.
            ValueError: If the parameters are malformed.
        """
        connection = self._current(server_name, server_params)
        try:
            return await connection.call(tool_name, tool_args, definition)
        except MCPSessionExpired:
            connection.expire()
        return await self._current(server_name, server_params).call(tool_name, tool_args, definition)

    async def definition(self, call: "RunRequest") -> str | None:
        """Returns the hash of a call's tool, as `PinnedTool.digest`, by the server's latest list of its tools.

        Starts the server if needed. None if the server does not define the tool, or can't be asked.
        """
        for _ in range(2):  # again in a new session if the server has forgotten the current one
            connection = self._current(call["server_name"], call["server_params"])
            try:
                return (await connection.definitions()).get(call["tool_name"])
            except MCPSessionExpired:
                connection.expire()
            except (IpyboxError, ValueError, OSError):
                break  # the call itself reports it
        return None

    def _current(self, server_name: str, server_params: dict[str, Any]) -> "_ServerConnection":
        if self.closed:
            raise MCPConnectionLost(f"MCP server {server_name!r}: the tool server was stopped")
        key = json.dumps(server_params, sort_keys=True)
        connection = self._connections.get(server_name)
        if connection is None or connection.key != key or connection.ended:
            connection = _ServerConnection(
                server_name, key, partial(self._connect, server_name, server_params), predecessor=connection
            )
            self._connections[server_name] = connection
        return connection

    async def _connect(self, server_name: str, server_params: dict[str, Any]) -> "MCPClient":
        # Not at startup, because the MCP SDK takes a second to import.
        module = await asyncio.to_thread(importlib.import_module, "ipybox.mcp_client.client")
        options: dict[str, Any] = {"variables": await asyncio.to_thread(self._read_variables), "places": self._places}
        if self._places is not None:
            secrets = ImportedSecrets(self._places.workspace)
            options["secrets"] = await asyncio.to_thread(secrets.of, server_name, server_params)
        client: MCPClient = module.MCPClient(server_params, self._connect_timeout, **options)
        return await client.__aenter__()

    def status(self) -> list[str]:
        """Returns the names of the servers that are running, sorted."""
        return sorted(name for name, connection in self._connections.items() if connection.running)

    async def aclose(self) -> None:
        """Stops all servers and accepts no more calls."""
        self.closed = True
        await self.reset("the tool server was stopped")

    async def reset(self, reason: str = "the tool server was reset") -> None:
        """Stops all servers. Calls in flight fail with `MCPConnectionLost`, later ones start them again."""
        connections = dict(self._connections)
        await asyncio.gather(*map(_ServerConnection.stop, connections.values(), repeat(reason)))
        for name, connection in connections.items():
            if self._connections.get(name) is connection:
                del self._connections[name]


class _ServerConnection:
    """One server, from start to stop.

    It starts when its predecessor is gone. A predecessor whose session expired may keep running until both stop.
    """

    def __init__(
        self,
        name: str,
        key: str,
        connect: "Callable[[], Awaitable[MCPClient]]",
        predecessor: "_ServerConnection | None",
    ):
        self.key = key
        self._calls = 0
        self._expired = False  # the last call in flight stops the server
        self._name = name
        self._predecessor = predecessor
        self._client: MCPClient | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._reason = "it was stopped"
        # The start belongs to no call and outlives a cancelled one. Every call that waits for it raises its failure.
        self._start = Detached(self._run_start(connect))
        #: The hashes of the tools' definitions when they were listed last, if ever, and when they have to be again.
        self.listed: Mapping[str, str | None] | None = None
        self._outdated = 0.0
        self._listing = asyncio.Lock()

    @property
    def running(self) -> bool:
        return not self.ended and self._client is not None

    @property
    def ended(self) -> bool:
        """Whether the connection is no longer usable: it failed, broke, expired or is being stopped."""
        if self._stopping is not None or self._expired:
            return True
        return self._start.task.done() and (self._client is None or self._client.closed)

    async def call(self, tool_name: str, tool_args: dict[str, Any], definition: str | None) -> "ToolResult":
        """Waits for the start and calls a tool, unless it has another definition than a given one."""
        self._calls += 1
        try:
            # The server may have started anew since the decision on the call.
            if definition is not None and (await self.definitions()).get(tool_name) != definition:
                raise ToolRunnerError(f"MCP server {self._name!r} changed {tool_name!r} meanwhile: repeat the call")
            return await (await self._started()).call(tool_name, tool_args)
        # A new exception for each call: they all wait for the same start.
        except (MCPServerError, MissingVariableError) as exc:
            raise type(exc)(f"MCP server {self._name!r}: {exc}") from exc
        except ValueError as exc:
            raise ValueError(f"MCP server {self._name!r}: {exc}") from exc
        finally:
            self._calls -= 1
            if self._expired:
                self.expire()

    async def definitions(self) -> Mapping[str, str | None]:
        """Waits for the start and returns the hashes of the tools, listed again if they may have changed."""
        client = await self._started()
        async with self._listing:
            now = asyncio.get_running_loop().time()
            if self.listed is None or client.tools_changed or now >= self._outdated:
                self._outdated = now  # until they are listed again
                self.listed = await asyncio.to_thread(_hashes, await client.list_tools())
                self._outdated = now + LISTED_FOR
            return self.listed

    async def _started(self) -> "MCPClient":
        if not self._start.task.done():
            await self._start.ended()
        if self._start.task.cancelled():
            raise MCPConnectionLost(self._reason)
        return self._start.task.result()

    def expire(self) -> None:
        """Stops the server after the last call in flight."""
        self._expired = True
        if not self._calls:
            self.stop("its session expired")

    def stop(self, reason: str) -> Awaitable[None]:
        """Stops the server in any state; awaiting the result, bounded by `MCPClient.close`, waits until it is gone."""
        if self._stopping is None:
            self._reason = reason
            self._stopping = asyncio.create_task(self._close(reason), name=f"ipybox-mcp-stop-{self._name}")
        return asyncio.shield(self._stopping)

    async def _run_start(self, connect: "Callable[[], Awaitable[MCPClient]]") -> "MCPClient":
        if self._predecessor is not None and not self._predecessor._expired:
            await self._predecessor.stop("it was restarted with other parameters")
            self._predecessor = None
        self._client = client = await connect()
        return client

    async def _close(self, reason: str) -> None:
        self._start.task.cancel()
        await asyncio.wait([self._start.task])
        if self._predecessor is not None:
            await self._predecessor.stop(reason)
            self._predecessor = None
        if self._client is not None:
            await self._client.close(reason)


def _hashes(tools: "ToolList") -> dict[str, str | None]:
    # Only policies with hints need the generator's modules.
    from ipybox.mcp_apigen.package.hashes import meaning_hash

    return {tool.name: meaning_hash(tool) for tool in tools}
