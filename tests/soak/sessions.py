"""Sessions of a soak: kernels that are reached in different ways, and all that an application can do with each."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from mcp import Client
from mcp_types import CallToolResult, TextContent

from ipybox import ApprovalRequest, CodeExecutor, generate_mcp_sources
from ipybox.code_exec.model_output import NO_OUTPUT
from ipybox.errors import CodeExecutionError, ExecutionTimeoutError, GatewayError
from ipybox.support.outputs import ExecutionOutput
from tests import servers
from tests.conftest import Mode
from tests.faults.model import Calls, Outcome, outcome_of
from tests.mcp_server.test_server import client_of
from tests.servers import WAIT

#: What each notice begins with, over MCP.
MARK = "[ipybox] "

#: What kernels import their tools from.
REGISTERED = "from mcptools.scripted import CLIENT as scripted"


class Session(Protocol):
    """A kernel with variables and MCP servers of its own.

    Attributes:
        name: Its name, which no other one has.
    """

    name: str

    async def run(self, code: str, timeout: float, tag: str, calls: tuple[str, ...]) -> Outcome:
        """Executes a cell, and accepts its tool calls."""
        ...

    async def reset(self) -> None:
        """Replaces the kernel.

        Raises:
            GatewayError: If that fails.
        """
        ...

    async def register(self, server: str, params: dict[str, Any]) -> None:
        """Registers an MCP server, and checks that all tools of the scripted server are said to be there."""
        ...


class SDKSession:
    """A session of an application that uses the SDK."""

    def __init__(self, name: str, executor: CodeExecutor, workspace: Path, calls: Calls):
        self.name = name
        self._executor = executor
        self._workspace = workspace
        self._calls = calls

    async def run(self, code: str, timeout: float, tag: str, calls: tuple[str, ...]) -> Outcome:
        async def approve(request: ApprovalRequest) -> None:
            call = str(request.tool_args["text"])
            self._calls.requested(call, tag)
            if await request.accept():
                self._calls.accepted(call)

        return await outcome_of(self._executor.execute(code, timeout, approver=approve))

    async def reset(self) -> None:
        await self._executor.reset()

    async def register(self, server: str, params: dict[str, Any]) -> None:
        modules = await generate_mcp_sources(server, params, self._workspace / "mcptools")
        assert "record" in list(modules), f"not all tools are there: {list(modules)}"


class MCPSession:
    """A session of a client of ipybox's MCP server, which accepts all tool calls."""

    def __init__(self, name: str, client: Client, calls: Calls):
        self.name = name
        self._client = client
        self._calls = calls

    async def run(self, code: str, timeout: float, tag: str, calls: tuple[str, ...]) -> Outcome:
        for call in calls:
            self._calls.requested(call, tag)
            self._calls.accepted(call)
        return _outcome(tag, await self._call("execute_ipython_cell", code=code, timeout=timeout, session=self.name))

    async def reset(self) -> None:
        result = await self._call("reset", session=self.name)
        if result.is_error:
            raise GatewayError("\n".join(_texts(result)))

    async def register(self, server: str, params: dict[str, Any]) -> None:
        result = await self._call("register_mcp_server", server_name=server, server_params=params)
        text = "\n".join(_texts(result))
        assert not result.is_error, text
        assert "record" in text.split() or text.startswith("unchanged: "), f"not all tools are there: {text}"

    async def _call(self, tool: str, **arguments: Any) -> CallToolResult:
        return await self._client.call_tool(tool, arguments)


@asynccontextmanager
async def sessions(directory: Path, mode: Mode, calls: Calls, params: dict[str, Any]) -> AsyncGenerator[list[Session]]:
    """Yields two sessions of the MCP server and two of the SDK, in two workspaces with a registered MCP server."""
    of_sdk, of_server = directory / "sdk", directory / "server"
    for workspace in (of_sdk, of_server):
        workspace.mkdir()
        (workspace / "registered.py").write_text(REGISTERED)
    await generate_mcp_sources("scripted", params, of_sdk / "mcptools")
    async with (
        # Otherwise, the notebook would grow for most of the time: by a megabyte for 1,000 operations, up to 16.
        CodeExecutor(working_dir=of_sdk, sandbox=mode.sandbox, notebook_bytes=1 << 18) as executor,
        executor.sibling() as sibling,
        client_of(of_server, *mode.options) as client,
    ):
        default = MCPSession("default", client, calls)
        async with asyncio.timeout(4 * WAIT):
            await default.register("scripted", params)
        yield [
            default,
            MCPSession("other", client, calls),
            SDKSession("executor", executor, of_sdk, calls),
            SDKSession("sibling", sibling, of_sdk, calls),
        ]


def scripted(log: Path) -> dict[str, Any]:
    """Returns the parameters of an MCP server that logs its calls."""
    return servers.scripted("--log", str(log))


def _texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


def _outcome(tag: str, result: CallToolResult) -> Outcome:
    """Returns what a result says: the cell's lines, each with its tag, the error that follows them, and notices."""
    *texts, last = ["", *(text for text in _texts(result) if text != NO_OUTPUT)]
    told = last.startswith(MARK)
    lines = "\n".join(texts if told else [*texts, last]).strip("\n").splitlines()
    notices = [line.removeprefix(MARK) for line in last.splitlines()] if told else []
    printed = 0
    while printed < len(lines) and lines[printed].startswith(f"{tag} "):
        printed += 1
    output, message = "\n".join(lines[:printed]), "\n".join(lines[printed:])
    if not result.is_error:
        assert not message, f"{tag} has put out more than it can: {message!r}"
        return Outcome(output, notices)
    return Outcome(output, notices, _error(message, ExecutionOutput(output, [], notices=notices)))


def _error(message: str, output: ExecutionOutput) -> Exception:
    if message.startswith("the execution exceeded"):
        return ExecutionTimeoutError(message, output)
    if message.startswith("the execution did not start"):
        return TimeoutError(message)
    return CodeExecutionError(message, output)
