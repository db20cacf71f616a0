"""All measurements, in the order of the table."""

from benchmarks import context, docker, kernel, mcp_mode, plugin, sandbox, tools
from benchmarks.measurement import Measurement

SUITE: list[Measurement] = [
    *kernel.measurements(),
    *tools.measurements(),
    *mcp_mode.measurements(),
    *sandbox.measurements(),
    *plugin.measurements(),
    *docker.measurements(),
    *context.measurements(),
]
