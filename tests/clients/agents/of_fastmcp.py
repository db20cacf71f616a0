"""FastMCP's code mode with the example's provider: each cell is a block of the tool `execute`."""

import asyncio
import json
import sys

from fastmcp import Client
from fastmcp_provider import IpyboxProvider, make_server
from mcp_types import TextContent


async def main() -> list[str]:
    """Returns the text of each result."""
    async with Client(make_server(IpyboxProvider())) as client:
        results = [
            await client.call_tool("execute", {"code": code}, raise_on_error=False) for code in json.loads(sys.argv[1])
        ]
    blocks = [block for result in results for block in result.content]
    return [block.text for block in blocks if isinstance(block, TextContent)]


print(json.dumps(asyncio.run(main())))
