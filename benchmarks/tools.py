"""Tool calls from the kernel, and the packages that they go through."""

import json
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measurement import Measurement, Samples, Setting, Side, Target, take_turns
from benchmarks.subject import SUBJECTS, Subject, start_seconds, started

#: Tool calls of which the median is taken, and those of all threads together per round.
CALLS = 500
THREADED_CALLS = 400
THREADS = 20

ECHO: dict[str, Any] = {"command": sys.executable, "args": [str(SUBJECTS / "bare_server.py")]}
TEXT = "hello"

CALL = """
from time import perf_counter
from mcptools.measured import echo
params = echo.Params(text={text!r})
seconds = []
for _ in range({count}):
    began = perf_counter()
    result = echo.run(params)
    seconds.append(perf_counter() - began)
assert result == {text!r}
"""

CALL_AT_ONCE = """
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from mcptools.measured import echo
params = echo.Params(text={text!r})
began = perf_counter()
with ThreadPoolExecutor({threads}) as pool:
    results = list(pool.map(lambda _: echo.run(params), range({count})))
rate = {count} / (perf_counter() - began)
assert results == [{text!r}] * {count}
"""

IMPORT = "from time import perf_counter as now; began = now(); {statement}; seconds = now() - began"


def measurements() -> list[Measurement]:
    """Returns the measurements of this module."""
    everything = Path(__file__).parent.parent / ".npm/node_modules/@modelcontextprotocol/server-everything"
    server: dict[str, Any] = {"command": "node", "args": [str(everything / "dist/index.js"), "stdio"]}
    return [
        Measurement("tool-call", "tool call, accepted", "mcp.Client", measure_calls, Target(floors=1, seconds=0.001)),
        Measurement(
            "threads", f"tool calls of {THREADS} threads", "mcp.Client, tasks", measure_threads, unit="calls/s"
        ),
        Measurement(
            "tool-import", "first import of a tool", "import pydantic", measure_first_import, Target(seconds=0.2)
        ),
        Measurement(
            "generate",
            "generate server-everything",
            "mcp.Client: list its tools",
            partial(measure_generation, server=server),
        ),
        Measurement(
            "generate-fresh",
            "the same, fresh process",
            "mcp.Client, fresh process",
            partial(measure_fresh_generation, server=server),
        ),
    ]


def measure_calls(setting: Setting) -> Samples:
    count = max(1, CALLS // setting.rounds)
    code = CALL.format(text=TEXT, count=count)
    with running(setting) as (session, executors):
        sides: dict[Side, Callable[[], list[float]]] = {
            "floor": partial(session.ask, "call", tool="echo", arguments={"text": TEXT}, count=count)
        }
        for side, executor in executors.items():
            sides[side] = partial(executor.ask, "evaluate", code=code, expression="seconds")
        return Samples(take_turns(setting.rounds, sides))


def measure_threads(setting: Setting) -> Samples:
    code = CALL_AT_ONCE.format(text=TEXT, count=THREADED_CALLS, threads=THREADS)

    def direct(session: Subject) -> list[float]:
        arguments = {"text": TEXT}
        return [session.ask("call_at_once", tool="echo", arguments=arguments, count=THREADED_CALLS, workers=THREADS)]

    def threaded(executor: Subject) -> list[float]:
        return [executor.ask("evaluate", code=code, expression="rate")]

    with running(setting) as (session, executors):
        sides: dict[Side, Callable[[], list[float]]] = {"floor": partial(direct, session)}
        for side, executor in executors.items():
            sides[side] = partial(threaded, executor)
        return Samples(take_turns(setting.rounds, sides))


def measure_first_import(setting: Setting) -> Samples:
    code = IMPORT.format(statement="from mcptools.measured import echo")

    def first_import(executor: Subject) -> list[float]:
        executor.ask("reset")
        return [executor.ask("evaluate", code=code, expression="seconds")]

    def pydantic_import(kernel: Subject) -> list[float]:
        return [kernel.ask("import_seconds", statement="from pydantic import BaseModel")]

    with running(setting) as (_, executors), started("bare_jupyter.py") as (kernel, _):
        sides: dict[Side, Callable[[], list[float]]] = {"floor": partial(pydantic_import, kernel)}
        for side, executor in executors.items():
            sides[side] = partial(first_import, executor)
        return Samples(take_turns(setting.rounds, sides))


def measure_generation(setting: Setting, server: dict[str, Any]) -> Samples:
    def again(subject: Subject) -> list[float]:
        return [subject.ask("again")]

    with ExitStack() as stack:
        sides: dict[Side, Callable[[], list[float]]] = {}
        for side, (script, python) in _generators(setting).items():
            subject, _ = stack.enter_context(started(script, json.dumps(server), python=python))
            sides[side] = partial(again, subject)
        return Samples(take_turns(setting.rounds, sides))


def measure_fresh_generation(setting: Setting, server: dict[str, Any]) -> Samples:
    return Samples(
        take_turns(
            setting.rounds,
            {
                side: partial(start_seconds, script, json.dumps(server), python=python)
                for side, (script, python) in _generators(setting).items()
            },
        )
    )


@contextmanager
def running(setting: Setting) -> Generator[tuple[Subject, dict[Side, Subject]]]:
    """Runs a direct session with the echo server, and an executor of each ipybox with a package for it."""
    with ExitStack() as stack:
        session, _ = stack.enter_context(started("direct_session.py", json.dumps(ECHO)))
        executors: dict[Side, Subject] = {}
        for side, python in setting.interpreters.items():
            executors[side], _ = stack.enter_context(started("executor.py", python=python))
            executors[side].ask("generate", server_name="measured", server_params=ECHO)
        yield session, executors


def _generators(setting: Setting) -> dict[Side, tuple[str, str]]:
    """Returns each side's script and interpreter."""
    generators: dict[Side, tuple[str, str]] = {"floor": ("tool_listing.py", sys.executable)}
    for side, python in setting.interpreters.items():
        generators[side] = ("generation.py", python)
    return generators
