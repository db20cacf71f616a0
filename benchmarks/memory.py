"""The memory of an idle ipybox and all its processes, after one cell."""

import sys
from collections.abc import Callable
from functools import partial

from benchmarks.mcp_mode import CELL, FLOOR, IPYBOX, Server, running
from benchmarks.measurement import Limit, Measurement, Samples, Setting, Side, take_turns
from benchmarks.processes import idle_memory
from benchmarks.subject import started


def measurements() -> list[Measurement]:
    """Returns the measurements of this module."""
    sdk, mcp = (Limit(0.5, "peer"),), (Limit(0.6, "peer"),)
    return [
        Measurement("memory", "memory", "memory of an idle executor", "jupyter_client", measure_executor, sdk, "MiB"),
        Measurement(
            "mcp-memory", "memory", "memory of an idle MCP server", "bare SDK server", measure_server, mcp, "MiB"
        ),
    ]


def measure_executor(setting: Setting) -> Samples:
    sides: dict[Side, Callable[[], list[float]]] = {"floor": partial(_of_script, "bare_jupyter.py", sys.executable)}
    for side, python in setting.interpreters.items():
        sides[side] = partial(_of_script, "executor.py", python)
    return Samples(take_turns(setting, sides))


def measure_server(setting: Setting) -> Samples:
    sides: dict[Side, Callable[[], list[float]]] = {"floor": partial(_of_server, FLOOR, runs_cells=False)}
    for side, python in setting.interpreters.items():
        sides[side] = partial(_of_server, [python, *IPYBOX], runs_cells=True)
    return Samples(take_turns(setting, sides))


def _of_script(script: str, python: str) -> list[float]:
    with started(script, python=python) as (subject, _):
        return [idle_memory(subject.pid)]


def _of_server(command: list[str], runs_cells: bool) -> list[float]:
    with running(command) as subject:
        if runs_cells:
            Server(subject).timed_call(CELL)
        return [idle_memory(subject.pid)]
