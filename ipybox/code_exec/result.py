"""The results of an execution, which `CodeExecutor` returns to applications and the MCP server."""

from dataclasses import dataclass, field

from ipybox.kernel_mgr.execution_output import ExecutionOutput
from ipybox.kernel_mgr.outputs import Display, Stream


@dataclass(frozen=True)
class CodeExecutionResult(ExecutionOutput):
    """The result of a successful execution: the output of the code."""


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
