"""The cells and notes of one session, built from live events or from the lines of the audit log.

`SessionHistory` keeps those of a live session in memory, within a limit, to export them as a notebook.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from ipybox.audit.records import MAX_OTHER
from ipybox.support.errors import CodeExecutionError, ExecutionTimeoutError, RaisedException
from ipybox.support.outputs import Display, ExecutionOutput, Stream

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from ipybox.audit.redaction import Redactor


@dataclass
class ExecutedCell:
    """One cell that was executed.

    Attributes:
        number: Its number in the session, from 1.
        code: Its code.
        metadata: The fields of its audit event: `cell_id`, `time` of its end, `outcome`, `duration` and so on.
        tool_calls: Its tool calls in the order in which they ended, each with the fields of its audit event and a
            `decision`.
        outputs: What it printed and displayed.
        error: The exception in its code, or ipybox's error, that ended it.
    """

    number: int
    code: str
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    tool_calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    outputs: tuple[Stream | Display, ...] = ()
    error: RaisedException | None = None

    def to_notebook(self) -> "NotebookNode":
        """Returns a notebook with this cell."""
        from ipybox.audit.notebook.document import notebook

        return notebook([self])


@dataclass(frozen=True)
class Note:
    """A note from ipybox between two cells, in Markdown."""

    text: str
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


#: Maximum characters of a cell's code, and of a traceback.
MAX_TEXT = 100_000

#: Maximum tool calls kept for each cell, and for the time between cells.
MAX_CALLS = 1000

#: Why state was lost, by the action in the audit log.
_STATE_LOST = {
    "reset": "The kernel was reset",
    "restart": "The kernel died or was restarted",
    "start": "The session was restarted",
}

_CELL_FIELDS = ("cell_id", "time", "outcome", "duration", "output_chars", "code_chars")
_CALL_FIELDS = ("tool_call_id", "server_name", "tool_name", "outcome", "error_type", "error", "duration")
_DECISION_FIELDS = ("accepted", "by", "reason")

Event = Mapping[str, Any]
Call = dict[str, Any]


class SessionContent:
    """The content of a session's notebook; `add` receives its events in order. Only scalar fields are used."""

    def __init__(self) -> None:
        #: The notes and the cells that have ended.
        self.entries: list[ExecutedCell | Note] = []
        #: The number of cells so far.
        self.count = 0
        #: The tool calls by cell id; "" for calls outside cells.
        self.calls: defaultdict[str, list[Call]] = defaultdict(list)
        #: The ids of cells that have ended: another cell with such an id, in a forged log, has no calls.
        self._ended: set[str] = set()
        self._dropped: Counter[str] = Counter()
        #: The calls that have not ended, by cell id and call id.
        self._open: dict[tuple[str, str], Call] = {}
        #: Notes about resets during a cell, to append after the cell.
        self._resets: dict[str, Note] = {}

    def add(self, event: Event, cell: ExecutedCell | None = None) -> None:
        """Adds an event. For a cell's event, `cell` is the cell; by default, it is created from the event."""
        cell_id = text_in(event, "cell_id") or ""
        match event["event"]:
            case "cell":
                self._add_cell(cell_id, event, cell or self.new_cell(text_in(event, "code") or ""))
            case "decision":
                self._call(cell_id, event)["decision"] = _scalars(event, _DECISION_FIELDS)
            case "tool_call":
                arguments = event.get("arguments")
                self._call(cell_id, event).update({"arguments": arguments} if isinstance(arguments, dict) else {})
                self._open.pop((cell_id, text_in(event, "tool_call_id") or ""), None)
            case "session":
                self._add_note(cell_id, text_in(event, "action") or "")
            case _:
                pass

    def append(self, entry: ExecutedCell | Note) -> None:
        """Adds a note, or a cell that has ended."""
        self.entries.append(entry)

    def new_cell(self, code: str) -> ExecutedCell:
        """Returns the next cell."""
        self.count += 1
        return ExecutedCell(self.count, code)

    def _add_cell(self, cell_id: str, event: Event, cell: ExecutedCell) -> None:
        cell.metadata = _scalars(event, _CELL_FIELDS) | cell.metadata
        if cell_id not in self._ended:
            self._ended.add(cell_id)
            cell.tool_calls = self.calls[cell_id]
        if dropped := self._dropped.pop(cell_id, 0):
            cell.metadata["tool_calls_dropped"] = dropped
        self.append(cell)
        if cell_id in self._resets:
            self.append(self._resets.pop(cell_id))

    def _add_note(self, cell_id: str, action: str) -> None:
        if action not in _STATE_LOST or not (self.count or cell_id):
            return
        lost = f"{_STATE_LOST[action]}: variables, imports and definitions from earlier cells are gone."
        note = Note(f"**State was lost here.** {lost}", {"event": "session", "action": action})
        if action == "reset" and cell_id:
            self._resets[cell_id] = note
        else:
            self.append(note)

    def _call(self, cell_id: str, event: Event) -> Call:
        key = cell_id, text_in(event, "tool_call_id") or ""
        call = self._open.get(key)
        if call is None:
            call = self._open[key] = {}
            if len(self.calls[cell_id]) == MAX_CALLS:
                self._dropped[cell_id] += 1
            else:
                self.calls[cell_id].append(call)
        call.update(_scalars(event, _CALL_FIELDS))
        return call


def text_in(event: Event, name: str) -> str | None:
    """Returns a field if it is a string."""
    value = event.get(name)
    return value if isinstance(value, str) else None


def _scalars(event: Event, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: event[name] for name in names if isinstance(event.get(name), str | int | float)}


class SessionHistory(SessionContent):
    """The cells of one session that have ended: the last ones that take about `limit` bytes of memory."""

    def __init__(self, limit: int, redactor: Callable[[], "Redactor"]):
        super().__init__()
        self._limit = limit
        self._new_redactor = redactor
        #: The size of each entry.
        self._sizes: list[int] = []
        self._bytes = 0
        self._cells_dropped = 0

    @cached_property
    def redactor(self) -> "Redactor":
        """Removes secrets; created on first use."""
        return self._new_redactor()

    def for_sibling(self) -> "SessionHistory":
        """Returns an empty history with the same limit and secrets."""
        return SessionHistory(self._limit, self._new_redactor)

    def end(self, cell: ExecutedCell, result: ExecutionOutput | BaseException | None, event: Event) -> None:
        """Adds a cell that has ended, with its result or error, and the event of its end."""
        if isinstance(result, CodeExecutionError | ExecutionTimeoutError):
            result.cell = cell
            output = result.output
        else:
            output = result if isinstance(result, ExecutionOutput) else None
        if output is not None:
            cell.outputs = output.outputs
            if output.notices:
                cell.metadata["notices"] = [self._text(notice) for notice in output.notices]
        if isinstance(result, BaseException):
            cell.error = self._error(result)
        cell.code = self._text(cell.code, MAX_TEXT)
        self.add(event, cell)

    def notebook(self, **metadata: str | None) -> "NotebookNode":
        """Returns the notebook of all cells that have ended."""
        from ipybox.audit.notebook.document import notebook

        notes: list[str] = []
        if self._cells_dropped:
            kept = f"ipybox keeps a session's last {self._limit:,} bytes (`notebook_bytes`)"
            notes.append(f"This notebook omits the first {self._cells_dropped:,} cells: {kept}.")
        known: dict[str, Any] = {**metadata, "tool_calls": self.calls.get("")}
        return notebook(self.entries, notes=notes, metadata=known)

    def append(self, entry: ExecutedCell | Note) -> None:
        """Adds an entry, and makes room for it. The application's result keeps what a dropped cell has output."""
        super().append(entry)
        self._sizes.append(_size(entry, self._limit))
        self._bytes += self._sizes[-1]
        while self._bytes > self._limit:
            oldest = self.entries.pop(0)
            self._bytes -= self._sizes.pop(0)
            if isinstance(oldest, ExecutedCell):
                self._cells_dropped += 1
                cell_id = oldest.metadata.get("cell_id", "")
                self.calls.pop(cell_id, None)
                self._ended.discard(cell_id)

    def _error(self, exc: BaseException) -> RaisedException:
        raised: RaisedException | None = getattr(exc, "raised", None)
        if raised is None:  # without a message, the task was cancelled, or the consumer of a stream stopped
            value = str(exc) or "the caller stopped waiting before the cell ended"
            raised = RaisedException(type(exc).__name__, value, "")
        traceback = raised.traceback or f"{raised.name}: {raised.value}"
        return RaisedException(
            self._text(raised.name), self._text(raised.value, MAX_TEXT), self._text(traceback, MAX_TEXT)
        )

    def _text(self, text: str, limit: int = MAX_OTHER) -> str:
        return self.redactor.text(text, limit)


def _size(value: object, enough: int) -> int:
    """Returns the approximate number of bytes that a value takes in memory; stops counting beyond `enough`."""
    total, waiting = 0, [value]
    while waiting and total <= enough:
        each = waiting.pop()
        total += sys.getsizeof(each)
        if isinstance(each, dict):
            items = cast(dict[str, object], each)
            waiting += [*items.keys(), *items.values()]
        elif isinstance(each, list | tuple):
            waiting += cast("list[object] | tuple[object, ...]", each)
        elif is_dataclass(each):
            waiting += [getattr(each, attribute.name) for attribute in fields(each)]
    return total
