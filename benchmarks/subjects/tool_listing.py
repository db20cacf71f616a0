"""Connects to an MCP server with the SDK's client and lists its tools: the floor of API generation.

Usage: tool_listing.py SERVER_PARAMS
"""

import asyncio
import json
import sys
import time

import channel
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

PARAMS = json.loads(sys.argv[1])
SERVER = PARAMS["url"] if "url" in PARAMS else StdioServerParameters(**PARAMS)


async def list_tools() -> float:
    """Times a session with the server from its beginning, or that of the server, to the end."""
    began = time.perf_counter()
    async with Client(SERVER) as client:
        await client.list_tools()
    return time.perf_counter() - began


async def main() -> None:
    """Lists the tools, reports it, and does it again when asked to."""
    await list_tools()
    channel.say_started()
    await channel.serve({"again": list_tools})


if __name__ == "__main__":
    asyncio.run(main())
