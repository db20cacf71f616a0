"""Importing ipybox, starting an executor, and running code in it."""

import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from benchmarks.measurement import Measurement, Samples, Setting, Side, Target, take_turns
from benchmarks.subject import Subject, environment, start_seconds, started

#: Executions of which the median is taken.
EXECUTIONS = 200

OUTPUT_BYTES = 10_000_000
ONE_WRITE = f"print('x' * {OUTPUT_BYTES})"
MANY_LINES = f"for _ in range({OUTPUT_BYTES // 100}): print('x' * 99)"


def measurements() -> list[Measurement]:
    """Returns the measurements of this module."""
    return [
        Measurement("import", "python -c 'import ipybox'", "python -c pass", measure_import, Target(seconds=0.15)),
        Measurement("start", "spawn → first result", "jupyter_client", measure_start, Target(floors=2)),
        Measurement("execute", 'execute("1+1")', "jupyter_client", measure_execute, Target(floors=1.4)),
        Measurement("output", "10 MB in one print", "jupyter_client", partial(measure_output, code=ONE_WRITE)),
        Measurement("lines", "10 MB in 100-byte lines", "jupyter_client", partial(measure_output, code=MANY_LINES)),
        Measurement("reset", "reset", "jupyter_client: kill, start", partial(measure_operation, operation="reset")),
        Measurement("stop", "stop", "jupyter_client: kill", partial(measure_operation, operation="restart")),
    ]


def measure_import(setting: Setting) -> Samples:
    sides: dict[Side, Callable[[], list[float]]] = {"floor": partial(_run_seconds, sys.executable, "pass")}
    for side, python in setting.interpreters.items():
        sides[side] = partial(_run_seconds, python, "import ipybox")
    return Samples(take_turns(setting.rounds * 2, sides))


def measure_start(setting: Setting) -> Samples:
    sides: dict[Side, Callable[[], list[float]]] = {"floor": partial(start_seconds, "bare_jupyter.py")}
    for side, python in setting.interpreters.items():
        sides[side] = partial(start_seconds, "executor.py", python=python)
    return Samples(take_turns(setting.rounds, sides))


def measure_execute(setting: Setting) -> Samples:
    count = max(1, EXECUTIONS // setting.rounds)
    wrong: dict[Side, int] = {}

    def execute(side: Side, subject: Subject) -> list[float]:
        answer: dict[str, Any] = subject.ask("execute", code="1+1", expected="2", count=count)
        wrong[side] = wrong.get(side, 0) + int(answer["wrong"])
        return answer["seconds"]

    with running(setting) as subjects:
        samples = take_turns(setting.rounds, {side: partial(execute, side, it) for side, it in subjects.items()})
    executions = count * (setting.rounds + 1)
    remarks = [f"{side}: {number} of {executions} outputs wrong or lost" for side, number in wrong.items() if number]
    return Samples(samples, remarks)


def measure_output(setting: Setting, code: str) -> Samples:
    least: dict[Side, int] = {}

    def output(side: Side, subject: Subject) -> list[float]:
        answer: dict[str, Any] = subject.ask("output", code=code)
        least[side] = min(least.get(side, OUTPUT_BYTES), int(answer["characters"]))
        return [answer["seconds"]]

    with running(setting) as subjects:
        samples = take_turns(setting.rounds, {side: partial(output, side, it) for side, it in subjects.items()})
    remarks = [
        f"{side}: only {number / 1e6:.1f} of {OUTPUT_BYTES / 1e6:g} MB arrived"
        for side, number in least.items()
        if number < OUTPUT_BYTES - 1
    ]
    return Samples(samples, remarks)


def measure_operation(setting: Setting, operation: str) -> Samples:
    """Measures an operation that the subject times itself."""

    def operate(subject: Subject) -> list[float]:
        return [subject.ask(operation)]

    with running(setting) as subjects:
        return Samples(take_turns(setting.rounds, {side: partial(operate, it) for side, it in subjects.items()}))


@contextmanager
def running(setting: Setting) -> Generator[dict[Side, Subject]]:
    """Runs a bare kernel and an executor of each ipybox."""
    with ExitStack() as stack:
        subjects: dict[Side, Subject] = {"floor": stack.enter_context(started("bare_jupyter.py"))[0]}
        for side, python in setting.interpreters.items():
            subjects[side] = stack.enter_context(started("executor.py", python=python))[0]
        yield subjects


def _run_seconds(python: str, code: str) -> list[float]:
    command = [python, "-P", "-c", code]  # else an ipybox in our working directory is what gets imported
    began = time.perf_counter()
    subprocess.run(command, env=environment(python), check=True)
    return [time.perf_counter() - began]
