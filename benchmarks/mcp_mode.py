"""ipybox as an MCP server, driven by hand-written JSON-RPC: no client's import or start is in the figures.

https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle
"""

import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

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

#: Module to run, or script, and a tool with its arguments.
IPYBOX = (["-m", "ipybox.mcp_server", "--workspace", "."], "execute_ipython_cell", {"code": "1+1"})
FLOOR = ([str(SUBJECTS / "bare_server.py")], "echo", {"text": "2"})


def measurements() -> list[Measurement]:
    """Returns the measurements of this module."""
    floor = "bare SDK server"
    return [
        Measurement("initialize", "MCP: spawn → initialized", floor, measure_initialize, Target(floors=1.3)),
        Measurement("first-cell", "MCP: spawn → first cell", f"{floor}: first call", measure_first_cell),
    ]


def measure_initialize(setting: Setting) -> Samples:
    def measure(command: list[str], _tool: str, _arguments: dict[str, Any]) -> list[float]:
        with _initialized(command) as server:
            return [server.age]

    return Samples(take_turns(setting.rounds, {side: partial(measure, *it) for side, it in _servers(setting).items()}))


def measure_first_cell(setting: Setting) -> Samples:
    def call(command: list[str], tool: str, arguments: dict[str, Any]) -> list[float]:
        with _initialized(command) as server:
            server.send(INITIALIZED)
            parameters = {"name": tool, "arguments": arguments}
            server.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": parameters})
            _await_answer(server, 1)
            return [server.age]

    return Samples(take_turns(setting.rounds, {side: partial(call, *it) for side, it in _servers(setting).items()}))


def _servers(setting: Setting) -> dict[Side, tuple[list[str], str, dict[str, Any]]]:
    """Returns each side's command, and a tool with its arguments."""
    arguments, tool, tool_arguments = FLOOR
    servers: dict[Side, tuple[list[str], str, dict[str, Any]]] = {
        "floor": ([sys.executable, *arguments], tool, tool_arguments)
    }
    arguments, tool, tool_arguments = IPYBOX
    for side, python in setting.interpreters.items():
        servers[side] = ([python, *arguments], tool, tool_arguments)
    return servers


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
