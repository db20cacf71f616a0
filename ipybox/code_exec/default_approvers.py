"""The decisions on tool calls of executions that have no approver."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipybox.tool_exec.approval.request import ApprovalRequest


async def accept_call(request: "ApprovalRequest") -> None:
    """Accepts a call, for executions without an approver and a policy."""
    await request.accept(by="auto")


async def reject_call(request: "ApprovalRequest") -> None:
    """Rejects a call that a policy asks about, for executions without an approver."""
    await request.reject(
        "the approval policy asks about it, and there is no approver: use `stream`, or pass an `approver`",
        by="nobody",
    )
