"""FastMCP's client."""

from contextlib import asynccontextmanager
from typing import Any

from battery import PATIENCE, Answer, Connected, answer, main
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport


class FastMCP:
    """A client of FastMCP."""

    def __init__(self, client: Client[Any]):
        self._client = client

    async def tools(self) -> list[str]:
        """Lists the tools."""
        return [tool.name for tool in await self._client.list_tools()]

    async def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        """Calls a tool."""
        result = await self._client.call_tool(tool, arguments, raise_on_error=False, timeout=PATIENCE)
        return answer(result.content, result.is_error)


@asynccontextmanager
async def connect(server: dict[str, Any]) -> Connected:
    """Connects as FastMCP's documentation shows."""
    transport = StreamableHttpTransport(**server) if "url" in server else StdioTransport(**server)
    async with Client(transport) as client:
        yield FastMCP(client)


main("fastmcp", connect)
