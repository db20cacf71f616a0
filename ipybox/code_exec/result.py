"""The results of an execution, which `CodeExecutor` returns to applications and the MCP server."""

import reprlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipybox.support.errors import NO_CELL
from ipybox.support.outputs import Clear, Display, ExecutionOutput, Stream

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from ipybox.audit.notebook.session import ExecutedCell


@dataclass(frozen=True)
class CodeExecutionResult(ExecutionOutput):
    """The result of a successful execution: the output of the code.

    Attributes:
        cell: The cell as a notebook shows it; None if the executor does not keep cells (`notebook_bytes`).
    """

    cell: "ExecutedCell | None" = field(default=None, repr=False, compare=False)

    def to_notebook(self) -> "NotebookNode":
        """Returns a Jupyter notebook with the cell and its output, in the form of `CodeExecutor.notebook`.

        Raises:
            RuntimeError: If `notebook_bytes` of the executor is 0.
        """
        if self.cell is None:
            raise RuntimeError(NO_CELL)
        return self.cell.to_notebook()


@dataclass(frozen=True, repr=False)
class CodeExecutionChunk:
    """A part of the output, as it arrives. Its `repr` shortens long values.

    Attributes:
        text: The text of this part; empty for an image or a `Clear`.
        notice: Whether it is ipybox's notice about dropped output.
        output: What has arrived: text of one stream, a `Display` or `Result` whose files are not saved yet, or a
            `Clear`. None for a notice.
    """

    text: str
    notice: bool = False
    output: Stream | Display | Clear | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        text, output = map(_SHORT.repr, (self.text, self.output))
        return f"CodeExecutionChunk(text={text}, notice={self.notice}, output={output})"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200
