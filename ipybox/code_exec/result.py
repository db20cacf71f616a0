"""The results of an execution, which `CodeExecutor` returns to applications and the MCP server."""

import reprlib
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, cast

from ipybox.support.errors import NO_CELL
from ipybox.support.outputs import Clear, Display, ExecutionOutput, Stream

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


@dataclass(frozen=True, repr=False)
class CodeExecutionChunk:
    """A part of the output, as it arrives. Its `repr` shortens long values.

    Attributes:
        text: The text of this part, which is empty for an image and a `Clear`.
        notice: Whether it is a notice of ipybox about dropped output, instead of output of the code.
        output: What has arrived: text of one stream, a `Display` or `Result`, whose files are not saved yet, or a
            `Clear`. None for a notice.
    """

    text: str
    notice: bool = False
    output: Stream | Display | Clear | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return _SHORT.repr(self)


class _ShortRepr(reprlib.Repr):
    """The `repr` of dataclasses with long values shortened."""

    def repr_instance(self, x: Any, level: int) -> str:
        """Returns the `repr` of an object of a type that has no method of its own."""
        if not is_dataclass(x):
            return cast(Any, super()).repr_instance(x, level)
        parts = (f"{each.name}={self.repr1(getattr(x, each.name), level - 1)}" for each in fields(x))
        return f"{type(x).__name__}({', '.join(parts)})"


_SHORT = _ShortRepr()
_SHORT.maxstring = _SHORT.maxother = 100
