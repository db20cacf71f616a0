"""All measurements, by group."""

from benchmarks import (
    aging,
    data,
    kernel,
    mcp_mode,
    memory,
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
]

#: All measurements, in the order of the table.
SUITE = sorted(_ALL, key=lambda each: SHOWN.index(each.group))
