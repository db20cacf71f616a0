"""What the audit log records: executions, tool calls, decisions on them, and other actions of the application.

Cells and tool calls are OpenTelemetry spans, if the application uses tracing. Such an application has imported the API;
otherwise, nothing is imported. Names follow the semantic conventions:
https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
"""

import asyncio
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

from ipybox.guest.tools.protocol import RunRequest
from ipybox.support.effects import MAX_ENTRIES, MAX_NAME, NO_EFFECT, CallState, ToolCallCount, shortened
from ipybox.support.errors import CodeExecutionError, ExecutionCancelledError, ExecutionTimeoutError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.util.types import AttributeValue

    from ipybox.audit.audit import AuditLog
    from ipybox.audit.notebook.session import ExecutedCell
    from ipybox.support.outputs import ExecutionOutput

#: The job is queued; its node runs a kernel gateway, or failed to; the node was lost; the job is no longer needed.
JobAction = Literal["queued", "started", "failed", "lost", "ended"]

#: Receives the name and fields of each session event, as the audit log does. Must not block or raise.
SessionObserver = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True)
class ApprovalDecision:
    """The decision on a call; it is true if the call is accepted.

    Attributes:
        accepted: Whether the call may run.
        by: The decider: `auto`, `rule`, `user`, `client` (without its user), `application`, `timeout`, `nobody`, or
            another name that an application gives.
        reason: The reason, such as the rule's file and line.
        definition: A hash of the tool's definition, if the decision holds for no other.
    """

    accepted: bool
    by: str
    reason: str | None = None
    definition: str | None = None

    def __bool__(self) -> bool:
        # `if await request.decided()` must not accept a rejected call.
        return self.accepted


#: How an action ended.
Outcome = Literal["ok", "error", "timeout", "cancelled", "rejected"]

#: Maximum characters recorded of code, of a call's arguments, and of other texts.
MAX_CODE = 8000
MAX_ARGUMENTS = 4000
MAX_OTHER = 1000

#: Errors of a call whose server could not be started, and of one whose connection broke.
_NOT_STARTED = ("MCPServerError", "MissingVariableError")
_UNANSWERED = ("MCPConnectionLost",)


@dataclass
class _Counted:
    may_write: Callable[[], bool]
    count: int = 0
    arguments: object = None


@dataclass(eq=False)
class WaitingCalls:
    """The calls of a batch whose turn has not come."""

    server_name: str
    tool_name: str
    may_write: Callable[[], bool]
    count: int
    state: CallState = "not started"
    described: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class CallTally:
    """The calls of one cell. `open` contains those that have not ended."""

    open: set["ToolCallRecord | WaitingCalls"] = field(default_factory=set["ToolCallRecord | WaitingCalls"])
    _entries: dict[tuple[str, str, CallState], _Counted] = field(default_factory=dict[Any, _Counted])

    def add(self, call: "ToolCallRecord | WaitingCalls") -> None:
        """Counts a call in its present state, which is final if the call has ended."""
        self.open.discard(call)
        if not call.count:
            return
        key = (call.server_name[:MAX_NAME], call.tool_name[:MAX_NAME], call.state)
        if key not in self._entries and len(self._entries) >= MAX_ENTRIES:
            key = ("", "", call.state)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Counted(call.may_write)
        entry.count += call.count
        entry.arguments = call.described.get("arguments")

    def counts(self) -> tuple[ToolCallCount, ...]:
        """Returns the calls of tools that may write; none if no such call was sent. Counts open calls as they are."""
        for call in tuple(self.open):
            self.add(call)
        found = tuple(
            ToolCallCount(*key, entry.count, shortened(entry.arguments))
            for key, entry in self._entries.items()
            if entry.may_write()
        )
        return found if any(each.state not in NO_EFFECT for each in found) else ()


class ExecutionRecord:
    """One execution of a cell. `session` identifies its session in events; `executed` is the notebook's cell."""

    def __init__(self, session: Mapping[str, str | None], executed: "ExecutedCell | None" = None):
        self.id = new_id()
        self.outcome: Outcome = "ok"
        self.executed = executed
        #: Its result or error.
        self.result: ExecutionOutput | BaseException | None = None
        #: Whether the kernel and its state were lost at its end.
        self.lost_state = False
        self.calls = CallTally()
        self._output_chars = 0
        self._over = False
        attributes = {"session.id": str(session["session_id"]), "ipybox.cell.id": self.id}
        self.span = _start_span("execute_cell", attributes)
        #: The fields that identify it in events.
        self.ids = {**session, "cell_id": self.id}
        self._started = time.monotonic()

    def succeed(self, result: "ExecutionOutput") -> None:
        """Records success and the output; later events don't change that."""
        self._output_chars = len(result.text or "")
        self.result = result
        self._over = True

    def fail(self, exc: BaseException) -> None:
        """Records an exception and the outcome that it implies."""
        if self._over:  # the consumer stopped after the result
            return
        self.result = exc
        match exc:
            case ExecutionCancelledError() | asyncio.CancelledError() | GeneratorExit():
                self.outcome = "cancelled"
            case TimeoutError():
                self.outcome = "timeout"
            case _:
                self.outcome = "error"
        if isinstance(exc, CodeExecutionError | ExecutionTimeoutError):
            self._output_chars = len(exc.text or "")

    def end(self) -> dict[str, Any]:
        """Ends its span, and returns the fields of its outcome."""
        if self.span is not None:
            _end_span(self.span, None if self.outcome == "ok" else self.outcome)
        return {"outcome": self.outcome, "output_chars": self._output_chars, "duration": seconds_since(self._started)}


class ToolCallRecord:
    """One tool call, in a cell or between two cells. `session` identifies its session in events."""

    count = 1

    def __init__(
        self,
        session: Mapping[str, str | None],
        call: RunRequest,
        may_write: Callable[[RunRequest], bool],
        cell: ExecutionRecord | None,
    ):
        self.id = new_id()
        self.cell = cell
        self.server_name, self.tool_name = call["server_name"], call["tool_name"]
        self.may_write = partial(may_write, {**call, "tool_args": {}})  # without arguments, because it is kept
        self.outcome: Outcome = "ok"
        #: How far it has come, and its state if it succeeds.
        self.state: CallState = "not started"
        self.success: CallState = "done"
        self.error: str | None = None
        #: The fields that describe it: names and arguments.
        self.described: dict[str, Any] = {}
        self._error_type: str | None = None
        name = self.tool_name[:MAX_NAME]
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": self.id,
            "ipybox.server.name": self.server_name[:MAX_NAME],
        }
        self.span = _start_span(f"execute_tool {name}", attributes, parent=cell and cell.span)
        #: The fields that identify it in events.
        self.ids = {**session, "cell_id": cell and cell.id}
        #: When it was requested.
        self.started = time.monotonic()
        if cell is not None:
            cell.calls.open.add(self)

    def fail(self, error_type: str, error: str | None = None, outcome: Outcome = "error") -> None:
        """Records a failure. `error_type` is `tool_error` if the tool reported it, or the name of an exception."""
        self.outcome, self.error, self._error_type = outcome, error, error_type
        if outcome == "rejected":
            self.state = "declined"
        elif error_type in _NOT_STARTED:
            self.state = "not started"
        elif outcome == "error" and error_type not in _UNANSWERED:
            self.state = "failed"

    def end(self) -> dict[str, Any]:
        """Ends its span, and returns the fields of its outcome."""
        if self.span is not None:
            _end_span(self.span, self._error_type)
        if self.outcome == "ok":
            self.state = self.success
        if self.cell is not None:
            self.cell.calls.add(self)
        return {"outcome": self.outcome, "error_type": self._error_type, "duration": seconds_since(self.started)}


def new_id() -> str:
    """Returns a new id for a session, a cell or a tool call."""
    return uuid.uuid4().hex[:16]


def utc_now() -> str:
    """Returns the current time in the log's format."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_since(started: float) -> float:
    """Returns the seconds since `started`, a time of the monotonic clock."""
    return round(time.monotonic() - started, 4)


@asynccontextmanager
async def recorded(audit: "AuditLog | None", event: str, **fields: Any) -> AsyncGenerator[dict[str, Any]]:
    """Records an action and its outcome, without secrets; yields the event's fields, to add others.

    Raises:
        AuditError: If it can't be recorded; then the action must not start.
    """
    if audit is None:
        yield fields
        return
    if audit.writer.failed:
        await audit.require()
    audit.add_placeholder_secrets(fields)
    started = time.monotonic()
    outcome: Outcome = "ok"
    try:
        yield fields
    except BaseException as exc:
        outcome = "error" if isinstance(exc, Exception) else "cancelled"
        fields["error"] = str(exc) or type(exc).__name__
        raise
    finally:
        for name, value in fields.items():
            fields[name] = audit.redactor.value(value, MAX_ARGUMENTS)
        audit.record(event, **fields, outcome=outcome, duration=seconds_since(started))
        await audit.writer.flush(required=False)


def _start_span(
    name: str, attributes: "Mapping[str, AttributeValue]", *, parent: "Span | None" = None
) -> "Span | None":
    """Returns a new child span of `parent` or the current span, for `_end_span`; None without tracing."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace

    context = None if parent is None else trace.set_span_in_context(parent)
    span = _tracer().start_span(name, context, attributes=attributes)
    return span if span.get_span_context().is_valid else None


def in_span(span: "Span") -> AbstractContextManager[object]:
    """Makes a span the parent of spans that start in the context, without ending it."""
    from opentelemetry import trace

    return trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False)


def _end_span(span: "Span", error_type: str | None) -> None:
    """Ends a span; `error_type` marks it as failed."""
    if error_type is not None:
        from opentelemetry.trace import StatusCode

        span.set_attribute("error.type", error_type)
        span.set_status(StatusCode.ERROR)
    span.end()


@cache
def _tracer() -> "Tracer":
    from opentelemetry import trace

    return trace.get_tracer("ipybox")
