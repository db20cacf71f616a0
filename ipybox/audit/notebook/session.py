"""The cells and notes of one session, built from live events or from the lines of the audit log."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ipybox.support.errors import RaisedException
from ipybox.support.outputs import Display, Stream

if TYPE_CHECKING:
    from nbformat import NotebookNode


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
