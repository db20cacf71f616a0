"""Keeps the cells of one session in memory, within a limit, so that it can be exported as a notebook."""

import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ipybox.audit.notebook.cell import ExecutedCell, Note, RecordedError, note_of
from ipybox.audit.records import MAX_ARGUMENTS, MAX_OTHER, utc_now
from ipybox.support.errors import CodeExecutionError, ExecutionTimeoutError, RaisedException
from ipybox.support.outputs import Display, ExecutionOutput, Stream

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from ipybox.audit.records import ToolCallRecord
    from ipybox.audit.redaction import Redactor

#: Characters of the code of a cell, and of the traceback of an error.
MAX_TEXT = 100_000

#: Tool calls of one cell, and of the time between all cells.
MAX_CALLS = 1000


class SessionHistory:
    """The cells of one session, from the first to the last that has ended.

    Beyond the limit it drops the outputs of the oldest cells, and then the oldest cells.

    Args:
        limit: Bytes that cells and outputs may take in memory, about.
        redactor: Returns what removes secrets, on first use.
    """

    def __init__(self, limit: int, redactor: Callable[[], "Redactor"]):
        self._limit = limit
        self._redactor = redactor
        #: Older entries, without outputs, and newer ones, each with its size.
        self._bare: deque[tuple[ExecutedCell | Note, int]] = deque()
        self._whole: deque[tuple[ExecutedCell | Note, int]] = deque()
        self._bytes = 0
        self._count = 0
        self._cells_dropped = 0
        #: What happened to the kernel while a cell ran, to be noted after the cell.
        self._during_cell: list[Note] = []
        self._running: ExecutedCell | None = None
        self._calls_between: list[dict[str, Any]] = []

    def for_sibling(self) -> "SessionHistory":
        """Returns an empty history for another session, with the same limit and secrets."""
        return SessionHistory(self._limit, self._redactor)

    def know_of_cell(self, variables: Mapping[str, str]) -> None:
        """Removes the secrets among the environment variables of a cell, for a while."""
        from ipybox.audit.redaction import secrets_among

        self._redactor().know_of_cell(secrets_among(variables))

    def begin(self, code: str) -> ExecutedCell:
        """Returns the cell that starts now. It belongs to the history when it has ended."""
        self._count += 1
        self._running = ExecutedCell(self._count, code)
        return self._running

    def end(self, cell: ExecutedCell, result: ExecutionOutput | BaseException | None, **metadata: Any) -> None:
        """Completes a cell with its result or error, and with metadata."""
        if isinstance(result, CodeExecutionError | ExecutionTimeoutError):
            result.cell = cell
            output = result.output
        else:
            output = result if isinstance(result, ExecutionOutput) else None
        if output is not None:
            cell.outputs = output.outputs
            notices = [self._text(notice) for notice in output.notices]
            metadata |= {"notices": notices} if notices else {}
        if isinstance(result, BaseException):
            cell.error = self._error(result)
        cell.code = self._text(cell.code, MAX_TEXT)
        cell.metadata |= {"time": utc_now()} | metadata
        self._running = None
        self._add(cell)
        for note in self._during_cell:
            self._add(note)
        self._during_cell.clear()

    def session(self, action: str) -> None:
        """Notes that the session got another kernel, or was started."""
        note = note_of(action)
        if note is None or not self._count:
            return
        if action == "reset" and self._running is not None:
            self._during_cell.append(note)
        else:
            self._add(note)

    def call_fields(self, server: str, tool: str, arguments: Mapping[str, Any], shown: object = None) -> dict[str, Any]:
        """Returns what a notebook says about a tool call when it starts.

        Args:
            server: The name of the server.
            tool: The name of the tool.
            arguments: The arguments of the call.
            shown: The arguments without secrets, if the audit log has them.
        """
        if shown is None:  # not all of large ones is read
            shown = self._redactor().value(arguments, MAX_ARGUMENTS)
        return {"server_name": self._text(server), "tool_name": self._text(tool), "arguments": shown}

    def add_call(self, cell: ExecutedCell | None, call: "ToolCallRecord", ended: Mapping[str, Any]) -> None:
        """Adds a tool call that has ended, with how it ended, to its cell or to no cell."""
        calls = self._calls_between if cell is None else cell.tool_calls
        if len(calls) < MAX_CALLS:
            fields = {"tool_call_id": call.id, **call.shown, "decision": self._decision(call), **ended}
            fields["error"] = None if call.error is None else self._text(call.error)
            calls.append({name: value for name, value in fields.items() if value is not None})
        elif cell is not None:
            cell.metadata["tool_calls_dropped"] = cell.metadata.get("tool_calls_dropped", 0) + 1

    def notebook(self, **metadata: str | None) -> "NotebookNode":
        """Returns the notebook of all cells that have ended."""
        from ipybox.audit.notebook.document import notebook

        cells_without = sum("outputs_dropped" in entry.metadata for entry, _ in self._bare)
        notes: list[str] = []
        if self._cells_dropped:
            notes.append(f"This notebook omits the first {self._cells_dropped:,} cells.")
        if cells_without:
            notes.append(f"This notebook omits the outputs of the first {cells_without:,} cells with outputs.")
        if notes:
            notes.append(f"ipybox keeps a session's last {self._limit:,} bytes (`notebook_bytes`).")
        known: dict[str, Any] = {**metadata, "tool_calls": self._calls_between or None}
        return notebook([entry for entry, _ in (*self._bare, *self._whole)], notes=notes, metadata=known)

    def _add(self, entry: ExecutedCell | Note) -> None:
        size = _size(entry, self._limit)
        self._whole.append((entry, size))
        self._bytes += size
        while self._bytes > self._limit:
            if self._whole:
                self._strip_oldest()
            else:
                dropped, size = self._bare.popleft()
                self._bytes -= size
                self._cells_dropped += isinstance(dropped, ExecutedCell)

    def _strip_oldest(self) -> None:
        """Drops the outputs of the oldest cell that has some. Its result in the application keeps them."""
        entry, size = self._whole.popleft()
        self._bytes -= size
        if isinstance(entry, ExecutedCell) and entry.outputs:
            entry = replace(entry, outputs=(), metadata={**entry.metadata, "outputs_dropped": True})
            size = _size(entry, self._limit)
        self._bare.append((entry, size))
        self._bytes += size

    def _error(self, exc: BaseException) -> RecordedError:
        raised = exc.raised if isinstance(exc, CodeExecutionError | ExecutionTimeoutError) else None
        if raised is None:
            # The task that executes was cancelled, or the consumer of a stream left.
            raised = RaisedException(
                type(exc).__name__, str(exc) or "the caller stopped waiting before the cell ended", ""
            )
        name, value, traceback = raised.name, raised.value, raised.traceback or f"{raised.name}: {raised.value}"
        return RecordedError(self._text(name), self._text(value, MAX_TEXT), self._text(traceback, MAX_TEXT))

    def _text(self, text: str, limit: int = MAX_OTHER) -> str:
        return self._redactor().text(text, limit)

    def _decision(self, call: "ToolCallRecord") -> dict[str, Any] | None:
        made = call.decision
        if made is None:
            return None
        decision = {"accepted": made.accepted, "by": self._text(made.by)}
        return decision if made.reason is None else {**decision, "reason": self._text(made.reason)}


def _size(value: object, enough: int) -> int:
    """Returns about how many bytes a value takes in memory; counts no further than is enough."""
    total, waiting = 0, [value]
    while waiting and total <= enough:
        each = waiting.pop()
        total += sys.getsizeof(each)
        match each:
            case dict():
                items = cast(dict[str, object], each)
                waiting += [*items.keys(), *items.values()]
            case list() | tuple():
                waiting += cast("list[object] | tuple[object, ...]", each)
            case ExecutedCell():
                waiting += [each.code, each.metadata, each.tool_calls, each.outputs]
                waiting += [] if each.error is None else [each.error.value, each.error.traceback]
            case Note():
                waiting.append(each.text)
            case Stream():
                waiting.append(each.text)
            case Display():
                waiting += [dict(each.data), dict(each.metadata)]
            case _:
                pass
    return total
