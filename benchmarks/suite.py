"""All measurements, by group."""

from benchmarks import (
    aging,
    data,
    docker,
    kernel,
    mcp_mode,
    memory,
    plugin,
    registration,
    sandbox,
    sessions,
    tools,
)
from benchmarks.measurement import SHOWN, Measurement

_ALL: list[Measurement] = [
    *kernel.measurements(),
    *sessions.measurements(),
    *tools.measurements(),
    *registration.measurements(),
    *data.measurements(),
    *mcp_mode.measurements(),
    *memory.measurements(),
    *aging.measurements(),
    *sandbox.measurements(),
    *plugin.measurements(),
    *docker.measurements(),
]

#: All measurements, in the order of the table.
SUITE = [
    *(each for group in SHOWN for each in _ALL if each.group == group),
    *(each for each in _ALL if each.group not in SHOWN),
]
