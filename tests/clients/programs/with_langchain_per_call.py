"""LangChain's adapters, with a session for each call, as `get_tools` has it."""

from contextlib import asynccontextmanager
from typing import Any

from battery import Connected, main
from langchain_mcp_adapters.client import MultiServerMCPClient
from with_langchain import LangChain


@asynccontextmanager
async def connect(server: dict[str, Any]) -> Connected:
    """Connects for each call."""
    client = MultiServerMCPClient({"ipybox": {"transport": "http" if "url" in server else "stdio", **server}})
    yield LangChain(await client.get_tools())


main("langchain-mcp-adapters", connect)
