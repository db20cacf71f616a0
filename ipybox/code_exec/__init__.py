"""`CodeExecutor`: the only package that connects the kernel gateway, the tool server, approvals and the audit log.

    executor          the class for applications: start, execute, stream, cancel, reset, stop
    sync              the same class for code without an event loop
    config            the options, and values derived from them
    option_checks     checks the types of options, and makes them parameters of these classes
    lifecycle         the kernel of an executor, from start to stop
    cell_runner       runs cells, one at a time or as streams, with approvals, notices and the audit log
    gateway_owner     creates, starts, replaces and stops a gateway, of all executors or of one
    shared_runtime    the tool server, and the gateway, that an executor shares with its siblings
    result            the results of an execution
    model_output      the same as text and images for a model
    registration      `generate_mcp_sources`: connects to an MCP server, and generates the package of its tools
    function_package  the package of the application's functions

`ipybox` exports the public names. These four can also be imported from here, as from ipybox 0.9's module.
"""

from typing import TYPE_CHECKING

from ipybox.support.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ipybox import CodeExecutionChunk, CodeExecutionError, CodeExecutionResult, CodeExecutor

__all__ = ["CodeExecutionChunk", "CodeExecutionError", "CodeExecutionResult", "CodeExecutor"]

__getattr__, __dir__ = lazy_exports(__name__, {"ipybox.code_exec.executor": __all__})
