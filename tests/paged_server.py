"""A stdio MCP server, made with the SDK's low-level server, that lists its tools in pages of two.

python paged_server.py PAGES | endless | repeating
"""

import asyncio
import itertools
import sys
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

PAGES = sys.argv[1]
SCHEMA: dict[str, Any] = {"type": "object"}
RESULT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"page": {"type": "integer"}},
    "required": ["page"],
}

listed = itertools.count(1)


async def list_tools(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    print(f"tools/list {next(listed)}", file=sys.stderr, flush=True)
    page = int(params.cursor) if params is not None and params.cursor is not None else 1
    last = PAGES.isdigit() and page == int(PAGES)
    return types.ListToolsResult(
        tools=[types.Tool(name=f"tool_{page}_{i}", input_schema=SCHEMA, output_schema=RESULT_SCHEMA) for i in (1, 2)],
        next_cursor=None if last else "1" if PAGES == "repeating" else str(page + 1),
    )


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    page: Any = int(params.name.split("_")[1])
    if (params.arguments or {}).get("wrong"):
        page = "not a number"
    return types.CallToolResult(content=[], structured_content={"page": page})


async def main() -> None:
    server = Server("paged", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
