"""Tool calls from the kernel, and the first import of the package that they go through."""

import json
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from benchmarks.measurement import Limit, Measurement, Samples, Setting, Side, take_turns
from benchmarks.subject import SUBJECTS, Subject, started

#: Tool calls of which the median is taken, and those of all threads together per round.
CALLS = 500
THREADED_CALLS = 400
THREADS = 20

SERVER: dict[str, Any] = {"command": sys.executable, "args": [str(SUBJECTS / "tool_server.py")]}
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
    group, client = "tool calls", "mcp.Client"
    of_call, threads = (Limit(1, plus=0.001),), f"tool calls of {THREADS} threads"
    return [
        Measurement("tool-call", group, "tool call", client, measure_calls, of_call),
        Measurement("threads", group, threads, f"{client}, tasks", measure_threads, (Limit(1),), "calls/s"),
        Measurement(
            "tool-import", group, "first import of a tool", "import pydantic", measure_first_import, (Limit(plus=0.2),)
        ),
    ]


def measure_calls(setting: Setting) -> Samples:
    count = setting.per_round(CALLS)
    code = CALL.format(text=TEXT, count=count)
    with running(setting) as (session, executors):
        sides: dict[Side, Callable[[], list[float]]] = {
            "floor": partial(session.ask, "call", tool="echo", arguments={"text": TEXT}, count=count)
        }
        for side, executor in executors.items():
            sides[side] = partial(executor.ask, "evaluate", code=code, expression="seconds")
        return Samples(take_turns(setting, sides))


def measure_threads(setting: Setting) -> Samples:
    count = max(THREADS, setting.scaled(THREADED_CALLS))
    code = CALL_AT_ONCE.format(text=TEXT, count=count, threads=THREADS)

    def direct(session: Subject) -> list[float]:
        arguments = {"text": TEXT}
        return [session.ask("call_at_once", tool="echo", arguments=arguments, count=count, workers=THREADS)]

    def threaded(executor: Subject) -> list[float]:
        return [executor.ask("evaluate", code=code, expression="rate")]

    with running(setting) as (session, executors):
        sides: dict[Side, Callable[[], list[float]]] = {"floor": partial(direct, session)}
        for side, executor in executors.items():
            sides[side] = partial(threaded, executor)
        return Samples(take_turns(setting, sides))


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
        return Samples(take_turns(setting, sides))


def prepare(executor: Subject) -> None:
    """Generates the package for the server, and starts that by a first call."""
    executor.ask("generate", server_name="measured", server_params=SERVER)
    executor.ask("evaluate", code=CALL.format(text=TEXT, count=1), expression="seconds")


@contextmanager
def running(setting: Setting) -> Generator[tuple[Subject, dict[Side, Subject]]]:
    """Runs a direct session with the server, and an executor of each ipybox that has called it."""
    with ExitStack() as stack:
        session, _ = stack.enter_context(started("direct_session.py", json.dumps(SERVER)))
        executors: dict[Side, Subject] = {}
        for side, python in setting.interpreters.items():
            executors[side], _ = stack.enter_context(started("executor.py", python=python))
            prepare(executors[side])
        yield session, executors
