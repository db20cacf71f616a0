"""Version 2 of MCP's Python SDK."""

from contextlib import asynccontextmanager
from typing import Any

import httpx2
from battery import PATIENCE, Answer, Connected, answer, main
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


class SDK2:
    """A client of the SDK."""

    def __init__(self, client: Client):
        self._client = client

    async def tools(self) -> list[str]:
        """Lists the tools."""
        return [tool.name for tool in (await self._client.list_tools()).tools]

    async def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        """Calls a tool."""
        result = await self._client.call_tool(tool, arguments)
        return answer(result.content, result.is_error)


@asynccontextmanager
async def connect(server: dict[str, Any]) -> Connected:
    """Connects as the SDK's documentation shows."""
    if "url" in server:
        async with (
            httpx2.AsyncClient(headers=server["headers"], timeout=PATIENCE) as http,
            Client(streamable_http_client(server["url"], http_client=http)) as client,
        ):
            yield SDK2(client)
    else:
        async with Client(StdioServerParameters(**server)) as client:
            yield SDK2(client)


main("mcp", connect)
