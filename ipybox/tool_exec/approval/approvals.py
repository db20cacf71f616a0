"""Decides on the tool calls of one kernel: by a policy, or else by the approver of the cell that runs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ipybox.audit.decision import ApprovalDecision
from ipybox.tool_exec.approval.pending import PendingRequests
from ipybox.tool_exec.approval.protocol import NOBODY, NoDecision, RequestKind
from ipybox.tool_exec.approval.request import ApprovalCallback, ApprovalRequest, ask

if TYPE_CHECKING:
    from ipybox.tool_exec.approval.policy import ApprovalPolicy

_NO_CELL = NoDecision(False, NOBODY, "the call was made while no cell was running")
_CELL_ENDED = NoDecision(False, NOBODY, "its cell has ended")


async def accept_call(request: ApprovalRequest) -> None:
    """Accepts a call: the approver of executions with neither an approver nor a policy."""
    await request.accept(by="auto")


async def reject_call(request: ApprovalRequest) -> None:
    """Rejects a call that a policy asks about: the approver of executions with a policy only."""
    await request.reject(
        "the approval policy requires approval, but there is no approver: use `stream`, or pass an `approver`",
        by=NOBODY,
    )


class Approvals:
    """Decisions on the tool calls of one kernel.

    Args:
        policy: Decides before an approver is asked.
        timeout: Seconds until the request to an approver expires; None for never.
    """

    def __init__(self, policy: "ApprovalPolicy | None" = None, timeout: float | None = 60):
        self._policy = policy
        self._timeout = timeout
        self._approver: ApprovalCallback | None = None
        self._pending = PendingRequests()
        #: Whether the approver of the cell was asked.
        self._asked = False

    @asynccontextmanager
    async def cell(self, approver: ApprovalCallback) -> AsyncGenerator[None]:
        """Asks the approver of a cell about calls in the context, which is not reentrant.

        Requests that are undecided at its end are cancelled, and so are approvers that still run.
        """
        self._approver, self._asked = approver, False
        try:
            yield
        finally:
            self._approver = None
            if self._asked:
                await self._pending.cancel(_CELL_ENDED)

    async def decide(
        self,
        server_name: str,
        tool_name: str,
        tool_args: dict[str, Any],
        server_params: dict[str, Any] | None = None,
        output_mark: int = 0,
        *,
        kind: RequestKind = "tool",
    ) -> ApprovalDecision:
        """Returns the decision on a call; a `NoDecision` if none was made. Creates no request for what needs none."""
        approver = self._approver
        if approver is None:
            return _NO_CELL
        if self._policy is not None:
            decision = self._policy.decide(server_name, tool_name, tool_args, server_params)
            if decision.effect == "allow":
                return ApprovalDecision(True, "rule", f"allowed by {decision.reason}")
            if decision.effect == "deny":
                return ApprovalDecision(False, "rule", f"denied by {decision.reason}")
        if approver is accept_call:
            return ApprovalDecision(True, "auto")
        self._asked = True
        return await self._pending.decide(
            partial(ask, approver),
            self._timeout,
            server_name,
            tool_name,
            tool_args,
            server_params,
            output_mark,
            kind=kind,
        )
