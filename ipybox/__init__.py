"""Local code-action engine: stateful Python execution with typed, approved MCP tool calls.

Names are resolved on first use (PEP 562), so that `import ipybox` costs next to nothing: it loads neither
the MCP SDK nor aiohttp nor the code generator.
"""

import sys

# With `python -m ipybox`, Python searches the working directory first, where a repository may have modules of any name.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and {"ipybox", "ipybox.mcp_server"} & {*sys.orig_argv}:
    del sys.path[0]

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipybox.code_exec import CodeExecutionChunk, CodeExecutionError, CodeExecutionResult, CodeExecutor
    from ipybox.mcp_apigen import generate_mcp_sources
    from ipybox.tool_exec.approval.client import ApprovalRequest

__all__ = [
    "ApprovalRequest",
    "CodeExecutionChunk",
    "CodeExecutionError",
    "CodeExecutionResult",
    "CodeExecutor",
    "generate_mcp_sources",
]

_MODULES = {
    "ApprovalRequest": "ipybox.tool_exec.approval.client",
    "CodeExecutionChunk": "ipybox.code_exec",
    "CodeExecutionError": "ipybox.errors",
    "CodeExecutionResult": "ipybox.code_exec",
    "CodeExecutor": "ipybox.code_exec",
    "generate_mcp_sources": "ipybox.mcp_apigen",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ipybox.workspace.imports import import_installed

    value = getattr(import_installed(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
