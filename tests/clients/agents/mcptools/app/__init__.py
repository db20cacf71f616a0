"""Functions of the application, one module each.

pay: Pays an amount."""

from ipybox.tool_exec.client import ToolRunner
from ipybox.tool_exec.models import Input

__all__ = ["CLIENT", "Input"]

CLIENT = ToolRunner.from_env(
    server_name="app",
    server_params={},
    seal="mcptools:c3bc498783ec30209c9c6cf6ec333a0d3c4e88932bfe8aa39d5f324ffb5bcc94",
)
