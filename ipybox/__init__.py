"""Local code-action engine: stateful Python execution with typed, approved MCP tool calls.

Names are resolved on first use (PEP 562), so `import ipybox` is fast: it does not load the MCP SDK, aiohttp or the
code generator.
"""

import sys

# With `python -m ipybox`, Python searches the working directory first, where a repository may contain any module.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and {"ipybox", "ipybox.mcp_server"} & {*sys.orig_argv}:
    del sys.path[0]

from typing import TYPE_CHECKING

from ipybox.support.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ipybox.code_exec.config import ExecutorConfig
    from ipybox.code_exec.executor import CodeExecutionChunk, CodeExecutionResult, CodeExecutor
    from ipybox.code_exec.sync import Executor, StreamedRequest
    from ipybox.mcp_apigen import generate_mcp_sources
    from ipybox.support.errors import CodeExecutionError
    from ipybox.support.outputs import Clear, Display, Result, Stream
    from ipybox.tool_exec.approval.request import ApprovalRequest, accepts_batches

__all__ = [
    "ApprovalRequest",
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
    "accepts_batches",
    "generate_mcp_sources",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ipybox.code_exec.config": ("ExecutorConfig",),
        "ipybox.code_exec.executor": ("CodeExecutionChunk", "CodeExecutionResult", "CodeExecutor"),
        "ipybox.code_exec.sync": ("Executor", "StreamedRequest"),
        "ipybox.mcp_apigen": ("generate_mcp_sources",),
        "ipybox.support.errors": ("CodeExecutionError",),
        "ipybox.support.outputs": ("Clear", "Display", "Result", "Stream"),
        "ipybox.tool_exec.approval.request": ("ApprovalRequest", "accepts_batches"),
    },
)
