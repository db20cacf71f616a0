"""Version 1 of MCP's Python SDK."""

from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
from battery import PATIENCE, Answer, Connected, answer, main
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


class SDK1:
    """A session of the SDK."""

    def __init__(self, session: ClientSession):
        self._session = session

    async def tools(self) -> list[str]:
        """Lists the tools."""
        return [tool.name for tool in (await self._session.list_tools()).tools]

    async def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        """Calls a tool."""
        result = await self._session.call_tool(tool, arguments, read_timeout_seconds=timedelta(seconds=PATIENCE))
        return answer(result.content, bool(result.isError))


@asynccontextmanager
async def connect(server: dict[str, Any]) -> Connected:
    """Connects as the SDK's documentation shows."""
    if "url" in server:
        async with (
            httpx.AsyncClient(headers=server["headers"], timeout=PATIENCE) as http,
            streamable_http_client(server["url"], http_client=http) as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            yield SDK1(session)
    else:
        async with (
            stdio_client(StdioServerParameters(**server)) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            yield SDK1(session)


main("mcp", connect)
