"""All exceptions that ipybox raises on purpose.

    Exception
    └── IpyboxError
        ├── AuditError             the audit log can't be written; what was to be recorded was not done
        ├── CodeExecutionError     the code in the kernel failed, or its kernel died
        │   └── ExecutionCancelledError  it was cancelled by `CodeExecutor.cancel`
        ├── ExecutionError         the same, as KernelClient reports it
        ├── KernelDiedError        (ExecutionError) the kernel or its gateway is gone
        ├── GatewayError           the kernel gateway did not start or answered with an error
        ├── MCPServerError         an MCP server can't be started, reached or understood
        │   └── MCPConnectionLost  the connection to it ended while a call was under way
        ├── MissingVariableError   a ${VAR} in server parameters has no value
        ├── PolicyError            an approval policy can't be read, or is wrong
        ├── SandboxError           the sandbox can't be set up; nothing ran without it
        └── ToolRunnerError        a tool call failed, was rejected or was not answered
    TimeoutError
    └── ExecutionTimeoutError      the time of an execution was over while its code ran

Bad arguments raise ValueError, calls in the wrong state RuntimeError, exceeded times TimeoutError.
Messages have parts of servers, code and files: their texts are such as people may read (`ipybox.printable`).
This module imports nothing else of ipybox, so that both sides of the trust boundary can use it.
"""

from typing import TYPE_CHECKING

from ipybox.printable import printable

if TYPE_CHECKING:
    from ipybox.output import ExecutionOutput


class _Readable(Exception):
    """What people may read as it is."""

    def __str__(self) -> str:
        return printable(super().__str__(), lines=True)


class IpyboxError(_Readable):
    """Base of all exceptions defined by ipybox."""


class AuditError(IpyboxError):
    """The audit log can't be written; the message says why. What was to be recorded was not done."""


class _WithOutput(_Readable):
    """An execution that did not end well."""

    def __init__(self, message: str, output: "ExecutionOutput | None" = None):
        super().__init__(message)
        #: What the cell had put out before; None if it did not get that far.
        self.output = output
        for notice in self.notices:
            self.add_note(f"[ipybox] {notice}")

    @property
    def text(self) -> str | None:
        """What the cell had printed and displayed before."""
        return None if self.output is None else self.output.text

    @property
    def notices(self) -> list[str]:
        """What ipybox has to say about it: see `ExecutionOutput`. They are notes of the exception, too."""
        return [] if self.output is None else self.output.notices


class ExecutionError(_WithOutput, IpyboxError):
    """Code in the kernel raised; the message is the kernel's traceback as plain text."""


class KernelDiedError(ExecutionError):
    """The kernel or its gateway ended while code ran, or before it could run."""


class CodeExecutionError(_WithOutput, IpyboxError):
    """Code execution failed; the message is the kernel's traceback or says that the kernel died."""


class ExecutionTimeoutError(_WithOutput, TimeoutError):
    """The time of an execution was over while its code ran; the message says what became of the kernel."""


class ExecutionCancelledError(CodeExecutionError):
    """The execution was cancelled by `CodeExecutor.cancel`; the message says what became of the kernel."""


class GatewayError(IpyboxError):
    """The kernel gateway did not start, or answered a request with an error."""


class MCPServerError(IpyboxError):
    """An MCP server can't be started, reached or understood; the message says why."""


class MCPConnectionLost(MCPServerError):
    """The connection to an MCP server ended while a call was under way."""


class MissingVariableError(IpyboxError):
    """A `${VAR}` placeholder in server parameters names a variable that is not set."""


class PolicyError(IpyboxError):
    """An approval policy can't be read, or is wrong; the message names file and line, and what is expected there."""


class SandboxError(IpyboxError):
    """The sandbox can't be set up as it was asked for; the message says what to do. Nothing ran without it."""


class ToolRunnerError(IpyboxError):
    """A tool call failed, was rejected, or got no answer; the message says why."""
