"""Functions of the application, one module each.

f"""

from ipybox.tool_exec.client import ToolRunner
from ipybox.tool_exec.models import Input, Output

__all__ = ["CLIENT", "Input", "Output"]

CLIENT = ToolRunner.from_env(
    server_name="app",
    server_params={},
    seal="mcptools:df15dc29f5db2da8e00fc52f2e9c4638546c7bb4a416860eb73ef168109e2442",
)
