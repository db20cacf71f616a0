"""The results of an execution, which `CodeExecutor` returns to applications and the MCP server."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipybox.errors import NO_CELL
from ipybox.kernel_mgr.execution_output import ExecutionOutput
from ipybox.kernel_mgr.outputs import Display, Stream

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from ipybox.audit.notebook.cell import ExecutedCell


@dataclass(frozen=True)
class CodeExecutionResult(ExecutionOutput):
    """The result of a successful execution: the output of the code.

    Attributes:
        cell: The cell as a notebook shows it; None if the executor does not keep cells (`notebook_bytes`).
    """

    cell: "ExecutedCell | None" = field(default=None, repr=False, compare=False)

    def to_notebook(self) -> "NotebookNode":
        """Returns a Jupyter notebook with the cell and its output, in the form that `CodeExecutor.notebook` has.

        Raises:
            RuntimeError: If `notebook_bytes` of the executor is 0.
        """
        if self.cell is None:
            raise RuntimeError(NO_CELL)
        return self.cell.to_notebook()


@dataclass(frozen=True)
class CodeExecutionChunk:
    """A part of the output, as it arrives.

    Attributes:
        text: The text of this part, which is empty for an image.
        notice: Whether it is a notice of ipybox about dropped output, instead of output of the code.
        output: What has arrived: text of one stream, or a `Display` or `Result`, whose files are not saved yet. None
            for a notice.
    """

    text: str
    notice: bool = False
    output: Stream | Display | None = field(default=None, repr=False, compare=False)
