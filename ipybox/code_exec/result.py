"""The results of an execution, which `CodeExecutor` returns to applications and the MCP server."""

import reprlib
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, cast

from ipybox.kernel_mgr.execution_output import ExecutionOutput
from ipybox.kernel_mgr.outputs import Clear, Display, Stream


@dataclass(frozen=True)
class CodeExecutionResult(ExecutionOutput):
    """The result of a successful execution: the output of the code."""


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
