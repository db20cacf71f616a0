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
