"""A session of the MCP SDK's client, with nothing between: the floor of tool calls.

Usage: direct_session.py SERVER_PARAMS
"""

import asyncio
import json
import sys
import time
from typing import Any

import channel
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters


class Subject:
    """The operations that can be asked for."""

    def __init__(self, client: Client):
        self._client = client

    async def call(self, tool: str, arguments: dict[str, Any], count: int) -> list[float]:
        """Times calls one by one."""
        seconds: list[float] = []
        for _ in range(count):
            began = time.perf_counter()
            await self._client.call_tool(tool, arguments)
            seconds.append(time.perf_counter() - began)
        return seconds

    async def call_at_once(self, tool: str, arguments: dict[str, Any], count: int, workers: int) -> float:
        """Returns how many calls a second several tasks make together."""

        async def work() -> None:
            for _ in range(count // workers):
                await self._client.call_tool(tool, arguments)

        began = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(workers)))
        return count / (time.perf_counter() - began)


async def main() -> None:
    """Connects to a server, reports its answer, and does what is asked for."""
    async with Client(StdioServerParameters(**json.loads(sys.argv[1]))) as client:
        await client.list_tools()
        channel.say_started()
        subject = Subject(client)
        await channel.serve({"call": subject.call, "call_at_once": subject.call_at_once})


if __name__ == "__main__":
    asyncio.run(main())
