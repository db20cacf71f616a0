"""All exceptions that ipybox raises on purpose.

Bad arguments raise ValueError, calls in the wrong state RuntimeError, timeouts TimeoutError.
Messages may contain text from servers, code and files; `str()` escapes it for people (`ipybox.support.printable`).
This module imports only that from ipybox, so that both sides of the trust boundary can use it.
"""

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ipybox.support.printable import printable

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from ipybox.support.effects import ToolCallCount
    from ipybox.support.outputs import Display, ExecutionOutput, Stream


#: The error when a cell to export was not kept.
NO_CELL = "the session's cells are not kept: create the executor with `notebook_bytes` above 0"


class _Cell(Protocol):
    def to_notebook(self) -> "NotebookNode": ...


class _Readable(Exception):
    """An exception whose text is safe to show to people."""

    def __str__(self) -> str:
        return printable(super().__str__(), lines=True)


class IpyboxError(_Readable):
    """Base of all exceptions defined by ipybox."""


class ApprovalExpiredError(IpyboxError):
    """A decision on a tool call came after its approval request had expired; the call has failed already."""


class AuditError(IpyboxError):
    """The audit log can't be written; the message says why. The action to record did not start."""


@dataclass(frozen=True)
class RaisedException:
    """An exception that ended a cell. The texts are the code's, without control sequences.

    Attributes:
        name: Its class, for example `ZeroDivisionError`.
        value: Its message.
        traceback: Its traceback with the frames of the code; empty if the kernel sent none.
    """

    name: str
    value: str
    traceback: str


class _WithOutput(_Readable):
    def __init__(
        self,
        message: str,
        output: "ExecutionOutput | None" = None,
        raised: RaisedException | None = None,
        calls: "tuple[ToolCallCount, ...]" = (),
    ):
        super().__init__(message)
        #: The output of the cell before the error; None if the cell did not start.
        self.output = output
        #: The text that the cell printed and displayed before the error.
        self.text = None if output is None else output.text
        #: What the cell printed and displayed before the error, in order.
        self.outputs: tuple[Stream | Display, ...] = () if output is None else output.outputs
        #: ipybox's messages, see `ExecutionOutput`. They are also notes of the exception.
        self.notices: list[str] = [] if output is None else output.notices
        #: The exception that the code raised; None if it raised none, for example if it timed out or its kernel died.
        self.raised = raised
        #: The class of that exception, for example `ZeroDivisionError`.
        self.name = None if raised is None else raised.name
        #: Its message.
        self.value = None if raised is None else raised.value
        #: Its traceback, with the frames of the code.
        self.traceback = None if raised is None else raised.traceback
        #: Its calls of tools that may write, counted by tool and outcome; empty if they had no effect.
        self.calls = calls
        #: The cell as a notebook shows it; None if the executor does not keep cells (`notebook_bytes`).
        self.cell: _Cell | None = None
        for notice in self.notices:
            self.add_note(f"[ipybox] {notice}")

    def to_notebook(self) -> "NotebookNode":
        """Returns a Jupyter notebook with the cell, its output and this error, see `CodeExecutor.notebook`.

        Raises:
            RuntimeError: If `notebook_bytes` of the executor is 0, or no executor ran the cell.
        """
        if self.cell is None:
            raise RuntimeError(NO_CELL)
        return self.cell.to_notebook()


class ExecutionError(_WithOutput, IpyboxError):
    """Code in the kernel raised; the message is the kernel's traceback as plain text."""


class KernelDiedError(ExecutionError):
    """The kernel or its gateway ended while code ran, or before it could run."""


class CodeExecutionError(_WithOutput, IpyboxError):
    """Code execution failed; the message is the kernel's traceback or says that the kernel died."""


class ExecutionTimeoutError(_WithOutput, TimeoutError):
    """The execution timed out while its code was running. The message says what happened to the kernel."""


class ExecutionCancelledError(CodeExecutionError):
    """The execution was cancelled by `CodeExecutor.cancel`; the message says what happened to the kernel."""


class GatewayError(IpyboxError):
    """The kernel gateway did not start, or answered a request with an error."""


class MCPServerError(IpyboxError):
    """An MCP server can't be started, reached or understood; the message says why."""


class MCPConnectionLost(MCPServerError):
    """The connection to an MCP server broke while a call was under way: its outcome is unknown."""


class MCPSessionExpired(MCPConnectionLost):
    """A remote MCP server no longer knows the session, and did not execute the call."""


class MissingVariableError(IpyboxError):
    """A `${VAR}` placeholder in server parameters names a variable that is not set."""


class PolicyError(IpyboxError):
    """An approval policy can't be read, or is wrong; the message names file and line, and what is expected there."""


class SandboxError(IpyboxError):
    """The sandbox can't be set up as requested; the message says what to do. No code ran."""


class ToolRunnerError(IpyboxError):
    """A tool call failed, was rejected, or got no answer; the message says why.

    Attributes:
        data: What the tool returned nevertheless: its structured content, or else its text.
    """

    data: Any = None


class ShellCommandError(ToolRunnerError, PermissionError):
    """A program was not started, because the application did not approve it; the message says why.

    It is a `PermissionError`, because many libraries can do without a program that can't be started.
    """

    def __init__(self, message: str):
        super().__init__(errno.EPERM, message)

    def __str__(self) -> str:
        return printable(self.strerror or "", lines=True)

    def __reduce__(self) -> tuple[type["ShellCommandError"], tuple[str]]:
        return type(self), (self.strerror or "",)


class VariableError(IpyboxError):
    """A variable does not exist, or can't be sent to or from the kernel; the message says which one, and why."""
