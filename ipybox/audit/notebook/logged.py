"""Creates a session's notebook from the audit log, even after the session has ended.

Without a sandbox, code can write the log, so it is untrusted: lines are bounded, fields of unexpected types are
ignored, and nothing is executed.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, BinaryIO, cast

from ipybox.audit.log import MAX_BYTES
from ipybox.audit.notebook.document import code_span, notebook
from ipybox.audit.notebook.session import Event, SessionContent, text_in
from ipybox.support.bounded_json import count_values
from ipybox.support.printable import printable

if TYPE_CHECKING:
    from nbformat import NotebookNode

#: Maximum bytes read from a file, and maximum bytes and values of a line: more than ipybox writes.
MAX_READ = MAX_BYTES + (1 << 20)
MAX_LINE = 256 << 10
MAX_LINE_VALUES = 2000

#: Bytes that a line counts at least, fewer than ipybox writes: ten million empty lines would take a minute.
MIN_LINE = 64

#: Maximum JSON values read per session (a value takes more memory than its text), and what each line adds to them:
#: more if it becomes a cell of the notebook, whose parts take 5 kB.
MAX_VALUES = 2_000_000
LINE_VALUES = 20
CELL_VALUES = 100

#: How many of the latest sessions can be exported, and how many of them a message lists.
MAX_SESSIONS = 1000
MAX_NAMED = 20

_NO_OUTPUTS = "This notebook has no outputs because the audit log doesn't record them."


@dataclass
class LoggedSession:
    """A session in the audit log, with untrusted texts."""

    id: str
    name: str | None
    #: The time of its first line, in UTC.
    time: str
    cells: int = 0

    def __str__(self) -> str:
        return printable(f"{self.name or '(unnamed)'} {self.id}, {self.local_time}, {self.cells:,} cells")

    @property
    def local_time(self) -> str:
        """The time in this machine's time zone; an invalid time is unchanged."""
        try:
            return f"{datetime.fromisoformat(self.time).astimezone():%Y-%m-%d %H:%M:%S %Z}"
        except (ValueError, OverflowError):
            return self.time

    @property
    def file_name(self) -> str:
        """A name for the notebook's file: the session's own name could be a path."""
        return f"{re.sub(r'[^A-Za-z0-9_-]+', '_', self.name or self.id)[:100]}.ipynb"


class LoggedSessions:
    """The sessions in an audit log. Pass its files oldest first (`ipybox.audit.log.open_logs`)."""

    def __init__(self, files: Sequence[BinaryIO]):
        self._files = files
        #: Lines that ipybox can't have written, and lines it failed to write.
        self._unreadable = 0
        self._missing = 0
        #: By id, in the order of their last lines.
        self._sessions: dict[str, LoggedSession] = {}
        for event, _ in self._events():
            self._note(event)

    def find(self, wanted: str) -> LoggedSession:
        """Returns the session with an id, or the last one with a name; raises a ValueError that lists the sessions."""
        for session in reversed(self._sessions.values()):
            if wanted in (session.id, session.name):
                return session
        shown = "\n".join(f"  {session}" for session in self.latest())
        raise ValueError(f"the audit log contains no session {wanted!r}; use a name or id from this list:\n{shown}")

    def latest(self) -> list[LoggedSession]:
        """Returns the last sessions, latest first; few enough for a message. Raises a ValueError if there are none."""
        if not self._sessions:
            raise ValueError("the audit log contains no sessions")
        return [*reversed(self._sessions.values())][:MAX_NAMED]

    def notebook(self, session: LoggedSession) -> "NotebookNode":
        """Returns the notebook of a session; raises a ValueError if the log has hashes instead of code."""
        content, left, omitted, has_code = SessionContent(), MAX_VALUES, 0, False
        for event, values in self._events():
            if event.get("session_id") == session.id:
                left -= values + (CELL_VALUES if event["event"] in ("cell", "session") else LINE_VALUES)
                if left > 0:
                    content.add(event)
                has_code |= "code" in event
                omitted += left <= 0
        if content.count and not has_code:
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
        metadata = {"session_id": session.id, "session_name": session.name, "tool_calls": content.calls.get("")}
        title = f"ipybox session {code_span(session.name or '(unnamed)')}"
        return notebook(content.entries, title=title, notes=notes, metadata=metadata)

    def _note(self, event: Event) -> None:
        if event["event"] == "gap":
            self._missing += _number(event, "missing")
        session_id, time = text_in(event, "session_id"), text_in(event, "time")
        if not session_id or not time:
            return
        session = self._sessions.pop(session_id, None) or LoggedSession(
            session_id, text_in(event, "session_name"), time
        )
        session.cells += event["event"] == "cell"
        self._sessions[session_id] = session
        if len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]

    def _events(self) -> Iterator[tuple[Event, int]]:
        """Yields all events, each with its number of JSON values."""
        self._unreadable = 0
        for file in self._files:
            for line in _lines(file):
                values = count_values(line, 0)
                event = _event(line) if values <= MAX_LINE_VALUES else None
                if event is None:
                    self._unreadable += 1
                else:
                    yield event, values


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yields the lines of a file from its start, up to a limit; an overlong line is split."""
    file.seek(0)
    left = MAX_READ
    while left > 0 and (line := file.readline(MAX_LINE)):
        left -= max(len(line), MIN_LINE)
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


def _number(event: Event, name: str) -> int:
    value = event.get(name)
    return value if isinstance(value, int) and 0 <= value < 1 << 32 else 0
