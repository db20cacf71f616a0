"""What the tools of the MCP server work with: sessions, packages, the policy and the audit log of one workspace.

Nothing here needs the SDK, so that a session's process starts while the SDK is loaded.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ipybox.code_exec import CodeExecutor
from ipybox.docker.options import Approval, AuditOption
from ipybox.sandbox.settings import SandboxSettings
from ipybox.sessions import Sessions
from ipybox.workspace.writable import WritablePlaces

if TYPE_CHECKING:
    from ipybox.audit.audit import Audit
    from ipybox.mcp_cells import AskingCells
    from ipybox.packages import PackageInstaller
    from ipybox.tool_exec.approval.policy import Policy


class Host:
    """Makes what is needed when it is needed, as that fails where settings are wrong: calls say so, and try again.

    Args:
        workspace: The workspace.
        make_executor: Makes an executor, given its policy and its audit log.
        settings: Loads the sandbox's settings; None without a sandbox.
        max_sessions: How many sessions there can be at once.
        approve: How tool calls are approved.
        audit: What is written to the audit log.
        variables: Values of placeholders that the environment does not have.

    Raises:
        ValueError: If there could be no session.
    """

    def __init__(
        self,
        workspace: Path,
        make_executor: Callable[..., CodeExecutor],
        settings: Callable[[], SandboxSettings] | None,
        *,
        max_sessions: int,
        approve: "Approval | Callable[[], Policy]",
        audit: AuditOption,
        variables: Mapping[str, str] | None = None,
    ):
        self.workspace = workspace
        self.variables = variables
        self.sessions = Sessions(self._new_executor, max_sessions)
        #: What executes cells whose tool calls somebody is asked about; None if nobody is.
        self.cells: AskingCells | None = None
        self._make_executor = make_executor
        self._settings = settings
        self._approve: Approval | Callable[[], Policy] = approve
        self._audit_option: AuditOption = audit
        self._audit: Audit | None = None
        self._packages: PackageInstaller | None = None

    async def aclose(self) -> None:
        """Stops all sessions and all that belongs to them."""
        if self.cells is not None:
            await self.cells.aclose()
        await self.sessions.stop()
        if self._audit is not None:
            self._audit.close()

    def places(self) -> WritablePlaces:
        """Returns the places that code can write.

        Raises:
            SandboxError: If the settings of the sandbox are wrong.
        """
        return WritablePlaces(self.workspace, self._settings and self._settings())

    def packages(self) -> "PackageInstaller":
        """Returns what installs packages.

        Raises:
            AuditError, SandboxError: If it can't be made.
        """
        if self._packages is None:
            from ipybox.packages import PackageInstaller

            settings = self._settings and self._settings()
            self._packages = PackageInstaller(self.workspace, settings, audit=self.opened_audit())
        return self._packages

    def _new_executor(self) -> CodeExecutor:
        return self._make_executor(approval_policy=self._policy(), audit=self.opened_audit())

    def opened_audit(self) -> "Audit | None":
        """Returns the audit log, if there is to be one.

        Raises:
            AuditError: If it can't be written.
        """
        if self._audit is None and self._audit_option != "off":
            # Only now, as the first answer does not wait for it.
            from ipybox.audit.audit import Audit

            audit = Audit(self.workspace, self._audit_option)
            audit.know(self.variables or {})
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

        if self._approve == "ask":
            policy = Policy(source="--approve ask")
        elif callable(self._approve):
            policy = self._approve()
        else:
            policy = Policy.load(self._approve, self.workspace)
        self.cells = AskingCells(Approver(policy))
        return policy
