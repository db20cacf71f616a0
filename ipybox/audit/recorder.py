"""Records what one kernel session does, in the audit log, as spans and in metrics: its executions and tool calls.

The application executes one cell of an executor at a time, so that a call from its kernel belongs to that cell. A call
between two cells, from a thread of the kernel, belongs to no cell.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ipybox.audit import tracing
from ipybox.audit.records import ApprovalDecision, ExecutionRecord, ToolCallRecord, new_id

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from ipybox.audit.audit import AuditLog
    from ipybox.audit.notebook.history import SessionHistory
    from ipybox.audit.observer import JobEvent, SessionObserver


class SessionRecorder:
    """Records what one executor does, from its start to its stop.

    Args:
        audit: The audit log; None to record no events.
        name: The name of the session.
        history: Keeps the session for a notebook; None to keep nothing.
        observer: Counts what the session does; None to count nothing.
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
        self._id = new_id()
        #: The name of the session.
        self.name = name
        #: The fields of its events.
        self._ids = {"session_id": self._id, "session_name": name}
        self._cell: ExecutionRecord | None = None

    def named(self, name: str | None) -> "SessionRecorder":
        """Returns the recorder of another executor, with the same log."""
        return SessionRecorder(self._audit, name, self._history and self._history.for_sibling(), self._observer)

    def notebook(self) -> "NotebookNode":
        """Returns the session so far as a notebook.

        Raises:
            RuntimeError: If nothing is kept for it.
        """
        if self._history is None:
            raise RuntimeError("the session's cells are not kept: create the executor with `notebook_bytes` above 0")
        return self._history.notebook(session_id=self._id, session_name=self.name)

    def session(self, action: str, **fields: object) -> None:
        """Records that the session starts or stops, gets a new kernel, or is joined by a person."""
        if self._audit is not None:
            self._audit.record("session", **self._ids_now(), action=action, **fields)
        if self._observer is not None:
            self._observer.session(action)
        if self._history is not None:
            self._history.session(action)

    def job(self, event: "JobEvent") -> None:
        """Records what happens to the job of an engine that runs the session's kernel."""
        if self._audit is not None:
            fields = asdict(event) | {"reason": self._audit.text(event.reason)}
            if event.waited is not None:
                fields["waited"] = round(event.waited, 3)
            self._audit.record("job", **self._ids, cell_id=self._cell and self._cell.id, **fields)
        if self._observer is not None:
            self._observer.job(event)

    def know_of_cell(self, variables: Mapping[str, str]) -> None:
        """Removes the secrets among the environment variables of a cell from what is recorded from now on."""
        if self._audit is not None:
            self._audit.know_of_cell(variables)
        elif self._history is not None:
            self._history.know_of_cell(variables)

    async def require(self) -> None:
        """Checks that earlier events were written, before a new action.

        Raises:
            AuditError: If they were not.
        """
        if self._audit is not None:
            await self._audit.require()

    async def flush(self) -> None:
        """Waits until all lines are written, but not long."""
        if self._audit is not None:
            await self._audit.writer.flush(required=False)

    async def close(self) -> None:
        """Closes the log; a later line opens it again."""
        if self._audit is not None:
            await asyncio.to_thread(self._audit.close)

    @asynccontextmanager
    async def cell(self, code: str) -> AsyncGenerator[ExecutionRecord]:
        """Records the cell that is executed in the context, with any outcome, before its result is known.

        Raises:
            AuditError: If it can't be recorded; it must not be executed then.
        """
        if self._audit is not None and self._audit.writer.failed:
            await self._audit.require()
        history = self._history
        executed = None if history is None else history.begin(code)
        cell = self._cell = ExecutionRecord(self._ids, executed)
        try:
            yield cell
        except BaseException as exc:
            cell.fail(exc)
            raise
        finally:
            ended = cell.end()
            self._cell = None
            if self._audit is not None:
                self._audit.record("cell", **cell.ids, **self._audit.code(code), **ended)
            if self._observer is not None:
                self._observer.cell(cell.outcome, ended["duration"])
            if history is not None and executed is not None:
                history.end(executed, cell.result, cell_id=cell.id, **ended)
            cell.result = None  # else an error refers to itself through its traceback
            if cell.lost_state:
                self.session("restart")
            if self._audit is not None:
                await self._audit.writer.flush(required=False)

    @asynccontextmanager
    async def tool_call(
        self,
        server_name: str,
        tool_name: str,
        arguments: Mapping[str, Any],
        server_params: Mapping[str, Any],
        *,
        large: bool = False,
    ) -> AsyncGenerator[ToolCallRecord]:
        """Records the tool call that is made in the context, with any outcome; its span is the current one there.

        Args:
            server_name: The name of the server.
            tool_name: The name of the tool.
            arguments: The arguments of the call.
            server_params: The parameters of the server.
            large: Whether processing the arguments takes long.
        """
        call = ToolCallRecord(self._ids, server_name, tool_name, self._cell)
        try:
            with nullcontext() if call.span is None else tracing.current(call.span):
                if self._audit is not None:
                    self._audit.know_variables_of(server_params)
                    named = server_name, tool_name, arguments
                    described = self._audit.call
                    fields = await asyncio.to_thread(described, *named) if large else described(*named)
                    call.written = {"tool_call_id": call.id, **fields}
                if self._history is not None:
                    known = call.written.get("arguments")
                    call.shown = self._history.call_fields(server_name, tool_name, arguments, known)
                yield call
        except BaseException as exc:
            call.fail(type(exc).__name__, outcome="cancelled")
            raise
        finally:
            ended = call.end()
            if self._audit is not None:
                error = None if call.error is None else self._audit.error(call.error)
                self._audit.record("tool_call", **call.ids, **call.written, **ended, error=error)
            if self._observer is not None:
                self._observer.tool_call(call.outcome, ended["duration"])
            if self._history is not None:
                self._history.add_call(call.cell and call.cell.executed, call, ended)

    async def decided(self, call: ToolCallRecord, decided: ApprovalDecision) -> None:
        """Records a decision on a tool call, before the call is made.

        Raises:
            AuditError: If it can't be recorded; the call must not be made then.
        """
        if not decided.accepted:
            call.fail("rejected", decided.reason, outcome="rejected")
        call.decision = decided
        if self._observer is not None:
            self._observer.decision(decided.by, call.elapsed, accepted=decided.accepted)
        if call.span is not None:
            call.span.add_event("decision", {"accepted": decided.accepted, "by": decided.by})
        if self._audit is None:
            return
        reason = None if decided.reason is None else self._audit.text(decided.reason)
        fields = {**call.ids, **call.written, "arguments": None}  # the event of the call has these
        self._audit.record("decision", **fields, accepted=decided.accepted, by=decided.by, reason=reason)
        await self._audit.writer.flush(required=True)

    def denied(self, by: str, messages: Iterable[str]) -> None:
        """Records a denial without an approval request.

        Args:
            by: What denied it: the `sandbox`, a `limit` or the `tool_server`.
            messages: The messages about it.
        """
        for message in messages:
            if self._audit is not None:
                self._audit.record("denial", **self._ids_now(), by=by, message=self._audit.text(message))
            if self._observer is not None:
                self._observer.denial(by)

    def _ids_now(self) -> dict[str, str | None]:
        return self._ids if self._cell is None else self._cell.ids
