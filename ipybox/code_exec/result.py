"""The results of an execution, which `CodeExecutor` returns to applications and the MCP server."""

import reprlib
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from ipybox.support.errors import NO_CELL, CodeExecutionError, ExecutionTimeoutError
from ipybox.support.outputs import Clear, Display, ExecutionOutput, Stream

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from ipybox.audit.notebook.session import ExecutedCell


@dataclass(frozen=True)
class CodeExecutionResult(ExecutionOutput):
    """The result of an execution: the output of the code and, with `raise_errors=False`, its error.

    Attributes:
        cell: The cell as a notebook shows it; None if the executor does not keep cells (`notebook_bytes`).
        error: Why the execution failed: the error that `raise_errors=True` would raise, with `name`, `value`,
            `traceback` and `calls`. None if it succeeded. If its `output` is None, the code did not start.
    """

    cell: "ExecutedCell | None" = field(default=None, repr=False, compare=False)
    error: CodeExecutionError | ExecutionTimeoutError | None = field(default=None, compare=False)

    def for_model(self, max_chars: int = 5000, *, images: bool = True) -> list[dict[str, str]]:
        """Returns the result as content blocks of MCP, at least one, as ipybox's MCP server returns it.

        The first text is the output with the error, the second one ipybox's notices and the paths of files; text that
        code printed is never in the second one. A text block is `{"type": "text", "text": …}`, an image
        `{"type": "image", "data": …, "mimeType": …}` with base64. Images are scaled down to what models accept, in
        separate processes. That blocks: with images, use `await asyncio.to_thread(result.for_model)` in async code.

        Args:
            max_chars: The maximum characters of output and error; the middle of a longer text is omitted.
            images: Whether to return images, not only their paths.

        Raises:
            ValueError: If `max_chars` is negative.
        """
        from ipybox.code_exec.model_output import model_blocks

        if max_chars < 0:
            raise ValueError(f"max_chars={max_chars!r} must not be negative")
        return model_blocks(self, self.error, max_chars, images=images)

    def to_notebook(self) -> "NotebookNode":
        """Returns a Jupyter notebook with the cell and its output, in the form of `CodeExecutor.notebook`.

        Raises:
            RuntimeError: If `notebook_bytes` of the executor is 0.
        """
        if self.cell is None:
            raise RuntimeError(NO_CELL)
        return self.cell.to_notebook()


async def result_of(execution: Awaitable[CodeExecutionResult], *, raise_errors: bool) -> CodeExecutionResult:
    """Returns the result of an execution. If it fails, raises its error, or returns a result that contains it."""
    try:
        return await execution
    except (CodeExecutionError, TimeoutError) as exc:
        if raise_errors:
            raise
        error = exc if isinstance(exc, CodeExecutionError | ExecutionTimeoutError) else ExecutionTimeoutError(str(exc))
    # The stack would keep the execution's internals in memory as long as the result.
    error.__traceback__ = error.__context__ = None
    output = error.output if isinstance(error.output, CodeExecutionResult) else CodeExecutionResult(None, [])
    return replace(output, cell=cast("ExecutedCell | None", error.cell), error=error)


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
