"""FastMCP's code mode with a full Python instead of Monty: `python fastmcp_provider.py` serves over stdio."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Any

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.experimental.transforms.code_mode import CodeMode

from ipybox import CodeExecutor

#: Code may `return` its result, as in the body of a function.
RUN = """
import ast, json
from mcptools.app import call_tool as _call_tool

async def call_tool(tool_name, params):
    return json.loads(await _call_tool.run_async(_call_tool.Params(tool_name=tool_name, params=params)))

_main = ast.parse("async def main(): pass")
_main.body[0].body = ast.parse(code).body or _main.body[0].body
exec(compile(_main, "code", "exec"))
result = await main()
"""


class IpyboxProvider:
    """Runs the code of `CodeMode` in one kernel, a block at a time. Its options are those of `CodeExecutor`."""

    def __init__(self, **options: Any):
        self.executor = CodeExecutor(tools=[self.call_tool], **options)
        self._turn = asyncio.Lock()
        self._context = copy_context()
        self._functions: dict[str, Callable[..., Any]] = {}

    async def call_tool(self, tool_name: str, params: dict[str, Any]) -> str:
        """Calls a tool of the server for the running block, and returns its result as JSON."""
        call = self._functions["call_tool"](tool_name, params)
        return json.dumps(await asyncio.create_task(call, context=self._context))

    async def run(
        self,
        code: str,
        *,
        inputs: dict[str, Any] | None = None,
        external_functions: dict[str, Callable[..., Any]] | None = None,
    ) -> Any:
        """Returns the result of a block, which is JSON."""
        async with self._turn:
            self._context, self._functions = copy_context(), external_functions or {}
            variables = {**(inputs or {}), "code": code}
            done = await self.executor.execute(RUN, variables=variables, raise_errors=False)
            if done.error is not None:
                raise ToolError(done.for_model(images=False)[0]["text"])
            return await self.executor.get("result")


def make_server(provider: IpyboxProvider) -> FastMCP:
    """Returns a server with one tool, which only code can call."""

    @asynccontextmanager
    async def running(_: FastMCP) -> AsyncGenerator[None]:
        async with provider.executor:
            yield

    server = FastMCP("Sums", lifespan=running, transforms=[CodeMode(sandbox_provider=provider)])

    @server.tool
    def add(x: int, y: int) -> int:
        """Adds two numbers."""
        return x + y

    return server


if __name__ == "__main__":
    make_server(IpyboxProvider(sandbox=True)).run()
