"""The MCP servers of OpenAI's Agents SDK."""

from contextlib import asynccontextmanager
from typing import Any

from agents.mcp import MCPServer, MCPServerStdio, MCPServerStreamableHttp
from battery import PATIENCE, Answer, Connected, answer, main


class OpenAIAgents:
    """A server as an agent has it."""

    def __init__(self, server: MCPServer):
        self._server = server

    async def tools(self) -> list[str]:
        """Lists the tools."""
        return [tool.name for tool in await self._server.list_tools()]

    async def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        """Calls a tool."""
        result = await self._server.call_tool(tool, arguments)
        return answer(result.content, bool(result.is_error))


@asynccontextmanager
async def connect(server: dict[str, Any]) -> Connected:
    """Connects as the SDK's documentation shows, with more patience than the default of five seconds."""
    kind: Any = MCPServerStreamableHttp if "url" in server else MCPServerStdio
    async with kind(params=server, client_session_timeout_seconds=PATIENCE) as connected:
        yield OpenAIAgents(connected)


main("openai-agents", connect)
