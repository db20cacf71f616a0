"""An approval request: a tool call or shell command that needs a decision, and its state."""

import asyncio
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from inspect import isawaitable
from typing import Any, Literal, TypeVar

from ipybox.audit.records import ApprovalDecision
from ipybox.support.errors import ApprovalExpiredError
from ipybox.support.printable import unmistakable
from ipybox.workspace.registrations import PinnedTool

logger = logging.getLogger(__name__)

#: The state of a request.
ApprovalState = Literal["pending", "accepted", "rejected", "expired", "cancelled"]

#: The subject of a request: a tool call, or a program that code is about to start.
RequestKind = Literal["tool", "shell"]

#: The decider in the audit log if the caller names no other.
APPLICATION = "application"

#: The decider of calls without a decision, and of calls whose request expired.
NOBODY, TIMEOUT = "nobody", "timeout"

#: The calls of a batch, and the characters of each, in the text of a request.
SHOWN_CALLS, SHOWN_CHARACTERS = 10, 200

_BATCHES = "_ipybox_accepts_batches"


class NoDecision(ApprovalDecision):
    """The lack of a decision on a call, which therefore does not run."""


class ApprovalRequest:
    """A tool call, a batch of calls of one tool, or a shell command, that the application accepts or rejects.

    Only approvers that `accepts_batches` marks receive batches; one decision applies to all calls of a batch.

    A shell command is a call of the tool `shell` of the server `ipybox`, or of `shell_magic` for the cell of a script
    magic such as `%%bash`. Its argument `cmd` is the command or the cell.

    Attributes:
        kind: `tool` or `shell`.
        count: The number of calls: more than 1 for a batch.
        server_name: Name of the MCP server that provides the tool.
        tool_name: Name of the tool.
        server_params: The parameters of the server, with unresolved `${VAR}` placeholders, if known.
        pinned: The tool as its registration pinned it, if known.
        output_mark: The sync marker in the kernel's output that ends the output before the call, or 0.
        id: A unique name for the request.
        created_at: When it was made, in UTC.
        expires_at: When it expires, in UTC; None if it does not.
        state: `pending`, and finally `accepted`, `rejected` (also if its approver failed), `expired`, or `cancelled`
            (the call has ended, or nothing can decide on it anymore).

    Args:
        respond: Passes on the decision, which is true if the call is accepted, and returns when it has taken effect;
            None if it takes effect here.
        request_id: The `id`; a new one by default.
        calls: The arguments of each call of a batch; by default, there is one call with `tool_args`.
    """

    def __init__(
        self,
        server_name: str,
        tool_name: str,
        tool_args: dict[str, Any],
        respond: Callable[[ApprovalDecision], Awaitable[object]] | None,
        server_params: dict[str, Any] | None = None,
        output_mark: int = 0,
        *,
        kind: RequestKind = "tool",
        request_id: str | None = None,
        created_at: datetime | None = None,
        expires_at: datetime | None = None,
        pinned: PinnedTool | None = None,
        calls: Sequence[dict[str, Any]] | None = None,
    ):
        self.kind: RequestKind = kind
        self.server_name = server_name
        self.tool_name = tool_name
        self._calls = [tool_args] if calls is None else calls
        self.count = len(self._calls)
        self.server_params = server_params
        self.pinned = pinned
        self.output_mark = output_mark
        self.id = request_id or uuid.uuid4().hex
        self.created_at = created_at or datetime.now(UTC)
        self.expires_at = expires_at
        self.state: ApprovalState = "pending"
        self._respond = respond
        self._answered = False
        self._decision: ApprovalDecision | None = None
        self._ended = asyncio.Event()
        #: Cancels the approver while it runs.
        self.asking: asyncio.Timeout | None = None

    @cached_property
    def tool_args(self) -> dict[str, Any]:
        """A copy of the call's exact arguments. Changing it does not affect the call.

        Raises:
            ValueError: If there are several calls, none of which may be approved unseen: use `calls`.
        """
        if self.count > 1:
            raise ValueError(f"the request is about {self.count:,} calls: use `calls` instead of `tool_args`")
        return self.calls[0]

    @cached_property
    def calls(self) -> list[dict[str, Any]]:
        """A copy of the exact arguments of each call. Changing it does not affect the calls."""
        return json.loads(json.dumps(self._calls))

    async def accept(self, *, by: str = APPLICATION, because: str | None = None) -> bool:
        """Lets the tool run, and returns whether the decision counts.

        It does not count if the request was already decided (the first decision applies) or is `cancelled` (nothing
        runs).

        Args:
            by: The decider, for the audit log.
            because: The reason, for the audit log.

        Raises:
            ApprovalExpiredError: If the request has expired. The call has failed.
            ConnectionError: If the connection of an `ApprovalClient` to the tool server is lost.
        """
        return await self._answer(ApprovalDecision(True, by, because))

    async def reject(self, reason: str | None = None, *, by: str = APPLICATION) -> bool:
        """Makes the call fail in the kernel with the given reason; returns and raises the same as `accept`.

        Args:
            reason: The reason.
            by: The decider, for the audit log.
        """
        return await self._answer(ApprovalDecision(False, by, reason))

    async def decided(self) -> ApprovalDecision:
        """Waits until the request ends, and returns the decision, whichever part of the application made it.

        A request that ends without a decision, because it expires or its call ends, counts as a rejection.
        """
        await self._ended.wait()
        assert self._decision is not None
        return self._decision

    async def response(self) -> bool:
        """Waits until the request ends, and returns whether the call was accepted; `decided` says more."""
        return (await self.decided()).accepted

    async def fail(self, reason: str) -> None:
        """Rejects the call because its approver failed. No effect if the request was decided or has ended."""
        if self.state == "pending" and not self._answered:
            with suppress(ConnectionError):  # the call has failed already
                await self._answer(NoDecision(False, NOBODY, f"the approver failed: {reason}"))

    def settle(self, state: ApprovalState, decision: ApprovalDecision) -> bool:
        """Ends the request, and returns whether it was still pending. For the approval channel only."""
        if self._ended.is_set():
            return False
        self.state, self._decision = state, decision
        self._ended.set()
        if isinstance(decision, NoDecision) and self.asking is not None:
            self.asking.reschedule(0)
        return True

    async def _answer(self, decision: ApprovalDecision) -> bool:
        if self.state != "expired":
            if self._answered or self._ended.is_set():
                logger.warning("ignored a decision on a tool call: the call was already decided or has ended")
                return False
            self._answered = True
            if self._respond is not None:
                await self._respond(decision)
            self.settle("accepted" if decision.accepted else "rejected", decision)
        if self.state == "expired":
            raise ApprovalExpiredError(
                f"the decision on {self.server_name}.{self.tool_name} came too late: its approval request expired at "
                f"{self.expires_at}; raise `approval_timeout` to allow more time"
            )
        return self.state != "cancelled"

    def __str__(self) -> str:
        name = f"{self.server_name}.{self.tool_name}"
        known = self.pinned and self.pinned.parameters
        if self.count == 1:
            return unmistakable(f"{name}({_written(self.tool_args, known)})")
        shown = ", ".join(f"({_cut(_written(each, known))})" for each in self._calls[:SHOWN_CALLS])
        more = f", and {missing:,} more" if (missing := self.count - SHOWN_CALLS) > 0 else ""
        return unmistakable(f"{self.count:,} calls to {name}: {shown}{more}")

    def __repr__(self) -> str:
        return f"ApprovalRequest({self})"


def _written(arguments: dict[str, Any], known: Collection[str] | None) -> str:
    # Code chooses the names. Without quotes, one could look like other arguments, or like the end of the call.
    plain = {name: name if name.isidentifier() and name.isascii() else ascii(name) for name in arguments}
    unknown = set[str]() if known is None else arguments.keys() - known
    names = [f"{shown} (unknown)" if name in unknown else shown for name, shown in plain.items()]
    return ", ".join(map("{}={!r}".format, names, arguments.values()))


def _cut(text: str) -> str:
    missing = len(text) - SHOWN_CHARACTERS
    return text if missing <= 0 else f"{text[:SHOWN_CHARACTERS]}[... {missing:,} characters not shown ...]"


_HOW_TO_DECIDE = "call `await request.accept()` or `await request.reject()`"

ApprovalCallback = Callable[[ApprovalRequest], Awaitable[object]]

ApproverT = TypeVar("ApproverT", bound=Callable[..., object])


def accepts_batches(approver: ApproverT) -> ApproverT:
    """Marks a function as an approver that receives one request for all calls of a batch, see `ApprovalRequest.calls`.

    Other approvers receive one request per call.
    """
    approver.__dict__[_BATCHES] = True
    return approver


def knows_batches(approver: Callable[..., object]) -> bool:
    """Returns whether `accepts_batches` marks an approver, or the function of a method."""
    return getattr(approver, _BATCHES, False) is True


async def ask(approver: ApprovalCallback, request: ApprovalRequest) -> None:
    """Asks an approver to decide on a request; returns when the approver has finished.

    The call fails if the approver raises, is cancelled, or returns True or False instead of deciding. An approver that
    returns None may decide later. If the request ends without a decision, the approver is cancelled; if the decision
    comes from elsewhere, it keeps running.
    """
    ended = request.state in ("expired", "cancelled")
    with suppress(TimeoutError):  # from this timeout; the approver's own are caught below
        async with asyncio.timeout(0 if ended else None) as request.asking:
            try:
                answer = approver(request)
                if not isawaitable(answer):
                    raise TypeError("the approver is not an async function")
                returned = await answer
                if isinstance(returned, bool) and request.state == "pending":
                    await request.fail(f"the approver returned {returned} without deciding: {_HOW_TO_DECIDE}")
            except asyncio.CancelledError:
                await request.fail("the approver was cancelled")
                raise
            except Exception as exc:  # the application may raise anything
                logger.exception("the approval callback failed on %s", request)
                await request.fail(f"{type(exc).__name__}: {exc}")
            finally:
                request.asking = None
