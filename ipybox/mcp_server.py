"""ipybox as an MCP server: agents register MCP servers and execute code that calls their tools.

It holds `Sessions`, each with a `CodeExecutor`, and wires nothing itself. Clients give up on servers that are slow to
answer, so the default session starts only after the first request was answered, and a cell that comes early waits for
it.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from mcp.server import mcpserver
from mcp.server.context import CallNext, ServerRequestContext
from mcp_types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import Field

from ipybox.code_exec import CodeExecutionChunk, CodeExecutionResult, CodeExecutor
from ipybox.docker.options import Approval, AuditOption
from ipybox.errors import IpyboxError
from ipybox.instructions import TEXTS, Instructions
from ipybox.mcp_registration import Registrations
from ipybox.outputs.answer import Answers, Images
from ipybox.outputs.resources import OutputServer
from ipybox.outputs.store import OutputStore
from ipybox.packages import PackageInstaller
from ipybox.progress import Progress, progress_of
from ipybox.sandbox.settings import load_settings
from ipybox.sessions import DEFAULT_SESSION, MAX_SESSIONS, Sessions

if TYPE_CHECKING:
    from ipybox.audit.audit import Audit
    from ipybox.mcp_apigen import ToolModules
    from ipybox.mcp_cells import AskingCells
    from ipybox.mcp_http import Listening
    from ipybox.oauth.authenticator import SignIn
    from ipybox.tool_exec.approval.policy import Policy

#: Directory of the workspace in which tool APIs are generated.
TOOLS_DIR = "mcptools"

#: What Claude Code is told of each tool. Else it defers them behind a search, for which runs without a person don't
#: wait, and puts results over 50,000 characters into a file, without the images beside them; `max_output_chars` is the
#: bound that the agent has chosen. https://code.claude.com/docs/en/mcp
META = {"anthropic/alwaysLoad": True, "anthropic/maxResultSizeChars": 500_000}

#: The port for Streamable HTTP if nobody says otherwise.
HTTP_PORT = 8910


class MCPServer:
    """Serves code execution over MCP, on stdin and stdout or over HTTP.

    Args:
        workspace: Directory in which code runs and tool APIs are generated; by default the working directory.
        tool_server_host: See `CodeExecutor`, as for the parameters that follow.
        tool_server_port: Port of the tool server, by default none.
        kernel_gateway_host: Host of the kernel gateway.
        kernel_gateway_port: Port of the kernel gateway, by default none.
        kernel_env: Environment variables for the kernel.
        sandbox: Whether the kernel runs inside Anthropic's sandbox-runtime.
        sandbox_config: A settings file for the sandbox, or the name of a profile.
        log_level: Logging level of the gateway process.
        memory_limit: Bytes of memory; see `CodeExecutor`, as for the other limits.
        cpu_seconds: CPU time of one cell.
        process_limit: Number of processes.
        allowed_domains: Hosts that can be reached from the sandbox in addition to those of its settings, also when a
            package is built there.
        allowed_dirs: Directories, relative to the workspace or absolute, into which `upload_file` writes and from which
            `download_file` reads. Without any, the two tools are not offered: their descriptions cost context.
        images: How images are returned: as paths of their files, as pictures for the model, or as both.
        resources: Whether Claude Code is told, too, that it can read long outputs as resources. It offers the model
            tools of its own for that, which cost context; without them, the model reads the files.
        instructions: How much an agent is told of the use: all (`full`), or what one needs that has the codeact skill.
        max_sessions: How many sessions there can be at once, the default one included.
        approve: Whether tool calls are accepted (`auto`), the user of the client is asked (`ask`), or a policy says so.
        audit: What is written to the workspace's audit log: code and arguments of tool calls without secrets (`full`),
            only their hashes (`hash`), or nothing at all (`off`).

    Raises:
        ValueError: If an allowed directory is none, or can't be allowed, or there could be no session.
    """

    def __init__(
        self,
        workspace: Path | None = None,
        *,
        tool_server_host: str = "localhost",
        tool_server_port: int | None = None,
        kernel_gateway_host: str = "localhost",
        kernel_gateway_port: int | None = None,
        kernel_env: dict[str, str] | None = None,
        sandbox: bool = False,
        sandbox_config: Path | str | None = None,
        log_level: str = "WARNING",
        memory_limit: int | None = None,
        cpu_seconds: float | None = None,
        process_limit: int | None = None,
        allowed_domains: Sequence[str] = (),
        allowed_dirs: Sequence[Path | str] = (),
        images: Images = "both",
        resources: bool = False,
        instructions: Instructions = "full",
        max_sessions: int = MAX_SESSIONS,
        approve: Approval = "auto",
        audit: AuditOption = "full",
    ):
        self._workspace = (workspace or Path.cwd()).resolve()
        self._beneath = self._workspace if sandbox else None
        self._settings = partial(load_settings, sandbox_config, allowed_domains) if sandbox else None
        # Made when they are needed, as that fails where settings are wrong: calls say so, and try again.
        self._packages: PackageInstaller | None = None
        self._approve: Approval = approve
        self._cells: AskingCells | None = None
        self._audit_option: AuditOption = audit
        self._audit: Audit | None = None
        self._make_executor = partial(
            CodeExecutor,
            tool_server_host,
            tool_server_port,
            kernel_gateway_host,
            kernel_gateway_port,
            kernel_env=kernel_env,
            sandbox=sandbox,
            sandbox_config=sandbox_config,
            log_level=log_level,
            working_dir=self._workspace,
            memory_limit=memory_limit,
            cpu_seconds=cpu_seconds,
            process_limit=process_limit,
            allowed_domains=allowed_domains,
        )
        self._sessions = Sessions(self._new_executor, max_sessions)
        self._registrations = Registrations(self._generate)
        outputs = OutputStore(self._workspace)
        self._answers = Answers(outputs, images)
        self._resources = resources
        self._server = OutputServer(
            outputs, "ipybox", version=version("ipybox"), instructions=TEXTS[instructions], middleware=[self._answer]
        )
        self._add_tools()
        self._uploads = bool(allowed_dirs)
        if allowed_dirs:
            self._add_file_tools(allowed_dirs)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def run(self) -> None:
        """Serves until the client closes stdin, then stops all sessions."""
        async with self:
            await self._server.run_stdio_async()

    async def run_http(
        self,
        host: str = "127.0.0.1",
        port: int = HTTP_PORT,
        token: str | None = None,
        *,
        on_listening: Callable[["Listening"], None] = lambda _: None,
    ) -> None:
        """Serves Streamable HTTP until it is cancelled, then stops all sessions.

        All clients share the sessions: they are one user's, who has the token. A request whose client goes ends.

        Args:
            host: A name or address of this machine. Unless it is the loopback's, other machines reach it, unencrypted.
            port: A port, or 0 for any free one.
            token: What requests need, as `Authorization: Bearer <token>`: 16 or more letters, digits and any of -._~+/,
                by default random ones. Kept in a file that only the same user can read, for as long as this runs.
            on_listening: Is told the URL, the token and its file as soon as clients can connect.

        Raises:
            OSError: If it can't listen there.
            ValueError: If the token is none.
        """
        # Only those who want it wait for what it imports.
        from ipybox.mcp_http import MAX_REQUEST, MAX_UPLOAD, listening

        largest = MAX_UPLOAD if self._uploads else MAX_REQUEST
        async with self, listening(self._server, host, port, token, largest) as listener:
            on_listening(listener)
            try:
                await asyncio.shield(listener.serving)
            finally:
                await self.stop()

    async def stop(self) -> None:
        """Stops all sessions and all that belongs to them."""
        if self._cells is not None:
            await self._cells.aclose()
        await self._registrations.aclose()
        await self._sessions.stop()
        if self._audit is not None:
            self._audit.close()

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
            async with progress_of(context) as progress, self._sessions.use(session) as executor:
                if self._cells is None:
                    result = await _execute(executor, code, timeout, progress)
                else:
                    result = await self._cells.run(executor, code, timeout, progress, context)
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
            if self._packages is None:
                settings = self._settings and self._settings()
                self._packages = PackageInstaller(self._workspace, settings, audit=self._opened_audit())
            return _success(await self._packages.install(package_name))
        except (IpyboxError, ValueError, OSError) as exc:
            return _failure(str(exc))

    async def reset(self, session: str = DEFAULT_SESSION) -> CallToolResult:
        """Starts a fresh kernel: variables and imports are lost, installed packages and generated APIs stay."""
        try:
            await self._sessions.reset(session)
        except (IpyboxError, ValueError, OSError) as exc:
            return _failure(str(exc))
        done = "The kernel was reset." if session == DEFAULT_SESSION else f"The session {session} has ended."
        _, *others = self._sessions.names
        return _success(f"{done} There are other sessions: {', '.join(others)}" if others else done)

    def _add_tools(self) -> None:
        for tool, title, annotations in (
            (self.register_mcp_server, "Register MCP server", ToolAnnotations(open_world_hint=True)),
            (self.execute_ipython_cell, "Execute code", ToolAnnotations(open_world_hint=True)),
            (self.install_package, "Install package", ToolAnnotations(open_world_hint=True)),
            (self.reset, "Reset kernel", ToolAnnotations(destructive_hint=True, open_world_hint=False)),
        ):
            self._add_tool(tool, title, annotations)

    def _add_file_tools(self, allowed_dirs: Sequence[Path | str]) -> None:
        # Only those who want them wait for what they import.
        from ipybox.transfer.tools import FileTools
        from ipybox.transfer.workspace import Workspace

        files = FileTools(Workspace(self._workspace, allowed_dirs, settings=self._settings))
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
        describe = self._server.tool(
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
            self._sessions.start()

    def _knows_resources(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        """Returns whether the client that makes a request is told that it can read resources."""
        return self._resources or _client_name(ctx) != "claude-code"

    async def _generate(self, server_name: str, server_params: dict[str, Any], sign_in: "SignIn") -> "ToolModules":
        # The SDK is loaded already; the generator is not.
        from ipybox.mcp_apigen import generate_mcp_sources

        return await generate_mcp_sources(
            server_name,
            server_params,
            self._workspace / TOOLS_DIR,
            beneath=self._beneath,
            sign_in=sign_in,
            audit=self._opened_audit(),
        )

    def _new_executor(self) -> CodeExecutor:
        return self._make_executor(approval_policy=self._policy(), audit=self._opened_audit())

    def _opened_audit(self) -> "Audit | None":
        """Returns the audit log, if there is to be one.

        Raises:
            AuditError: If it can't be written.
        """
        if self._audit is None and self._audit_option != "off":
            # Only now, as the first answer does not wait for it.
            from ipybox.audit.audit import Audit

            audit = Audit(self._workspace, self._audit_option)
            audit.open()
            self._audit = audit
        return self._audit

    def _policy(self) -> "Policy | None":
        """Returns what decides on tool calls, and has the cells ask if it may say so."""
        if self._approve == "auto":
            return None
        # Only those who want them wait for what they import.
        from ipybox.mcp_approval import Approver
        from ipybox.mcp_cells import AskingCells
        from ipybox.tool_exec.approval.policy import Policy

        ask = self._approve == "ask"
        policy = Policy(source="--approve ask") if ask else Policy.load(self._approve, self._workspace)
        self._cells = AskingCells(Approver(policy))
        return policy


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
    return CallToolResult(content=[TextContent(text=text)])


def _failure(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


if __name__ == "__main__":
    from ipybox.cli import main

    main()
