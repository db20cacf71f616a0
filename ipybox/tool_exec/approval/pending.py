"""Approval requests that wait for a decision."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from ipybox.audit.decision import ApprovalDecision
from ipybox.support.tasks import TaskSet
from ipybox.tool_exec.approval.protocol import NOBODY, TIMEOUT, NoDecision, Outcome, RequestKind
from ipybox.tool_exec.approval.request import ApprovalRequest


class PendingRequests:
    """The requests of one source that wait for a decision, each with a task that delivers it.

    Decisions may come in any order. A request that expires or is cancelled is forgotten: a late answer has no effect.
    """

    def __init__(self) -> None:
        self._requests: dict[str, ApprovalRequest] = {}
        self._tasks = TaskSet()

    def get(self, request_id: str) -> ApprovalRequest | None:
        """Returns the pending request with an id, or None."""
        return self._requests.get(request_id)

    async def decide(
        self,
        deliver: Callable[[ApprovalRequest], Coroutine[Any, Any, None]],
        timeout: float | None,
        server_name: str,
        tool_name: str,
        tool_args: dict[str, Any],
        server_params: dict[str, Any] | None,
        output_mark: int,
        *,
        kind: RequestKind,
    ) -> ApprovalDecision:
        """Makes a request for a decision on a call, and returns the decision; a `NoDecision` if the request expires.

        Args:
            deliver: Passes the request on, in a background task.
            timeout: Seconds until the request expires; None for never.
            server_name: Name of the MCP server.
            tool_name: Name of the tool.
            tool_args: The arguments of the call.
            server_params: The parameters of the server, if known.
            output_mark: The mark in the kernel's output that follows the output before the call.
            kind: Whether it is a tool call or a shell command.
        """
        created_at = datetime.now(UTC)
        request = ApprovalRequest(
            server_name,
            tool_name,
            tool_args,
            _take_effect,
            server_params,
            output_mark,
            kind=kind,
            created_at=created_at,
            expires_at=None if timeout is None else created_at + timedelta(seconds=timeout),
        )
        self._requests[request.id] = request
        self._tasks.start(deliver(request))
        try:
            async with asyncio.timeout(timeout):
                return await request.decided()
        except TimeoutError:
            reason = f"the approval request expired after {timeout:g} s"
            request.settle("expired", NoDecision(False, TIMEOUT, reason))
            return await request.decided()  # another one if it came at the same moment
        except asyncio.CancelledError:
            request.settle("cancelled", NoDecision(False, NOBODY, "the call has ended"))
            raise
        finally:
            del self._requests[request.id]

    async def cancel(self, decision: NoDecision) -> None:
        """Ends all requests with a decision against them, and cancels the tasks that deliver them."""
        self.settle(decision)
        await self._tasks.cancel()

    def settle(self, decision: NoDecision) -> None:
        """Ends all requests with a decision against them."""
        for request in self._requests.values():
            request.settle("cancelled", decision)


async def _take_effect(_: Outcome) -> None:
    """Answers of an approver in this process take effect immediately."""
