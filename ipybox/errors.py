"""All exceptions that ipybox raises on purpose.

    Exception
    └── IpyboxError
        ├── CodeExecutionError     the code in the kernel failed, or its kernel died
        ├── ExecutionError         the same, as KernelClient reports it
        ├── KernelDiedError        (ExecutionError) the kernel or its gateway is gone
        ├── GatewayError           the kernel gateway did not start or answered with an error
        ├── MCPServerError         an MCP server can't be started, reached or understood
        │   └── MCPConnectionLost  the connection to it ended while a call was under way
        ├── MissingVariableError   a ${VAR} in server parameters has no value
        ├── SandboxError           the sandbox can't be set up; nothing ran without it
        └── ToolRunnerError        a tool call failed, was rejected or was not answered

Bad arguments raise ValueError, calls in the wrong state RuntimeError, exceeded times TimeoutError.
This module imports nothing, so that both sides of the trust boundary can use it.
"""


class IpyboxError(Exception):
    """Base of all exceptions defined by ipybox."""


class ExecutionError(IpyboxError):
    """Code in the kernel raised; the message is the kernel's traceback as plain text."""

    def __init__(self, message: str, text: str | None = None):
        super().__init__(message)
        #: What the cell had printed and displayed before it failed.
        self.text = text


class KernelDiedError(ExecutionError):
    """The kernel or its gateway ended while code ran, or before it could run."""


class CodeExecutionError(IpyboxError):
    """Code execution failed; the message is the kernel's traceback or says that the kernel died."""

    def __init__(self, message: str, text: str | None = None):
        super().__init__(message)
        #: What the cell had printed and displayed before it failed.
        self.text = text


class GatewayError(IpyboxError):
    """The kernel gateway did not start, or answered a request with an error."""


class MCPServerError(IpyboxError):
    """An MCP server can't be started, reached or understood; the message says why."""


class MCPConnectionLost(MCPServerError):
    """The connection to an MCP server ended while a call was under way."""


class MissingVariableError(IpyboxError):
    """A `${VAR}` placeholder in server parameters names a variable that is not set."""


class SandboxError(IpyboxError):
    """The sandbox can't be set up as it was asked for; the message says what to do. Nothing ran without it."""


class ToolRunnerError(IpyboxError):
    """A tool call failed, was rejected, or got no answer; the message says why."""
