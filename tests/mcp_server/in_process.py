"""ipybox's MCP server in the process of a test, whose client is connected by memory in place of pipes.

All behind the wire is the same, and a process of its own takes a second of processor time to start.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
from mcp import Client
from mcp.shared.memory import MessageStream, create_client_server_memory_streams

from ipybox.mcp_server import MCPServer


@asynccontextmanager
async def connected(server: MCPServer, **options: Any) -> AsyncGenerator[Client]:
    """Connects a client with these options, and stops the server in the end."""
    async with server, _streams(server) as streams, Client(_transport(streams), **options) as client:
        yield client


@asynccontextmanager
async def _streams(server: MCPServer) -> AsyncGenerator[MessageStream]:
    """Serves one client, whose streams are yielded."""
    serving = (await cast(Any, server)._load())._lowlevel_server
    async with create_client_server_memory_streams() as (of_client, of_server), anyio.create_task_group() as group:
        group.start_soon(serving.run, *of_server, serving.create_initialization_options())
        yield of_client
        await of_client[1].aclose()


@asynccontextmanager
async def _transport(streams: MessageStream) -> AsyncGenerator[MessageStream]:
    yield streams
