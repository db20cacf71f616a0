"""LangChain's adapters, with one session for all calls."""

from contextlib import asynccontextmanager
from typing import Any

from battery import Answer, Connected, main
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools


class LangChain:
    """The tools as an agent has them."""

    def __init__(self, tools: list[BaseTool]):
        self._tools = {tool.name: tool for tool in tools}

    async def tools(self) -> list[str]:
        """Lists the tools."""
        return [*self._tools]

    async def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        """Calls a tool."""
        call = {"type": "tool_call", "id": "1", "name": tool, "args": arguments}
        message: ToolMessage = await self._tools[tool].ainvoke(call)
        if isinstance(message.content, str):
            return Answer(error=message.status == "error", texts=[message.content], images=[])
        blocks: list[Any] = message.content
        return Answer(
            error=message.status == "error",
            texts=[block["text"] for block in blocks if block["type"] == "text"],
            images=[(block["mime_type"], block["base64"]) for block in blocks if block["type"] == "image"],
        )


@asynccontextmanager
async def connect(server: dict[str, Any]) -> Connected:
    """Connects as the adapters' documentation shows for servers with state."""
    client = MultiServerMCPClient({"ipybox": {"transport": "http" if "url" in server else "stdio", **server}})
    async with client.session("ipybox") as session:
        yield LangChain(await load_mcp_tools(session))


if __name__ == "__main__":
    main("langchain-mcp-adapters", connect)
