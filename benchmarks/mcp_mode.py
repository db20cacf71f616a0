"""ipybox as an MCP server, driven by hand-written JSON-RPC: no client's import or start is in the figures.

https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle
"""

import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.measurement import Measurement, Samples, Setting, Side, Target, take_turns
from benchmarks.subject import SUBJECTS, Subject

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "benchmark", "version": "1"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}

#: What the interpreter of a side gets, and the whole command of the floor.
IPYBOX = ["-m", "ipybox.mcp_server", "--workspace", "."]
FLOOR = [sys.executable, str(SUBJECTS / "bare_server.py")]


def measurements() -> list[Measurement]:
    """Returns the measurements of this module."""
    floor, cell = "bare SDK server", "MCP: spawn → first cell"
    return [
        Measurement("initialize", "MCP: spawn → initialized", floor, measure_initialize, Target(floors=1.25)),
        Measurement("first-cell", cell, f"{floor}: initialized", measure_first_cell, Target(floors=2)),
    ]


def measure_initialize(setting: Setting) -> Samples:
    return _take_turns(setting, _age_when_initialized)


def measure_first_cell(setting: Setting) -> Samples:
    return _take_turns(setting, _age_at_first_cell)


def _take_turns(setting: Setting, measure: Callable[[list[str]], list[float]]) -> Samples:
    # The floor is initialized, and does no more.
    sides: dict[Side, Callable[[], list[float]]] = {"floor": partial(_age_when_initialized, FLOOR)}
    for side, python in setting.interpreters.items():
        sides[side] = partial(measure, [python, *IPYBOX])
    return Samples(take_turns(setting.rounds, sides))


def _age_when_initialized(command: list[str]) -> list[float]:
    with _initialized(command) as server:
        return [server.age]


def _age_at_first_cell(command: list[str]) -> list[float]:
    with _initialized(command) as server:
        server.send(INITIALIZED)
        parameters = {"name": "execute_ipython_cell", "arguments": {"code": "1+1"}}
        server.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": parameters})
        _await_answer(server, 1)
        return [server.age]


def initialize(command: list[str], directory: Path) -> list[float]:
    """Returns the seconds from the spawn of a server to its answer to `initialize`."""
    with initialized(command, directory) as server:
        return [server.age]


@contextmanager
def initialized(command: list[str], directory: Path) -> Generator[Subject]:
    """Runs a server that has answered `initialize`."""
    with Subject(command, directory) as server:
        server.send(INITIALIZE)
        _await_answer(server, 0)
        yield server


@contextmanager
def _initialized(command: list[str]) -> Generator[Subject]:
    with (
        tempfile.TemporaryDirectory(prefix="ipybox-bench-", ignore_cleanup_errors=True) as directory,
        initialized(command, Path(directory)) as server,
    ):
        yield server


def _await_answer(server: Subject, number: int) -> None:
    while server.receive().get("id") != number:
        pass
