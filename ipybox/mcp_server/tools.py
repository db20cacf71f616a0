"""The MCP server's tools and capabilities: the part that needs the MCP SDK.

Loading the SDK takes most of the time until the first answer; `services.py` contains what works without it.
"""

import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any

from mcp.server import mcpserver
from mcp.server.context import CallNext, ServerRequestContext
from mcp.server.mcpserver import server as sdk_server
from mcp_types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from ipybox.mcp_server import Images, Instructions
from ipybox.mcp_server.client_traits import ClientTraits, announced, traits_of
from ipybox.mcp_server.instructions import MINIMAL, TEXTS
from ipybox.mcp_server.kernel_sessions import DEFAULT_SESSION
from ipybox.mcp_server.outputs import OutputResourceServer, OutputStore
from ipybox.mcp_server.progress import progress_of
from ipybox.mcp_server.registration import Registrations
from ipybox.mcp_server.services import WorkspaceServices
from ipybox.mcp_server.tool_result import ToolResultBuilder, failure_result
from ipybox.support.errors import IpyboxError
from ipybox.support.printable import printable

if TYPE_CHECKING:
    from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer

#: Tool metadata for Claude Code. Without it, Claude Code defers tools behind a search, which headless runs don't wait
#: for, and writes results over 50,000 characters to a file, without their images. The agent sets the limit with
#: `max_output_chars`. https://code.claude.com/docs/en/mcp
META = {"anthropic/alwaysLoad": True, "anthropic/maxResultSizeChars": 500_000}

_SERVER_PARAMS = (
    '{"command", "args", "env"} for stdio servers, {"url", "headers", "oauth"} for HTTP ones. '
    "${VAR} comes from ipybox's environment or the workspace's .env. Omit it to use the user's own server of this name"
)


class ToolHandlers:
    """The tools of one MCP server; with `files`, also those that copy files. Other options are those of `MCPServer`."""

    def __init__(
        self,
        services: WorkspaceServices,
        *,
        files: "FileTransfer | None" = None,
        images: Images = "both",
        resources: bool = False,
        instructions: Instructions = "full",
    ):
        self._services = services
        self._registrations = Registrations(services)
        outputs = OutputStore(services.config.workspace)
        self._results = ToolResultBuilder(outputs, images)
        self._resources = resources
        #: The SDK's server, with the tools.
        with _unchanged_logging():
            self.server = OutputResourceServer(
                outputs,
                "ipybox",
                version=version("ipybox"),
                instructions=TEXTS[instructions],
                middleware=[self._answer],
            )
        self._add_tools(files)

    async def aclose(self) -> None:
        """Cancels registrations that wait for a user."""
        await self._registrations.aclose()

    async def register_mcp_server(
        self,
        server_name: Annotated[str, Field(description="Letters, digits and _")],
        server_params: Annotated[dict[str, Any], Field(description=_SERVER_PARAMS, default_factory=dict)],
        *,
        context: mcpserver.Context[Any, Any],
    ) -> CallToolResult | InputRequiredResult:
        """Generates a typed Python API for the tools of an MCP server, in mcptools/<server_name>/.

        Returns the names of its modules, or what changed.
        """
        try:
            async with progress_of(context) as progress:
                text = await self._registrations.register(server_name, server_params, progress, context)
        except (IpyboxError, ValueError, OSError) as exc:
            return failure_result(exc)
        return _success(text) if isinstance(text, str) else text

    async def execute_ipython_cell(
        self,
        code: str,
        timeout: Annotated[float, Field(description="Seconds", gt=0)] = 120,
        max_output_chars: Annotated[
            int, Field(description="Longer output is truncated, and saved in full to a file", ge=0)
        ] = 5000,
        session: Annotated[str, Field(description="One kernel per name; kernels run in parallel")] = DEFAULT_SESSION,
        wait: Annotated[
            Annotated[float, Field(ge=0)] | SkipJsonSchema[None],
            Field(description="Return after this many seconds; empty code waits for the rest"),
        ] = None,
        *,
        context: mcpserver.Context[Any, Any],
    ) -> CallToolResult | InputRequiredResult:
        """Executes Python code in a stateful IPython kernel, which can import the generated tool APIs.

        Returns its output. Images are shown and saved.
        """
        client = traits_of(context.request_context, resources=self._resources)
        try:
            async with progress_of(context, lambda: self._services.sessions.waits_for(session)) as progress:
                result = await self._services.run_cell(session, code, timeout, wait, progress, context)
        except (IpyboxError, OSError, ValueError) as exc:
            return await self._results.result(exc, max_output_chars, client)
        if isinstance(result, InputRequiredResult):
            return result
        return await self._results.result(result, max_output_chars, client)

    async def install_package(
        self,
        package_name: Annotated[
            str, Field(description="Package specifier, such as requests, numpy>=2 or git+https://...")
        ],
    ) -> CallToolResult:
        """Installs a Python package for cells of this and later sessions."""
        try:
            return _success(await self._services.install(package_name))
        except (IpyboxError, ValueError, OSError) as exc:
            return failure_result(exc)

    async def reset(self, session: str = DEFAULT_SESSION) -> CallToolResult:
        """Starts a new kernel: variables are lost, packages and generated APIs stay."""
        try:
            await self._services.reset(session)
        except (IpyboxError, ValueError, OSError) as exc:
            return failure_result(exc)
        done = "The kernel was reset." if session == DEFAULT_SESSION else f"The session {session} has ended."
        _, *others = dict.fromkeys((DEFAULT_SESSION, *self._services.sessions.running))
        return _success(f"{done} Other sessions: {', '.join(others)}" if others else done)

    def _add_tools(self, workspace: "FileTransfer | None") -> None:
        # Clients use hints to decide whether to ask. Code and server commands can do anything, so no tool is harmless.
        # Claude Code offers "don't ask again" only if the title fits: 12 characters fit in 80 columns, and in 120 next
        # to the long name of a plugin's server.
        self._add_tool(self.register_mcp_server, "Add server", open_world_hint=True)
        self._add_tool(self.execute_ipython_cell, "Execute code", open_world_hint=True, idempotent_hint=False)
        self._add_tool(self.install_package, "Add package", open_world_hint=True)
        self._add_tool(self.reset, "Reset kernel")
        if workspace is not None:
            # Imported late, because only servers with file tools need it.
            from ipybox.mcp_server.file_tools import FileTools

            files = FileTools(workspace, self._services.read_from_node)
            self._add_tool(files.upload_file, "Upload file")
            self._add_tool(files.download_file, "Download", read_only_hint=True, destructive_hint=False)

    def _add_tool(self, tool: Callable[..., Any], title: str, **hints: bool) -> None:
        usual = {"read_only_hint": False, "destructive_hint": True, "idempotent_hint": True, "open_world_hint": False}
        annotations = ToolAnnotations(title=title, **usual | hints)
        description = inspect.getdoc(tool)
        self.server.tool(
            title=title, description=description, annotations=annotations, meta=META, structured_output=False
        )(tool)

    async def _answer(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
        # Middleware of the SDK's server; starts a session after the first answer.
        try:
            answer = await call_next(ctx)
            if ctx.method == "tools/call":
                return answer
            return _fitted(answer, traits_of(ctx, resources=self._resources))
        finally:
            if not self._services.sessions.running:
                self._services.start()


def _fitted(answer: Any, client: ClientTraits) -> Any:
    """Removes parts of an answer that only cost the client's context, and adds what the client does not show otherwise.

    The SDK repeats each parameter's name as its title.
    """
    match answer:
        case {"capabilities": {**capabilities}}:
            tools = capabilities.get("tools", {})
            return {**answer, "capabilities": announced(tools, resources=client.reads_resources)}
        case {"tools": [*tools]}:
            for tool in tools:
                schema = tool["inputSchema"]
                for part in (schema, *schema["properties"].values()):
                    part.pop("title", None)
                    if part.get("default", ...) is None:
                        del part["default"]
                    if not client.shows_defaults and "default" in part:
                        part["description"] = f"{part.get('description', '')} (default {part['default']})".strip()
                if not client.shows_instructions and tool["name"] == "execute_ipython_cell":
                    tool["description"] += f"\n\n{MINIMAL}"
            return answer
        case _:
            return answer


@contextmanager
def _unchanged_logging() -> Generator[None]:
    """Keeps the SDK's server from configuring the application's logging, which would also import rich."""
    names = sdk_server.__dict__
    configure = names.get("configure_logging")  # not public: the SDK may rename it
    names["configure_logging"] = lambda log_level="": None
    try:
        yield
    finally:
        names["configure_logging"] = configure


def _success(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=printable(text, lines=True))])
