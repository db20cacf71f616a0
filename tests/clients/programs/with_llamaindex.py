"""LlamaIndex' client, which connects for each call."""

from contextlib import asynccontextmanager
from typing import Any

from battery import PATIENCE, Answer, Connected, answer, main
from llama_index.tools.mcp import BasicMCPClient


class LlamaIndex:
    """A client of LlamaIndex."""

    def __init__(self, client: BasicMCPClient):
        self._client = client

    async def tools(self) -> list[str]:
        """Lists the tools."""
        return [tool.name for tool in (await self._client.list_tools()).tools]

    async def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        """Calls a tool."""
        result = await self._client.call_tool(tool, arguments)
        return answer(result.content, bool(result.is_error))


@asynccontextmanager
async def connect(server: dict[str, Any]) -> Connected:
    """Connects at each call."""
    address = server.get("url") or server["command"]
    rest = {name: value for name, value in server.items() if name not in ("url", "command")}
    yield LlamaIndex(BasicMCPClient(address, timeout=PATIENCE, **rest))


main("llama-index-tools-mcp", connect)
