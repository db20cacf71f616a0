"""ipybox as an MCP server: agents register MCP servers and execute code that calls their tools.

`WorkspaceServices` owns the sessions, each with a `CodeExecutor`; `ToolHandlers` exposes them as tools. Clients give up
on servers that answer slowly, so the default session starts after the first response, and an early cell waits for it.
Its process and kernel start while the SDK loads. In a workspace that ipybox has never written to, nothing
that writes there starts before the first tool call.
"""

import asyncio
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ipybox.code_exec.config import ExecutorConfig
from ipybox.mcp_server import Approval, AuditOption, Images, Instructions
from ipybox.mcp_server.instructions import TEXTS
from ipybox.mcp_server.kernel_sessions import MAX_SESSIONS
from ipybox.mcp_server.services import REGISTRATION_TIMEOUT, WorkspaceServices
from ipybox.support.gc_pause import gc_paused

if TYPE_CHECKING:
    from ipybox.mcp_server.http import HTTPServerInfo
    from ipybox.mcp_server.outputs import OutputResourceServer
    from ipybox.mcp_server.tools import ToolHandlers
    from ipybox.tool_exec.approval.policy import ApprovalPolicy

#: The default port for Streamable HTTP.
HTTP_PORT = 8910


class MCPServer:
    """Serves code execution over MCP, on stdin and stdout or over HTTP.

    Args:
        config: The options of the sessions' executors, whose working directory is the workspace. It must not set an
            approval policy, an approver or an audit log.
        allowed_dirs: Directories, absolute or relative to the workspace, that `upload_file` may write and
            `download_file` may read. Without any, the two tools are not offered: their descriptions cost context.
        images: How images are returned: as file paths, as images for the model, or both.
        resources: Whether Claude Code also sees long outputs as resources. Its tools for them cost context; without
            them, the model reads the files.
        instructions: `full`, or `brief` for agents with the codeact skill.
        max_sessions: Maximum number of sessions, including the default session.
        session_idle_timeout: Seconds without a running cell or a connected person after which a session is stopped;
            None for no limit. The next cell restarts it, with a notice that state was lost.
        approve: `auto` approves all tool calls. `ask` asks the client's user about all of them, `writes` about all
            except to read-only tools that the user lets run without asking. A policy file is trusted and read once; a
            function returns the policy.
        audit: Whether the workspace's audit log contains code and arguments without secrets (`full`), only their
            hashes (`hash`), or nothing (`off`).
        register_timeout: Seconds for an MCP server to answer at its registration, including downloads.

    Raises:
        TypeError, ValueError: If an argument is not allowed.
    """

    def __init__(
        self,
        config: ExecutorConfig | None = None,
        *,
        allowed_dirs: Sequence[Path | str] = (),
        images: Images = "both",
        resources: bool = False,
        instructions: Instructions = "full",
        max_sessions: int = MAX_SESSIONS,
        session_idle_timeout: float | None = None,
        approve: "Approval | Callable[[], ApprovalPolicy]" = "auto",
        audit: AuditOption = "full",
        register_timeout: float = REGISTRATION_TIMEOUT,
    ):
        config = config or ExecutorConfig()
        if config.approval_policy is not None or config.approver is not None or config.audit is not None:
            raise ValueError(
                "config must not set approval_policy, approver or audit: pass approve and audit to MCPServer instead"
            )
        self._services = WorkspaceServices(
            config,
            max_sessions=max_sessions,
            session_idle_timeout=session_idle_timeout,
            approve=approve,
            audit=audit,
            register_timeout=register_timeout,
        )
        self._tool_options: dict[str, Any] = {
            "files": config.file_transfer(allowed_dirs) if allowed_dirs else None,
            "images": images,
            "resources": resources,
            "instructions": instructions,
        }
        self._tools: ToolHandlers | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def run(self) -> None:
        """Serves until the client closes stdin, then stops all sessions."""
        from ipybox.mcp_server.handshake import Handshake
        from ipybox.mcp_server.standard_streams import standard_streams

        resources, instructions = self._tool_options["resources"], TEXTS[self._tool_options["instructions"]]
        async with self:
            with standard_streams() as (stdin, stdout):
                handshake = Handshake(stdin, stdout, instructions, resources=resources)
                loading, reading = asyncio.ensure_future(self._load()), asyncio.ensure_future(handshake.receive())
                await asyncio.wait([loading, reading], return_when=asyncio.FIRST_COMPLETED)
                reading.cancel()
                await asyncio.wait([reading])
                await handshake.answer()
                await (await loading).run_on(stdin, stdout, handshake)

    async def run_http(
        self,
        host: str = "127.0.0.1",
        port: int = HTTP_PORT,
        token: str | None = None,
        *,
        allowed_hosts: Sequence[str] = (),
        on_listening: Callable[["HTTPServerInfo"], None] = lambda _: None,
    ) -> None:
        """Serves Streamable HTTP until it is cancelled, then stops all sessions.

        All clients share the kernel sessions, because the token represents one user. A request is cancelled if its
        client disconnects. `/metrics` serves Prometheus metrics; `/health` needs no token and says whether calls are
        accepted.

        Args:
            host: A name or address of this machine. Other machines can connect unless it is a loopback address.
            port: A port, or 0 for any free one.
            token: What requests need as `Authorization: Bearer <token>`: at least 16 letters, digits and any of
                -._~+/; random by default. While the server runs, a file that only the same user can read contains it.
            allowed_hosts: Names of a proxy in front of this server, which are accepted as `Host`.
            on_listening: Called as soon as clients can connect.

        Raises:
            OSError: If it can't listen on this address.
            ValueError: If the token or an allowed host is invalid.
        """
        async with self:
            from ipybox.mcp_server.metrics import ServerMetrics

            sessions = self._services.sessions
            metrics = ServerMetrics(sessions)
            self._services.observer = metrics.observe
            server = await self._load()
            from ipybox.mcp_server.http import MAX_REQUEST, MAX_UPLOAD, listening

            max_request = MAX_UPLOAD if self._tool_options["files"] else MAX_REQUEST
            limits = (sessions.limit, max_request)
            async with listening(server, host, port, token, *limits, metrics.exposition, allowed_hosts) as listener:
                on_listening(listener)
                try:
                    await asyncio.shield(listener.serving)
                finally:
                    await self.stop()

    async def stop(self) -> None:
        """Stops all sessions and their processes."""
        if self._tools is not None:
            await self._tools.aclose()
        await self._services.aclose()

    async def _load(self) -> "OutputResourceServer":
        """Returns the SDK's server, with the tools."""
        with gc_paused():
            await self._services.prepare()  # starting takes about as long as loading the SDK
            tools = await asyncio.to_thread(import_module, "ipybox.mcp_server.tools")
        handlers: ToolHandlers = tools.ToolHandlers(self._services, **self._tool_options)
        self._tools = handlers
        return handlers.server
