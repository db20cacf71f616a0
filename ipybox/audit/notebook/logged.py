"""Makes the notebook of a session from the audit log, also of one that has ended.

Without a sandbox, code can write the log, so it is untrusted: lines are bounded, fields are used only if they have the
type that ipybox writes, and nothing is executed.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ipybox.audit.log import MAX_BYTES
from ipybox.audit.notebook.cell import ExecutedCell, Note, note_of
from ipybox.audit.notebook.document import code_span, notebook
from ipybox.support.bounded_json import count_values
from ipybox.support.printable import printable

if TYPE_CHECKING:
    from nbformat import NotebookNode

#: Bytes of a file that are read, and bytes and values of a line: more than ipybox writes.
MAX_READ = MAX_BYTES + (1 << 20)
MAX_LINE = 256 << 10
MAX_LINE_VALUES = 2000

#: JSON values of one session that are read, and values that each line counts in addition. Decoded, a value takes many
#: times the bytes of its text.
MAX_VALUES = 2_000_000
LINE_VALUES = 20

#: The latest sessions, which can be exported, and how many of them a message names.
MAX_SESSIONS = 1000
MAX_NAMED = 20

_CELL_FIELDS = ("cell_id", "time", "outcome", "duration", "output_chars", "code_chars")
_CALL_FIELDS = ("tool_call_id", "server_name", "tool_name", "outcome", "error_type", "error", "duration")

_NO_OUTPUTS = "This notebook has no outputs because the audit log doesn't record them."
_UNFINISHED = (
    "A cell made tool calls, but the audit log doesn't record its end: ipybox was killed, or the cell is still running."
)

Event = Mapping[str, Any]
Call = dict[str, Any]


@dataclass
class LoggedSession:
    """A session in the audit log. Its texts are untrusted; `str` returns a line for people.

    Attributes:
        id: Its `session_id`.
        name: Its `session_name`; None for an unnamed sibling.
        time: The time of its first line, in UTC.
        cells: The number of its cells.
    """

    id: str
    name: str | None
    time: str
    cells: int = 0

    def __str__(self) -> str:
        return printable(f"{self.name or '(unnamed)'} {self.id}, {self.local_time}, {self.cells:,} cells")

    @property
    def local_time(self) -> str:
        """The time in the time zone of this machine; unchanged if it is not a time."""
        try:
            return f"{datetime.fromisoformat(self.time).astimezone():%Y-%m-%d %H:%M:%S %Z}"
        except (ValueError, OverflowError):
            return self.time


class LoggedSessions:
    """The sessions of an audit log.

    Args:
        files: The files of the log, oldest first (`ipybox.audit.log.open_logs`).
    """

    def __init__(self, files: Sequence[BinaryIO]):
        self._files = files
        #: Lines that ipybox can't have written, and lines that it could not write.
        self._unreadable = 0
        self._missing = 0
        #: By their ids, in the order of their last lines.
        self._sessions: dict[str, LoggedSession] = {}
        for event, _ in self._events():
            self._note(event)

    def find(self, wanted: str) -> LoggedSession:
        """Returns the session with an id, or the last one with a name.

        Raises:
            ValueError: If it is not in the log; the message names those that are there.
        """
        for session in reversed(self._sessions.values()):
            if wanted in (session.id, session.name):
                return session
        shown = "\n".join(f"  {session}" for session in self.latest())
        raise ValueError(f"the audit log contains no session {wanted!r}; use a name or id from this list:\n{shown}")

    def latest(self) -> list[LoggedSession]:
        """Returns the last sessions, the latest first, of which a message can name all."""
        return [*reversed(self._sessions.values())][:MAX_NAMED]

    def notebook(self, session: LoggedSession) -> "NotebookNode":
        """Returns the notebook of a session.

        Raises:
            ValueError: If the log has hashes in place of code.
        """
        content, left, omitted = _Content(), MAX_VALUES, 0
        for event, values in self._events():
            if event.get("session_id") == session.id:
                left -= values + LINE_VALUES
                if left > 0:
                    content.add(event)
                omitted += left <= 0
        if content.cells and not content.has_code:
            raise ValueError(
                f"the audit log contains no code for session {session}: it was written with audit=hash, which records "
                "only hashes of code; to export sessions, use audit=full"
            )
        notes = [f"{code_span(session.local_time)}, id {code_span(session.id)}. {_NO_OUTPUTS}"]
        if omitted:
            notes.append(f"This notebook omits the session's last {omitted:,} log lines, because there are too many.")
        if self._missing:
            notes.append(f"{self._missing:,} lines could not be written to the log; some may belong to this session.")
        if self._unreadable:
            notes.append(f"{self._unreadable:,} lines of the log were skipped because they are not in ipybox's format.")
        metadata = {"session_id": session.id, "session_name": session.name, "tool_calls": content.calls_between()}
        title = f"ipybox session {code_span(session.name or '(unnamed)')}"
        return notebook(content.all_entries(), title=title, notes=notes, metadata=metadata)

    def _note(self, event: Event) -> None:
        if event["event"] == "gap":
            self._missing += _number(event, "missing")
        session_id, time = _text(event, "session_id"), _text(event, "time")
        if not session_id or not time:
            return
        session = self._sessions.pop(session_id, None) or LoggedSession(session_id, _text(event, "session_name"), time)
        session.cells += event["event"] == "cell"
        self._sessions[session_id] = session
        if len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]

    def _events(self) -> Iterator[tuple[Event, int]]:
        """Yields all events, each with the number of its values."""
        self._unreadable = 0
        for file in self._files:
            for line in _lines(file):
                values = count_values(line, 0)
                event = _event(line) if values <= MAX_LINE_VALUES else None
                if event is None:
                    self._unreadable += 1
                else:
                    yield event, values


class _Content:
    """What the lines of one session say; `add` gets them in order."""

    def __init__(self) -> None:
        self.cells: dict[str, ExecutedCell] = {}
        self.has_code = False
        self._entries: list[ExecutedCell | Note] = []
        #: The tool calls by the ids of their cells and their own.
        self._calls: defaultdict[str, dict[str, Call]] = defaultdict(dict)
        self._denials: defaultdict[str, list[Event]] = defaultdict(list)
        #: Resets while a cell ran, to be noted after the cell.
        self._resets: dict[str, Note] = {}

    def add(self, event: Event) -> None:
        """Adds a line."""
        cell_id = _text(event, "cell_id") or ""
        match event["event"]:
            case "cell":
                self._add_cell(cell_id, event)
            case "decision":
                decision = {name: event[name] for name in ("accepted", "by", "reason") if _is_scalar(event.get(name))}
                self._call(cell_id, event)["decision"] = decision
            case "tool_call":
                arguments = event.get("arguments")
                self._call(cell_id, event).update({"arguments": arguments} if isinstance(arguments, dict) else {})
            case "denial":
                self._denials[cell_id].append({name: _text(event, name) for name in ("by", "message")})
            case "session":
                self._add_note(cell_id, _text(event, "action") or "")
            case _:
                pass

    def calls_between(self) -> list[Call] | None:
        """Returns the tool calls of no cell; None without such calls."""
        return [*self._calls.get("", {}).values()] or None

    def all_entries(self) -> list[ExecutedCell | Note]:
        """Returns the cells and notes in order, each cell with its tool calls."""
        for cell_id, cell in self.cells.items():
            cell.tool_calls = [*self._calls.get(cell_id, {}).values()]
            if cell_id in self._denials:
                cell.metadata["denials"] = self._denials[cell_id]
        unfinished = [
            Note(_UNFINISHED, {"cell_id": cell_id, "tool_calls": [*calls.values()]})
            for cell_id, calls in self._calls.items()
            if cell_id and cell_id not in self.cells
        ]
        return [*self._entries, *unfinished]

    def _add_cell(self, cell_id: str, event: Event) -> None:
        code = _text(event, "code")
        self.has_code |= code is not None
        cell = ExecutedCell(len(self.cells) + 1, code or "", _fields(event, _CELL_FIELDS))
        self.cells[cell_id] = cell
        self._entries.append(cell)
        if cell_id in self._resets:
            self._entries.append(self._resets.pop(cell_id))

    def _add_note(self, cell_id: str, action: str) -> None:
        note = note_of(action)
        if note is None or not (self.cells or cell_id):
            return
        if action == "reset" and cell_id:
            self._resets[cell_id] = note
        else:
            self._entries.append(note)

    def _call(self, cell_id: str, event: Event) -> Call:
        call = self._calls[cell_id].setdefault(_text(event, "tool_call_id") or "", {})
        call.update(_fields(event, _CALL_FIELDS))
        return call


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yields the lines of a file from its start, up to a limit; a line that is too long comes in parts."""
    file.seek(0)
    left = MAX_READ
    while left > 0 and (line := file.readline(MAX_LINE)):
        left -= len(line)
        yield line


def _event(line: bytes) -> Event | None:
    """Returns the event of a line; None if ipybox can't have written it."""
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(cast(Event, value).get("event"), str):
        return None
    return cast(Event, value)


def _text(event: Event, name: str) -> str | None:
    value = event.get(name)
    return value if isinstance(value, str) else None


def _number(event: Event, name: str) -> int:
    value = event.get(name)
    return value if isinstance(value, int) else 0


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int | float)


def _fields(event: Event, names: Sequence[str]) -> dict[str, Any]:
    return {name: event[name] for name in names if _is_scalar(event.get(name))}
