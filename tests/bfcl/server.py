"""A stdio MCP server with the 128 tools of the benchmark's classes, and two more for tests.

`begin_task` loads the state of a task; `final_state` returns what its calls have made of it.
"""

import asyncio
import json
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from tests.bfcl import tasks

BEGIN: dict[str, Any] = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
TOOLS = [
    types.Tool(name="begin_task", input_schema=BEGIN),
    types.Tool(name="final_state", input_schema={"type": "object"}),
    *(types.Tool.model_validate(each) for each in tasks.tools()),
]

current: tasks.Instances


async def list_tools(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=TOOLS)


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    try:
        text = call(params.name, params.arguments or {})
    except Exception as error:
        return types.CallToolResult(content=[types.TextContent(text=f"{type(error).__name__}: {error}")], is_error=True)
    return types.CallToolResult(content=[types.TextContent(text=text)])


def call(tool: str, arguments: dict[str, Any]) -> str:
    global current
    if tool == "begin_task":
        current = tasks.Instances(tasks.task(arguments["id"]))
        return ""
    return json.dumps(current.state()) if tool == "final_state" else current.call(tool, arguments)


async def main() -> None:
    server = Server("bfcl", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
