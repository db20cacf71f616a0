"""The tools of the MCP server, and what is announced of them: the part that needs the SDK.

The SDK takes most of the time until the first answer. What the tools work with is there without it (`mcp_host.py`).
"""

import inspect
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any

from mcp.server import mcpserver
from mcp.server.context import CallNext, ServerRequestContext
from mcp_types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import Field

from ipybox.code_exec import CodeExecutionChunk, CodeExecutionResult, CodeExecutor
from ipybox.errors import IpyboxError
from ipybox.instructions import TEXTS, Instructions
from ipybox.mcp_host import Host
from ipybox.mcp_registration import Registrations
from ipybox.outputs.answer import Answers, Images
from ipybox.outputs.resources import OutputServer
from ipybox.outputs.store import OutputStore
from ipybox.printable import printable
from ipybox.progress import Progress, progress_of
from ipybox.sessions import DEFAULT_SESSION

if TYPE_CHECKING:
    from ipybox.mcp_apigen import ToolModules
    from ipybox.oauth.authenticator import SignIn
    from ipybox.transfer.workspace import Workspace

#: Directory of the workspace in which tool APIs are generated.
TOOLS_DIR = "mcptools"

#: What Claude Code is told of each tool. Else it defers them behind a search, for which runs without a person don't
#: wait, and puts results over 50,000 characters into a file, without the images beside them; `max_output_chars` is the
#: bound that the agent has chosen. https://code.claude.com/docs/en/mcp
META = {"anthropic/alwaysLoad": True, "anthropic/maxResultSizeChars": 500_000}


class Tools:
    """The tools of one MCP server.

    Args:
        host: What they work with.
        files: What files are transferred to and from; None if they are not.
        images: How images are returned: as paths of their files, as pictures for the model, or as both.
        resources: Whether Claude Code is told, too, that it can read long outputs as resources.
        instructions: How much an agent is told of the use.
    """

    def __init__(
        self,
        host: Host,
        *,
        files: "Workspace | None" = None,
        images: Images = "both",
        resources: bool = False,
        instructions: Instructions = "full",
    ):
        self._host = host
        self._registrations = Registrations(self._generate)
        outputs = OutputStore(host.workspace)
        self._answers = Answers(outputs, images)
        self._resources = resources
        #: The SDK's server, which has the tools.
        self.server = OutputServer(
            outputs, "ipybox", version=version("ipybox"), instructions=TEXTS[instructions], middleware=[self._answer]
        )
        self._add_tools()
        if files is not None:
            self._add_file_tools(files)

    async def aclose(self) -> None:
        """Ends the registrations that wait for somebody."""
        await self._registrations.aclose()

    async def register_mcp_server(
        self,
        server_name: Annotated[str, Field(description="Name of the server; a valid Python identifier")],
        server_params: Annotated[
            dict[str, Any],
            Field(
                description='{"command", "args", "env"} for stdio servers, {"url", "headers", "oauth"} for HTTP ones. '
                "${VAR} stands for a variable of ipybox's environment or of the workspace's .env file"
            ),
        ],
        *,
        context: mcpserver.Context[Any, Any],
    ) -> CallToolResult | InputRequiredResult:
        """Generates a typed Python API for the tools of an MCP server, in mcptools/<server_name>/.

        Returns the names of the modules, one per tool, or what has changed since the server was registered before.
        """
        try:
            modules = await self._registrations.register(server_name, server_params, context)
        except (IpyboxError, ValueError, OSError) as exc:
            return _failure(str(exc))
        if isinstance(modules, InputRequiredResult):
            return modules
        return _success("\n".join(_registered(modules, f"{TOOLS_DIR}/{server_name}")))

    async def execute_ipython_cell(
        self,
        code: Annotated[str, Field(description="Python code to execute")],
        timeout: Annotated[float, Field(description="Maximum execution time in seconds", gt=0)] = 120,
        max_output_chars: Annotated[int, Field(description="Longer output is cut, and kept in a file", ge=0)] = 5000,
        session: Annotated[str, Field(description="Each name is its own kernel; they run at once")] = DEFAULT_SESSION,
        *,
        context: mcpserver.Context[Any, Any],
    ) -> CallToolResult | InputRequiredResult:
        """Executes Python code in a stateful IPython kernel, in which the generated tool APIs can be imported.

        Returns what the code printed and displayed. Images are shown and saved.
        """
        resources = self._knows_resources(context.request_context)
        try:
            async with progress_of(context) as progress, self._host.sessions.use(session) as executor:
                if self._host.cells is None:
                    result = await _execute(executor, code, timeout, progress)
                else:
                    result = await self._host.cells.run(executor, code, timeout, progress, context)
        except (IpyboxError, OSError, ValueError) as exc:
            return await self._answers.of_failure(exc, max_output_chars, resources=resources)
        if isinstance(result, InputRequiredResult):
            return result
        return await self._answers.of(result, max_output_chars, resources=resources)

    async def install_package(
        self,
        package_name: Annotated[
            str, Field(description="A package specifier, for example requests, numpy>=2, or git+https://...")
        ],
    ) -> CallToolResult:
        """Installs a Python package with pip, for use in cells: at once, and in each later session of the workspace."""
        try:
            return _success(await self._host.packages().install(package_name))
        except (IpyboxError, ValueError, OSError) as exc:
            return _failure(str(exc))

    async def reset(self, session: str = DEFAULT_SESSION) -> CallToolResult:
        """Starts a fresh kernel: variables and imports are lost, installed packages and generated APIs stay."""
        try:
            await self._host.sessions.reset(session)
        except (IpyboxError, ValueError, OSError) as exc:
            return _failure(str(exc))
        done = "The kernel was reset." if session == DEFAULT_SESSION else f"The session {session} has ended."
        _, *others = self._host.sessions.names
        return _success(f"{done} There are other sessions: {', '.join(others)}" if others else done)

    def _add_tools(self) -> None:
        for tool, title, annotations in (
            (self.register_mcp_server, "Register MCP server", ToolAnnotations(open_world_hint=True)),
            (self.execute_ipython_cell, "Execute code", ToolAnnotations(open_world_hint=True)),
            (self.install_package, "Install package", ToolAnnotations(open_world_hint=True)),
            (self.reset, "Reset kernel", ToolAnnotations(destructive_hint=True, open_world_hint=False)),
        ):
            self._add_tool(tool, title, annotations)

    def _add_file_tools(self, workspace: "Workspace") -> None:
        # Only those who want them wait for what they import.
        from ipybox.transfer.tools import FileTools

        files = FileTools(workspace)
        writes = ToolAnnotations(destructive_hint=True, idempotent_hint=True, open_world_hint=False)
        self._add_tool(files.upload_file, "Upload file", writes)
        reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        self._add_tool(files.download_file, "Download file", reads)

    def _add_tool(
        self,
        tool: Callable[..., Awaitable[CallToolResult | InputRequiredResult]],
        title: str,
        annotations: ToolAnnotations,
    ) -> None:
        describe = self.server.tool(
            title=title,
            description=inspect.getdoc(tool),
            annotations=annotations,
            meta=META,
            structured_output=False,
        )
        describe(tool)

    async def _answer(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
        """Answers a request, and starts a session after the first one (middleware of the SDK's server)."""
        try:
            return _trimmed(await call_next(ctx), resources=self._knows_resources(ctx))
        finally:
            self._host.sessions.start()

    def _knows_resources(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        """Returns whether the client that makes a request is told that it can read resources."""
        return self._resources or _client_name(ctx) != "claude-code"

    async def _generate(self, server_name: str, server_params: dict[str, Any], sign_in: "SignIn") -> "ToolModules":
        # The SDK is loaded already; the generator is not.
        from ipybox.mcp_apigen import generate_mcp_sources

        return await generate_mcp_sources(
            server_name,
            server_params,
            self._host.workspace / TOOLS_DIR,
            places=self._host.places(),
            variables=self._host.variables,
            sign_in=sign_in,
            audit=self._host.opened_audit(),
        )


def _client_name(ctx: ServerRequestContext[Any, Any]) -> str | None:
    match ctx.params:
        case {"clientInfo": {"name": str(name)}}:  # `initialize` itself, which the session does not know yet
            return name
        case _:
            client = ctx.session.client_params
            return client and client.client_info.name


def _trimmed(answer: Any, *, resources: bool) -> Any:
    """Takes out of an answer what costs the client's context and says nothing.

    The SDK announces prompts although there are none, and gives each parameter its name once more as its title. For
    resources, Claude Code offers the model three tools of its own, which cost 520 tokens in each request, or 16 where
    it defers tools (`benchmarks`); the files it can read anyway.
    """
    match answer:
        case {"capabilities": {**capabilities}}:
            # Nobody is told of new ones: whose output is cut gets the address with it.
            announced: dict[str, Any] = {"resources": {}} if resources else {}
            return {**answer, "capabilities": {"tools": capabilities.get("tools", {}), **announced}}
        case {"tools": [*tools]}:
            for tool in tools:
                schema = tool["inputSchema"]
                schema.pop("title", None)
                for parameter in schema["properties"].values():
                    parameter.pop("title", None)
            return answer
        case _:
            return answer


def _registered(modules: "ToolModules", place: str) -> list[str]:
    """What is said of a server: the names of its tools, or only what changed where an agent may know them."""
    if modules.new or modules.unknown:
        return [*modules.warnings(), *modules]
    unchanged = len(modules) - len(modules.added) - len(modules.changed)
    return [*modules.warnings(), f"unchanged: {unchanged} tools, see {place}/__init__.py"]


async def _execute(executor: CodeExecutor, code: str, timeout: float, progress: Progress) -> CodeExecutionResult:
    async with aclosing(executor.stream(code, timeout, chunks=True)) as items:
        async for item in items:
            match item:
                case CodeExecutionChunk():
                    progress.note(item.text)
                case CodeExecutionResult():
                    return item
                case _:
                    await item.accept(by="auto")
    raise AssertionError("unreachable: a stream ends with its result")


def _success(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=printable(text, lines=True))])


def _failure(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=printable(text, lines=True))], is_error=True)
