"""`CodeExecutor`: the only package that connects the kernel gateway, the tool server, approvals and the audit log.

    executor          the class for applications: start, execute, stream, cancel, reset, stop
    sync              the same class for code without an event loop
    config            the options, and values derived from them
    option_checks     checks the types of options, and makes them parameters of these classes
    lifecycle         the kernel of an executor, from start to stop
    cell_runner       runs cells, one at a time, with approvals, notices and the audit log
    cell_stream       runs a cell as a stream of approval requests, output and the result
    gateway_owner     creates, starts, replaces and stops a gateway, of all executors or of one
    shared_runtime    the tool server, and the gateway, that an executor shares with its siblings
    result            the results of an execution
    model_output      the same as text and images for a model
    registration      `generate_mcp_sources`: connects to an MCP server, and generates the package of its tools
    function_package  the package of the application's functions

Names are resolved on first use (PEP 562), so that importing one of the modules costs only that module.
"""

from typing import TYPE_CHECKING

from ipybox.support.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ipybox.code_exec.config import ExecutorConfig
    from ipybox.code_exec.executor import CodeExecutionChunk, CodeExecutionResult, CodeExecutor
    from ipybox.code_exec.sync import Executor, StreamedRequest
    from ipybox.support.errors import CodeExecutionError
    from ipybox.support.outputs import Clear, Display, Result, Stream

__all__ = [
    "Clear",
    "CodeExecutionChunk",
    "CodeExecutionError",
    "CodeExecutionResult",
    "CodeExecutor",
    "Display",
    "Executor",
    "ExecutorConfig",
    "Result",
    "Stream",
    "StreamedRequest",
]


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Clear": "ipybox.support.outputs",
        "CodeExecutionChunk": "ipybox.code_exec.executor",
        "CodeExecutionError": "ipybox.support.errors",
        "CodeExecutionResult": "ipybox.code_exec.executor",
        "CodeExecutor": "ipybox.code_exec.executor",
        "Display": "ipybox.support.outputs",
        "Executor": "ipybox.code_exec.sync",
        "ExecutorConfig": "ipybox.code_exec.config",
        "Result": "ipybox.support.outputs",
        "Stream": "ipybox.support.outputs",
        "StreamedRequest": "ipybox.code_exec.sync",
    },
)
