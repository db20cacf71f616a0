"""The decisions on tool calls of executions that have no approver."""

from typing import TYPE_CHECKING, cast

from ipybox.code_exec.config import ExecutorConfig

if TYPE_CHECKING:
    from ipybox.tool_exec.approval.request import ApprovalCallback, ApprovalRequest


def approver_of(config: ExecutorConfig) -> "ApprovalCallback":
    """Returns the approver of executions without an approver of their own."""
    if config.approver is not None:
        # The config of an `Executor` has a plain function, which it replaces by an asynchronous one.
        return cast("ApprovalCallback", config.approver)
    return accept_call if config.policy is None else reject_call


async def accept_call(request: "ApprovalRequest") -> None:
    """Accepts a call, for executions without an approver and a policy."""
    await request.accept(by="auto")


async def reject_call(request: "ApprovalRequest") -> None:
    """Rejects a call that a policy asks about, for executions without an approver."""
    await request.reject(
        "the approval policy asks about it, and there is no approver: use `stream`, or pass an `approver`",
        by="nobody",
    )
