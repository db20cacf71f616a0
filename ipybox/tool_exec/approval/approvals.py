"""Decides on a kernel's tool calls: by a policy, or else by the approver of the running cell."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from ipybox.audit.records import ApprovalDecision
from ipybox.guest.tools.protocol import RunRequest
from ipybox.support.tasks import TaskSet
from ipybox.tool_exec.approval.request import (
    NOBODY,
    TIMEOUT,
    ApprovalCallback,
    ApprovalRequest,
    NoDecision,
    RequestKind,
    ask,
    knows_batches,
)

if TYPE_CHECKING:
    from ipybox.tool_exec.approval.policy import ApprovalPolicy
    from ipybox.tool_exec.dispatch import ToolCaller
    from ipybox.workspace.registrations import PinnedTool

logger = logging.getLogger(__name__)

_NO_CELL = NoDecision(False, NOBODY, "the call was made while no cell was running")
_CELL_ENDED = NoDecision(False, NOBODY, "its cell has ended or was interrupted")


async def accept_call(request: ApprovalRequest) -> None:
    """Accepts a call: the approver of executions with neither an approver nor a policy."""
    await request.accept(by="auto")


async def reject_call(request: ApprovalRequest) -> None:
    """Rejects a call that a policy asks about: the approver of executions with a policy but no approver."""
    await request.reject(
        "the approval policy requires approval, but there is no approver: use `stream`, or pass an `approver`",
        by=NOBODY,
    )


class Approvals:
    """Decides on the tool calls of one kernel: the policy first, then the cell's approver.

    `timeout` is the number of seconds until a request to the approver expires; None for never.
    """

    def __init__(self, policy: "ApprovalPolicy | None" = None, timeout: float | None = 60):
        self._policy = policy
        self._uses_hints = policy is not None and policy.uses_hints
        self._timeout = timeout
        self._approver: ApprovalCallback | None = None
        #: Changes when a cell ends or is interrupted, so that what was decided on before starts no further call.
        self.epoch = 0
        #: The undecided requests by id; a background task delivers each.
        self._pending: dict[str, ApprovalRequest] = {}
        self._tasks = TaskSet()
        #: Whether the cell's approver was asked.
        self._asked = False

    @asynccontextmanager
    async def cell(self, approver: ApprovalCallback) -> AsyncGenerator[None]:
        """Sends calls made in the context to a cell's approver. Not reentrant.

        At its end, undecided requests and approvers that are still running are cancelled.
        """
        self._approver, self._asked = approver, False
        try:
            yield
        finally:
            self._approver = None
            self.epoch += 1
            if self._asked:
                await self._cancel(_CELL_ENDED)

    def end_batches(self) -> None:
        """Ends batches that have not made all calls; single calls, such as those of cleanup code, go on."""
        self.epoch += 1

    async def decide(
        self, call: RunRequest, kind: RequestKind = "tool", caller: "ToolCaller | None" = None
    ) -> ApprovalDecision:
        """Returns the decision on a call; a `NoDecision` if none was made. Creates a request only if needed."""
        approver, epoch = self._approver, self.epoch
        if approver is None:
            return _NO_CELL
        pinned, definition = (None, None) if self._policy is None else await self._current(call, caller)
        if self.epoch != epoch:
            return _CELL_ENDED
        decided = None if self._policy is None else self._by_rule(self._policy, call, pinned)
        if decided is None:
            if approver is accept_call:
                return ApprovalDecision(True, "auto")
            pinned = pinned or (caller and caller.pinned(call))
            decided = await self._request(partial(ask, approver), [call], kind, pinned)
        return decided if definition is None else replace(decided, definition=definition)

    async def decide_many(self, calls: Sequence[RunRequest], caller: "ToolCaller") -> Sequence[ApprovalDecision | None]:
        """Returns the decisions on calls of one tool; None for each call to decide on by itself when its turn comes.

        Creates at most one request, for all calls that no rule decides on.
        """
        approver, epoch = self._approver, self.epoch
        if approver is None or not knows_batches(approver):
            return [None] * len(calls)
        pinned, definition = await self._current(calls[0], caller) if calls else (None, None)
        # In a thread, because rules can take milliseconds for each call.
        decisions: list[ApprovalDecision | None] = [None] * len(calls)
        if (policy := self._policy) is not None:
            decisions = await asyncio.to_thread(lambda: [self._by_rule(policy, call, pinned) for call in calls])
        if self.epoch != epoch:
            return [_CELL_ENDED] * len(calls)
        asked = [call for call, decision in zip(calls, decisions, strict=True) if decision is None]
        answer: ApprovalDecision | None = None
        if asked:
            answer = await self._request(partial(ask, approver), asked, "tool", pinned)
            answer = replace(answer, definition=definition)
        # The tool may change before a call's turn.
        unsure = [self._uses_hints and decision is not None and decision.accepted for decision in decisions]
        found = [answer if decision is None else decision for decision in decisions]
        return [None if again else decision for decision, again in zip(found, unsure, strict=True)]

    async def _current(self, call: RunRequest, caller: "ToolCaller | None") -> "tuple[PinnedTool | None, str | None]":
        """Returns a call's tool as it was registered, without a person's decision if its definition has changed since.

        With it, returns a hash of that definition, if there is such a decision.
        """
        pinned = caller and caller.pinned(call)
        if not (self._uses_hints and caller and caller.connections and pinned and pinned.unasked is not None):
            return pinned, None
        definition = await caller.connections.definition(call)
        if definition == pinned.digest:
            return pinned, definition
        logger.warning("%s.%s has changed since its registration", call["server_name"], call["tool_name"])
        return pinned._replace(unasked=None), definition

    @staticmethod
    def _by_rule(policy: "ApprovalPolicy", call: RunRequest, pinned: "PinnedTool | None") -> ApprovalDecision | None:
        about = call["server_name"], call["tool_name"], call["tool_args"], call["server_params"]
        decision = policy.decide(*about, pinned)
        if decision.effect == "ask":
            return None
        allowed = decision.effect == "allow"
        return ApprovalDecision(allowed, "rule", f"{'allowed' if allowed else 'denied'} by {decision.reason}")

    async def _request(
        self,
        deliver: Callable[[ApprovalRequest], Coroutine[Any, Any, None]],
        calls: Sequence[RunRequest],
        kind: RequestKind,
        pinned: "PinnedTool | None" = None,
    ) -> ApprovalDecision:
        """Delivers a request about calls of one tool in the background, and returns the decision.

        Returns a `NoDecision` if the request expires.
        """
        self._asked = True
        created_at, call = datetime.now(UTC), calls[0]
        request = ApprovalRequest(
            call["server_name"],
            call["tool_name"],
            call["tool_args"],
            None,
            call["server_params"],
            call.get("output_mark", 0),
            kind=kind,
            pinned=pinned,
            created_at=created_at,
            expires_at=None if self._timeout is None else created_at + timedelta(seconds=self._timeout),
            calls=[each["tool_args"] for each in calls],
        )
        self._pending[request.id] = request
        self._tasks.start(deliver(request))
        try:
            async with asyncio.timeout(self._timeout):
                return await request.decided()
        except TimeoutError:
            reason = f"the approval request expired after {self._timeout:g} s"
            request.settle("expired", NoDecision(False, TIMEOUT, reason))
            return await request.decided()  # a decision that came at the same moment wins
        except asyncio.CancelledError:
            request.settle("cancelled", NoDecision(False, NOBODY, "the call has ended"))
            raise
        finally:
            del self._pending[request.id]

    async def _cancel(self, decision: NoDecision) -> None:
        """Ends all requests with this decision, and cancels their delivery."""
        self._settle(decision)
        await self._tasks.cancel()

    def _settle(self, decision: NoDecision) -> None:
        """Ends all requests with this decision."""
        for request in self._pending.values():
            request.settle("cancelled", decision)
