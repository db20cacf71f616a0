"""ipybox as an MCP server, driven by hand-written JSON-RPC: no client's import or start is in the figures.

https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle
"""

import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measurement import Limit, Measurement, Samples, Setting, Side, take_turns
from benchmarks.processes import await_gone, tree
from benchmarks.subject import SUBJECTS, Subject, SubjectError, started

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

#: Calls of tools.
CELL = {"name": "execute_ipython_cell", "arguments": {"code": "1+1"}}
RESET: dict[str, Any] = {"name": "reset", "arguments": {}}

#: What the interpreter of a side gets, and the whole command of the floor.
IPYBOX = ["-m", "ipybox.mcp_server", "--workspace", "."]
FLOOR = [sys.executable, str(SUBJECTS / "bare_server.py")]


#: Cells of which the median is taken.
CELLS = 200


def measurements() -> list[Measurement]:
    """Returns the measurements of this module."""
    group, floor = "MCP server", "bare SDK server"
    started_again, of_reset = "MCP server: reset to first result", (Limit(0.1, "peer"), Limit(0.15))
    return [
        Measurement("initialize", group, "MCP server: start to initialized", floor, measure_initialize, (Limit(1),)),
        Measurement(
            "first-cell",
            group,
            "MCP server: start to first cell",
            f"{floor}: initialized",
            measure_first_cell,
            (Limit(1.2),),
        ),
        Measurement("mcp-cell", group, "MCP server: cell", "Python API", measure_cells, (Limit(1.3),)),
        Measurement("mcp-reset", group, started_again, "jupyter_client", measure_reset, of_reset),
        Measurement(
            "mcp-end", "end", "MCP server: end of stdin to last exit", floor, measure_end, (Limit(0.1, "peer"),)
        ),
    ]


def measure_initialize(setting: Setting) -> Samples:
    return _take_turns(setting, _age_when_initialized)


def measure_first_cell(setting: Setting) -> Samples:
    return _take_turns(setting, _age_at_first_cell)


def measure_cells(setting: Setting) -> Samples:
    """Compares a cell of an MCP client, which sends and reads lines of JSON only, with one of the SDK."""
    count = setting.per_round(CELLS)

    def execute(executor: Subject) -> list[float]:
        return executor.ask("execute", code="1+1", expected="2", count=count)["seconds"]

    with ExitStack() as stack:
        executor, _ = stack.enter_context(started("executor.py"))
        sides: dict[Side, Callable[[], list[float]]] = {"floor": partial(execute, executor)}
        for side, server in _servers(setting, stack).items():
            sides[side] = lambda server=server: [server.timed_call(CELL) for _ in range(count)]
        return Samples(take_turns(setting, sides))


def measure_reset(setting: Setting) -> Samples:
    def restart(kernel: Subject) -> list[float]:
        return [kernel.ask("reset")]

    def reset(server: Server) -> list[float]:
        return [server.timed_call(RESET) + server.timed_call(CELL)]

    with ExitStack() as stack:
        kernel, _ = stack.enter_context(started("bare_jupyter.py"))
        sides: dict[Side, Callable[[], list[float]]] = {"floor": partial(restart, kernel)}
        for side, server in _servers(setting, stack).items():
            sides[side] = partial(reset, server)
        return Samples(take_turns(setting, sides))


def measure_end(setting: Setting) -> Samples:
    """Measures the end of a server whose kernel has run a cell, and of all its processes."""
    sides: dict[Side, Callable[[], list[float]]] = {"floor": partial(_end_seconds, FLOOR, None)}
    for side, python in setting.interpreters.items():
        sides[side] = partial(_end_seconds, [python, *IPYBOX], CELL)
    return Samples(take_turns(setting, sides))


def _servers(setting: Setting, stack: ExitStack) -> dict[Side, "Server"]:
    """Runs an MCP server of each ipybox, whose kernel has run a cell."""
    servers: dict[Side, Server] = {
        side: Server(stack.enter_context(running([python, *IPYBOX]))) for side, python in setting.interpreters.items()
    }
    for server in servers.values():
        server.timed_call(CELL)
    return servers


def _end_seconds(command: list[str], call: Mapping[str, Any] | None) -> list[float]:
    with running(command) as subject:
        if call is not None:
            Server(subject).timed_call(call)
        processes = tree(subject.pid)
        began = time.perf_counter()
        subject.end_input()
        await_gone(processes)
        return [time.perf_counter() - began]


def _take_turns(setting: Setting, measure: Callable[[list[str]], list[float]]) -> Samples:
    # The floor is initialized, and does no more.
    sides: dict[Side, Callable[[], list[float]]] = {"floor": partial(_age_when_initialized, FLOOR)}
    for side, python in setting.interpreters.items():
        sides[side] = partial(measure, [python, *IPYBOX])
    return Samples(take_turns(setting, sides))


def _age_when_initialized(command: list[str]) -> list[float]:
    with running(command) as server:
        return [server.age]


def _age_at_first_cell(command: list[str]) -> list[float]:
    with running(command) as server:
        Server(server).timed_call(CELL)
        return [server.age]


class Server:
    """An initialized MCP server, and calls of its tools."""

    def __init__(self, subject: Subject):
        self.subject = subject
        self._calls = 0
        subject.send(INITIALIZED)

    def timed_call(self, parameters: Mapping[str, Any]) -> float:
        """Calls a tool and returns the seconds that took.

        Raises:
            SubjectError: If the tool fails.
        """
        self._calls += 1
        began = time.perf_counter()
        self.subject.send({"jsonrpc": "2.0", "id": self._calls, "method": "tools/call", "params": parameters})
        answer = _await_answer(self.subject, self._calls)
        seconds = time.perf_counter() - began
        if answer.get("result", {"isError": True}).get("isError"):
            raise SubjectError(f"{parameters} failed: {answer}")
        return seconds


@contextmanager
def running(command: list[str]) -> Generator[Subject]:
    """Runs a server that has answered `initialize`."""
    with (
        tempfile.TemporaryDirectory(prefix="ipybox-bench-", ignore_cleanup_errors=True) as directory,
        Subject(command, Path(directory)) as server,
    ):
        server.send(INITIALIZE)
        _await_answer(server, 0)
        yield server


def _await_answer(server: Subject, number: int) -> dict[str, Any]:
    while (answer := server.receive()).get("id") != number:
        pass
    return answer
