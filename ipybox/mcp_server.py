"""ipybox as an MCP server: agents register MCP servers and execute code that calls their tools.

It wires nothing itself: a `Host` holds sessions, each with a `CodeExecutor`, and `Tools` offer them. Clients give up on
servers that are slow to answer, so the default session starts only after the first request was answered, and a cell
that comes early waits for it. Its process and kernel start by themselves before, while the SDK is loaded.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ipybox.code_exec import CodeExecutor
from ipybox.docker.options import Approval, AuditOption
from ipybox.instructions import Instructions
from ipybox.loading import loading
from ipybox.mcp_host import Host
from ipybox.sandbox.settings import SandboxConfig, SandboxSettings, load_settings
from ipybox.sessions import MAX_SESSIONS

if TYPE_CHECKING:
    from mcp.server import mcpserver

    from ipybox.mcp_http import Listening
    from ipybox.mcp_tools import Tools
    from ipybox.outputs.answer import Images
    from ipybox.tool_exec.approval.policy import Policy
    from ipybox.transfer.workspace import Workspace

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
        sandbox_config: A settings file for the sandbox, or the name of a profile. A file is believed, wherever it is,
            and read once.
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
        approve: Whether tool calls are accepted (`auto`), the user of the client is asked (`ask`), or a policy says so:
            its file, which is believed and read once, or a function that returns it.
        audit: What is written to the workspace's audit log: code and arguments of tool calls without secrets (`full`),
            only their hashes (`hash`), or nothing at all (`off`).
        variables: Values of `${VAR}` placeholders in the parameters of MCP servers, for those that are not in the
            environment, such as those of a `.env` file.

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
        sandbox_config: SandboxConfig | None = None,
        log_level: str = "WARNING",
        memory_limit: int | None = None,
        cpu_seconds: float | None = None,
        process_limit: int | None = None,
        allowed_domains: Sequence[str] = (),
        allowed_dirs: Sequence[Path | str] = (),
        images: "Images" = "both",
        resources: bool = False,
        instructions: Instructions = "full",
        max_sessions: int = MAX_SESSIONS,
        approve: "Approval | Callable[[], Policy]" = "auto",
        audit: AuditOption = "full",
        variables: Mapping[str, str] | None = None,
    ):
        workspace = (workspace or Path.cwd()).resolve()
        settings = cache(partial(load_settings, sandbox_config, allowed_domains)) if sandbox else None
        make_executor = partial(
            CodeExecutor,
            tool_server_host,
            tool_server_port,
            kernel_gateway_host,
            kernel_gateway_port,
            kernel_env=kernel_env,
            sandbox=sandbox,
            sandbox_config=settings or sandbox_config,
            log_level=log_level,
            working_dir=workspace,
            memory_limit=memory_limit,
            cpu_seconds=cpu_seconds,
            process_limit=process_limit,
            allowed_domains=allowed_domains,
            variables=variables,
        )
        self._host = Host(
            workspace,
            make_executor,
            settings,
            max_sessions=max_sessions,
            approve=approve,
            audit=audit,
            variables=variables,
        )
        self._files = _files(workspace, allowed_dirs, settings) if allowed_dirs else None
        self._images: Images = images
        self._resources = resources
        self._instructions: Instructions = instructions
        self._tools: Tools | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def run(self) -> None:
        """Serves until the client closes stdin, then stops all sessions."""
        async with self:
            server = await self._load()
            await server.run_stdio_async()

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
        async with self:
            server = await self._load()
            # Only those who want it wait for what it imports.
            from ipybox.mcp_http import MAX_REQUEST, MAX_UPLOAD, listening

            largest = MAX_REQUEST if self._files is None else MAX_UPLOAD
            async with listening(server, host, port, token, largest) as listener:
                on_listening(listener)
                try:
                    await asyncio.shield(listener.serving)
                finally:
                    await self.stop()

    async def stop(self) -> None:
        """Stops all sessions and all that belongs to them."""
        if self._tools is not None:
            await self._tools.aclose()
        await self._host.aclose()

    async def _load(self) -> "mcpserver.MCPServer[Any]":
        """Returns the SDK's server, with the tools."""
        with loading():
            await self._host.sessions.prepare()  # what that starts needs about as long as the SDK
            from ipybox.mcp_tools import Tools

        self._tools = Tools(
            self._host,
            files=self._files,
            images=self._images,
            resources=self._resources,
            instructions=self._instructions,
        )
        return self._tools.server


def _files(
    workspace: Path, allowed_dirs: Sequence[Path | str], settings: Callable[[], SandboxSettings] | None
) -> "Workspace":
    from ipybox.transfer.workspace import Workspace

    return Workspace(workspace, allowed_dirs, settings=settings)


if __name__ == "__main__":
    from ipybox.cli import main

    main()
