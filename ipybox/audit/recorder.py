"""Records the executions and tool calls of one kernel session: in the audit log, as spans and in metrics.

An executor runs one cell at a time, and tool calls from its kernel belong to that cell. A call between two cells, from
a thread in the kernel, belongs to no cell.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from ipybox.audit.records import (
    MAX_ARGUMENTS,
    MAX_OTHER,
    ApprovalDecision,
    ExecutionRecord,
    ToolCallRecord,
    WaitingCalls,
    in_span,
    new_id,
    seconds_since,
    utc_now,
)
from ipybox.guest.tools.protocol import RunRequest
from ipybox.support.errors import NO_CELL

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from ipybox.audit.audit import AuditLog
    from ipybox.audit.notebook.session import SessionHistory
    from ipybox.audit.records import JobAction, SessionObserver


class SessionRecorder:
    """Records what one executor does, from its start to its stop.

    Args:
        audit: The audit log.
        name: The name of the session.
        history: Keeps the session's cells for a notebook.
        observer: Receives the session's events for metrics.
    """

    def __init__(
        self,
        audit: "AuditLog | None" = None,
        name: str | None = None,
        history: "SessionHistory | None" = None,
        observer: "SessionObserver | None" = None,
    ):
        self._audit = audit
        self._observer = observer
        self._history = history
        #: Provides the redactor; None if nothing is kept.
        self._kept = audit or history
        self._id = new_id()
        self.name = name
        self._ids = {"session_id": self._id, "session_name": name}
        self._cell: ExecutionRecord | None = None

    def named(self, name: str | None) -> "SessionRecorder":
        """Returns a recorder for another executor, with the same log."""
        return SessionRecorder(self._audit, name, self._history and self._history.for_sibling(), self._observer)

    def notebook(self) -> "NotebookNode":
        """Returns the session so far as a notebook; raises a RuntimeError if its cells are not kept."""
        if self._history is None:
            raise RuntimeError(NO_CELL)
        return self._history.notebook(session_id=self._id, session_name=self.name)

    def session(self, action: str, **fields: object) -> None:
        """Records that the session starts, stops, gets a new kernel, or is joined by a person."""
        self._record("session", action=action, **fields)

    def job(
        self, action: "JobAction", *, reason: str | None = None, waited: float | None = None, **fields: str | None
    ) -> None:
        """Records an event of the engine's job that runs the session's kernel.

        Args:
            action: What happened.
            reason: Why the job waits, failed or was lost.
            waited: Seconds from the start of the command until its node started or failed.
            fields: The `engine`, as messages call it, the number of the `job` and the name of its `node`, as far as
                known.
        """
        given = {**fields, "reason": reason and self._text(reason), "waited": waited and round(waited, 3)}
        self._record("job", action=action, **given)

    def add_cell_secrets(self, variables: Mapping[str, str]) -> None:
        """Removes the secrets in a cell's environment variables from everything recorded from now on."""
        if self._kept is not None:
            from ipybox.audit.redaction import secrets_among

            self._kept.redactor.add_cell_secrets(secrets_among(variables))

    async def require(self) -> None:
        """Raises an AuditError before a new action if earlier events could not be written."""
        if self._audit is not None:
            await self._audit.require()

    async def flush(self) -> None:
        """Waits briefly until all lines are written."""
        if self._audit is not None:
            await self._audit.writer.flush(required=False)

    async def close(self) -> None:
        """Closes the log; a later line opens it again."""
        if self._audit is not None:
            await asyncio.to_thread(self._audit.close)

    @asynccontextmanager
    async def cell(self, code: str) -> AsyncGenerator[ExecutionRecord]:
        """Records the cell that is executed in the context, whatever its outcome.

        Raises:
            AuditError: If it can't be recorded; then it must not be executed.
        """
        audit, history = self._audit, self._history
        if audit is not None and audit.writer.failed:
            await audit.require()
        cell = self._cell = ExecutionRecord(self._ids, history and history.new_cell(code))
        try:
            yield cell
        except BaseException as exc:
            cell.fail(exc)
            raise
        finally:
            ended = {**cell.ids, **cell.end()}
            self._cell = None
            self._record("cell", **ended, **(audit.code(code) if audit is not None else {}))
            if history is not None and cell.executed is not None:
                history.end(cell.executed, cell.result, {"event": "cell", "time": utc_now(), **ended})
            cell.result = None  # otherwise, an error would refer to itself through its traceback
            if cell.lost_state:
                self.session("restart")
            if audit is not None:
                await audit.writer.flush(required=False)

    @asynccontextmanager
    async def tool_call(
        self,
        called: RunRequest,
        may_write: Callable[[RunRequest], bool],
        *,
        large: bool = False,
        batch_id: str | None = None,
    ) -> AsyncGenerator[ToolCallRecord]:
        """Records the tool call that is made in the context, whatever its outcome; its span is current there.

        `large` arguments are processed in a thread. `batch_id` is the same for all calls of a batch. `may_write`
        returns whether the call may change something; it is called only if the cell fails.
        """
        call = ToolCallRecord(self._ids, called, may_write, self._cell)
        try:
            with nullcontext() if call.span is None else in_span(call.span):
                if self._audit is not None:
                    self._audit.add_placeholder_secrets(called["server_params"])
                described = called["server_name"], called["tool_name"], called["tool_args"]
                fields = await asyncio.to_thread(self._described, *described) if large else self._described(*described)
                call.described = {"tool_call_id": call.id, **({"batch_id": batch_id} if batch_id else {}), **fields}
                yield call
        except BaseException as exc:
            call.fail(type(exc).__name__, outcome="cancelled")
            raise
        finally:
            self._record(
                "tool_call", **call.ids, **call.described, **call.end(), error=call.error and self._text(call.error)
            )

    def waiting(self, calls: WaitingCalls) -> None:
        """Counts calls that wait for their turn among those of the running cell."""
        if self._cell is not None:
            self._cell.calls.open.add(calls)

    async def decided(self, call: ToolCallRecord, decided: ApprovalDecision) -> None:
        """Records a decision on a tool call, before the call is made.

        Raises:
            AuditError: If it can't be recorded; then the call must not be made.
        """
        call.state = "sent"
        if not decided.accepted:
            call.fail("rejected", decided.reason, outcome="rejected")
        if call.span is not None:
            call.span.add_event("decision", {"accepted": decided.accepted, "by": decided.by})
        fields = {**call.ids, **call.described, "arguments": None}  # they are in the call's own event
        made = {"accepted": decided.accepted, "by": decided.by, "reason": decided.reason and self._text(decided.reason)}
        self._record("decision", **fields, **made, duration=seconds_since(call.started))
        if self._audit is not None:
            await self._audit.writer.flush(required=True)

    def denied(self, by: str, messages: Iterable[str]) -> None:
        """Records denials that involve no approval request: by the `sandbox`, a `limit` or the `tool_server`."""
        for message in messages:
            self._record("denial", by=by, message=self._text(message))

    def _record(self, event: str, **fields: Any) -> None:
        """Passes an event to the log, the observer and the history, which receives cells separately, with outputs.

        Unless `fields` say otherwise, it belongs to the running cell.
        """
        fields = {**(self._ids if self._cell is None else self._cell.ids), **fields}
        if self._audit is not None:
            self._audit.record(event, **fields)
        if self._observer is not None:
            self._observer(event, fields)
        if self._history is not None and event != "cell":
            self._history.add({"event": event, **fields})

    def _described(self, server_name: str, tool_name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields that describe a call, without secrets; none if nothing is kept."""
        if self._kept is None:
            return {}
        redactor = self._kept.redactor
        return {
            "server_name": redactor.text(server_name, MAX_OTHER),
            "tool_name": redactor.text(tool_name, MAX_OTHER),
            "arguments": redactor.value(arguments, MAX_ARGUMENTS),
            "arguments_hash": None if self._audit is None else self._audit.digest(arguments),
        }

    def _text(self, text: str) -> str | None:
        return None if self._kept is None else self._kept.redactor.text(text, MAX_OTHER)
