"""`generate_mcp_sources` of ipybox, or of the peer.

Usage: generation.py SERVER_PARAMS
"""

import asyncio
import json
import sys
import time
from pathlib import Path

import channel

from ipybox import generate_mcp_sources

PARAMS = json.loads(sys.argv[1])


async def generate() -> float:
    """Times the generation of a package."""
    began = time.perf_counter()
    await generate_mcp_sources("measured", PARAMS, Path("mcptools"))
    return time.perf_counter() - began


async def main() -> None:
    """Generates a package, reports it, and does it again when asked to."""
    await generate()
    channel.say_started()
    await channel.serve({"again": generate})


if __name__ == "__main__":
    asyncio.run(main())
