"""The parts of a session that a notebook shows, as plain data. `document` turns them into a notebook."""

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
        metadata: What the audit log says about it: `cell_id`, `time` of its end, `outcome`, `duration` and so on.
        tool_calls: Its tool calls in the order of their ends, each with the fields that the audit log has, and a
            `decision`.
        outputs: What it printed and displayed.
        error: The exception of its code, or the error of ipybox, that ended it.
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
    """A sentence of ipybox between two cells, in Markdown."""

    text: str
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


#: Why state was lost, by the action in the audit log.
_STATE_LOST = {
    "reset": "The kernel was reset",
    "restart": "The kernel died or was restarted",
    "start": "The session was restarted",
}


def note_of(action: str) -> Note | None:
    """Returns the note about lost state for an action on a session; None if no state was lost."""
    if action not in _STATE_LOST:
        return None
    lost = "variables, imports and definitions from earlier cells are gone"
    return Note(f"**State was lost here.** {_STATE_LOST[action]}: {lost}.", {"event": "session", "action": action})
