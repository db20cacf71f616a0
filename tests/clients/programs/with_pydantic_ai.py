"""The MCP toolset of Pydantic AI."""

import base64
from contextlib import asynccontextmanager
from typing import Any

from battery import PATIENCE, Answer, Connected, main
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from pydantic_ai import BinaryContent, ModelRetry
from pydantic_ai.mcp import MCPToolset


class PydanticAI:
    """A toolset as an agent has it."""

    def __init__(self, toolset: MCPToolset[Any]):
        self._toolset = toolset

    async def tools(self) -> list[str]:
        """Lists the tools."""
        return [tool.name for tool in await self._toolset.list_tools()]

    async def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        """Calls a tool. An error is a request to the model to try again."""
        try:
            result = await self._toolset.direct_call_tool(tool, arguments)
        except ModelRetry as retry:
            return Answer(error=True, texts=[retry.message], images=[])
        blocks: list[Any] = result if isinstance(result, list) else [result]
        images = [block for block in blocks if isinstance(block, BinaryContent)]
        return Answer(
            error=False,
            texts=[str(block) for block in blocks if block not in images],
            images=[(image.media_type, base64.b64encode(image.data).decode()) for image in images],
        )


@asynccontextmanager
async def connect(server: dict[str, Any]) -> Connected:
    """Connects as the framework's documentation shows."""
    transport = StreamableHttpTransport(**server) if "url" in server else StdioTransport(**server)
    async with MCPToolset(transport, read_timeout=PATIENCE) as toolset:
        yield PydanticAI(toolset)


main("pydantic-ai-slim", connect)
