"""ipybox as an MCP server: agents register MCP servers and execute code that calls their tools.

It wires nothing itself: `WorkspaceServices` owns sessions, each with a `CodeExecutor`, and `ToolHandlers` offers them.
Clients give up on servers that answer slowly. Therefore, the default session starts only after the first response, and
an early cell waits for it. Its process and kernel start earlier, while the SDK loads. In a workspace that ipybox has
not written to yet, nothing that writes there starts before the first call of a tool.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ipybox.code_exec.config import ExecutorConfig
from ipybox.mcp_server import Approval, AuditOption, Images, Instructions
from ipybox.mcp_server.kernel_sessions import MAX_SESSIONS
from ipybox.mcp_server.services import REGISTRATION_TIMEOUT, WorkspaceServices
from ipybox.support.gc_pause import gc_paused

if TYPE_CHECKING:
    from mcp.server import mcpserver

    from ipybox.mcp_server.http import HTTPServerInfo
    from ipybox.mcp_server.tools import ToolHandlers
    from ipybox.tool_exec.approval.policy import ApprovalPolicy

#: The default port for Streamable HTTP.
HTTP_PORT = 8910


class MCPServer:
    """Serves code execution over MCP, on stdin and stdout or over HTTP.

    Args:
        config: The options of the sessions' executors: its working directory is the workspace. Approvals and the audit
            log are options of this class.
        allowed_dirs: Directories, relative to the workspace or absolute, into which `upload_file` writes and from which
            `download_file` reads. Without any, the two tools are not offered: their descriptions cost context.
        images: How images are returned: as paths of their files, as images for the model, or as both.
        resources: Whether long outputs are announced to Claude Code, too, as resources. It adds tools for them to the
            model's context; without them, the model reads the files.
        instructions: How detailed the instructions for the agent are: all (`full`), or only what an agent with the
            codeact skill needs (`brief`).
        max_sessions: How many sessions can exist, the default one included.
        session_idle_timeout: Seconds after which a session is stopped in which no cell runs and to which no person is
            connected; None for no limit. The next cell starts it again, and its result contains a notice that state was
            lost.
        approve: How tool calls are approved: all of them (`auto`), by the user of the client (`ask`), or by a policy:
            its file, which is trusted and read once, or a function that returns it.
        audit: What the workspace's audit log contains: code and arguments of tool calls without secrets (`full`), only
            their hashes (`hash`), or nothing (`off`).
        register_timeout: Seconds in which an MCP server must answer at its registration, which may include a download.

    Raises:
        TypeError, ValueError: If an allowed directory can't be allowed, `max_sessions` or `session_idle_timeout` is not
            positive, or the config contains an approval policy, an approver or an audit log.
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
                "the config's approval_policy, approver and audit are ignored: pass approve and audit to the server "
                "instead"
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
        async with self:
            server = await self._load()
            await server.run_stdio_async()

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

        All clients share the kernel sessions, because the token stands for one user. If a client disconnects during a
        request, the request is cancelled. `/metrics` has metrics for Prometheus, and `/health` says, without a token,
        whether calls are accepted.

        Args:
            host: A name or address of this machine. Through any but a loopback address, other machines can connect.
            port: A port, or 0 for any free one.
            token: The token that requests need, as `Authorization: Bearer <token>`: 16 or more letters, digits and any
                of -._~+/, by default random ones. Kept in a file that only the same user can read, while this runs.
            allowed_hosts: Names by which clients reach a proxy in front of this server, which are accepted as `Host`.
            on_listening: Receives the URL, the token and its file as soon as clients can connect.

        Raises:
            OSError: If it can't listen on this address.
            ValueError: If the token is too short or has characters that are not allowed, or an allowed host is no name.
        """
        async with self:
            # Imported late, because only HTTP needs them.
            from ipybox.mcp_server.metrics import ServerMetrics

            sessions = self._services.sessions
            metrics = ServerMetrics(sessions, socket.gethostname())
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

    async def _load(self) -> "mcpserver.MCPServer[Any]":
        """Returns the SDK's server, with the tools."""
        with gc_paused():
            await self._services.prepare()  # starting takes about as long as loading the SDK
            from ipybox.mcp_server.tools import ToolHandlers

        self._tools = ToolHandlers(self._services, **self._tool_options)
        return self._tools.server
