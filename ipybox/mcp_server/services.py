"""The services behind the MCP server's tools: sessions, packages, the policy and the audit log of one workspace.

Nothing here needs the SDK, so a session's process can start while the SDK loads.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipybox.code_exec.cell_runner import Cell
from ipybox.code_exec.config import ExecutorConfig
from ipybox.code_exec.executor import CodeExecutor
from ipybox.kernel_mgr.output_collector import OutputCollector
from ipybox.mcp_server import Approval, AuditOption
from ipybox.mcp_server.approval_desk import ApprovalDesk
from ipybox.mcp_server.attach_socket import AttachSocket
from ipybox.mcp_server.kernel_sessions import KernelSessions
from ipybox.support.deadline import Deadline
from ipybox.support.errors import PolicyError
from ipybox.support.names import INSTALL_TOOL, OWN_NAME, STATE_DIR
from ipybox.tool_exec.approval.approvals import accept_call

if TYPE_CHECKING:
    from mcp.server.mcpserver import Context
    from mcp_types import InputRequiredResult

    from ipybox.audit.audit import AuditLog
    from ipybox.audit.records import SessionObserver
    from ipybox.kernel_mgr.packages import PackageInstaller
    from ipybox.kernel_mgr.transfer.file_transfer import Download
    from ipybox.mcp_server.approver import ElicitationApprover
    from ipybox.mcp_server.cell_requests import CellRequests
    from ipybox.mcp_server.progress import Progress
    from ipybox.support.outputs import ExecutionOutput
    from ipybox.tool_exec.approval.policy import ApprovalPolicy

#: Time limit in seconds for an MCP server's first start, when launchers such as npx and uvx may download it.
REGISTRATION_TIMEOUT = 120.0


class WorkspaceServices:
    """Creates services on demand; if settings are wrong, each call tries again and reports the error.

    The arguments are those of `MCPServer`.
    """

    def __init__(
        self,
        config: ExecutorConfig,
        *,
        max_sessions: int,
        session_idle_timeout: float | None = None,
        approve: "Approval | Callable[[], ApprovalPolicy]",
        audit: AuditOption,
        register_timeout: float = REGISTRATION_TIMEOUT,
    ):
        # The form's timeout replaces the approval timeout: it starts when the user sees the form.
        self.config = replace(config, audit=audit, approval_timeout=None, notebook_bytes=0)
        self.register_timeout = register_timeout
        self.sessions = KernelSessions(self._new_executor, max_sessions, session_idle_timeout)
        #: Receives the sessions' events.
        self.observer: SessionObserver | None = None
        self._desk = ApprovalDesk(config.workspace)
        self._attach_socket = AttachSocket(config.workspace, self.sessions, self._desk)
        #: Runs cells that can outlast their request.
        self._cells: CellRequests | None = None
        #: Decides on tool calls that may need the user's answer; created with the policy, before any cell runs.
        self._approver: ElicitationApprover | None = None
        self.approve = approve
        self._audit: AuditLog | None = None
        self._packages: PackageInstaller | None = None

    async def prepare(self) -> None:
        """Starts the default session's process and kernel in advance; with a sandbox, only in a used workspace.

        A sandbox creates placeholder files, but the plugin's user may never use ipybox in this workspace.
        """
        if self._used or not self.config.sandbox:
            await self.sessions.prepare()

    def start(self) -> None:
        """Starts the default session in the background.

        In an unused workspace, or with an engine, whose job should not sit idle, the first call starts it instead.
        """
        if self._used and self.config.engine is None:
            self.sessions.start()

    @property
    def _used(self) -> bool:
        return (self.config.workspace / STATE_DIR).is_dir()

    async def aclose(self) -> None:
        """Stops all sessions and their processes."""
        if self._cells is not None:
            await self._cells.aclose()
        await self._attach_socket.aclose()
        await self.sessions.stop()
        if self._audit is not None:
            await asyncio.to_thread(self._audit.close)

    async def run_cell(
        self,
        session: str,
        code: str,
        timeout: float,
        wait: float | None,
        progress: "Progress | None",
        context: "Context[Any, Any]",
    ) -> "ExecutionOutput | InputRequiredResult":
        """Executes a cell in a session; returns its result, or a form for the user about one of its tool calls.

        A cell that runs longer than `wait` seconds returns its output so far; empty code continues to wait for it.
        Raises what `KernelSessions.use` and `CodeExecutor.execute` raise.
        """
        if self._cells is None and self.approve == "auto" and wait is None:
            async with self.sessions.use(session) as executor:
                outputs = OutputCollector(None if progress is None else progress.note_output)
                return await executor.run(Cell(code, Deadline(timeout), accept_call, outputs))
        if self._cells is None:
            from ipybox.mcp_server.cell_requests import CellRequests

            self._cells = CellRequests(self.sessions, lambda: self._approver)
        return await self._cells.run(session, code, timeout, wait, progress, context)

    async def reset(self, session: str) -> None:
        """Resets a session, and ends a cell that outlasted its request; raises as `KernelSessions.reset`."""
        await (self._cells or self.sessions).reset(session)

    async def read_from_node(self, path: str) -> "Download | None":
        """Returns a file from the first session whose node has it; None if cells run in the workspace, or none run."""
        errors: list[OSError] = []
        for executor in self.sessions.started if self.config.engine is not None else ():
            try:
                if (found := await executor.read_from_node(path)) is not None:
                    return found
            except OSError as exc:  # no such file there, or the node is lost
                errors.append(exc)
        if errors:
            raise min(errors, key=lambda error: isinstance(error, FileNotFoundError))
        return None

    async def install(self, package: str) -> str:
        """Installs a package for cells, unless the policy denies that; the client has asked already.

        Raises what `PackageInstaller` and its `install` raise, and a PolicyError.
        """
        if self.approve != "auto":
            decision = self.opened_approver().policy.decide(OWN_NAME, INSTALL_TOOL, {"package_name": package})
            if decision.effect == "deny":
                raise PolicyError(f"{package} was not installed: denied by {decision.reason}")
        if self._packages is None:
            from ipybox.kernel_mgr.packages import PackageInstaller

            self._packages = PackageInstaller(self.config.workspace, self.config.settings, audit=self.opened_audit())
        return await self._packages.install(package)

    def _new_executor(self) -> CodeExecutor:
        policy = None if self.approve == "auto" else self.opened_approver().policy
        config = replace(self.config, approval_policy=policy, audit=self.opened_audit())
        executor = CodeExecutor.configured(config, self.observer)
        self._attach_socket.start()
        return executor

    def opened_audit(self) -> "AuditLog | None":
        """Returns the audit log, or None if it is off; raises an AuditError if it can't be written."""
        if self._audit is None:
            self._audit = self.config.opened_audit_log()
        return self._audit

    def _read_policy(self) -> "ApprovalPolicy":
        from ipybox.tool_exec.approval.policy import WRITES, ApprovalPolicy  # late, because `auto` needs none

        match self.approve:
            case Path() as file:
                return ApprovalPolicy.load(file, self.config.workspace)
            case "writes":
                return ApprovalPolicy(WRITES, self.config.workspace, source="--approve writes")
            case str():
                return ApprovalPolicy(source="--approve ask")
            case load:
                return load()

    def opened_approver(self) -> "ElicitationApprover":
        """Returns what decides on tool calls, unless all are approved; raises a PolicyError."""
        # Imported late, because only policies need them.
        from ipybox.audit.redaction import shortened, workspace_redactor
        from ipybox.mcp_server.approver import ElicitationApprover

        if self._approver is None:
            self._approver = ElicitationApprover(self._read_policy(), desk=self._desk)
            self._approver.redactor = workspace_redactor(self.config.workspace, self.config.variables or {}, shortened)
        return self._approver
