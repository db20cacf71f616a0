"""Importing ipybox, starting an executor, and running code in it."""

import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from benchmarks.measurement import Limit, Measurement, Samples, Setting, Side, take_turns
from benchmarks.subject import Subject, environment, start_seconds, started

#: Executions of which the median is taken.
EXECUTIONS = 200


def measurements() -> list[Measurement]:
    """Returns the measurements of this module."""
    floor, reset, stop = "jupyter_client", partial(measure_operation, operation="reset"), "jupyter_client"
    of_reset = (Limit(0.1, "peer"), Limit(0.15))
    return [
        Measurement(
            "import", "start", "python -c 'import ipybox'", "python -c pass", measure_import, (Limit(plus=0.15),)
        ),
        Measurement("start", "start", "start to first result", floor, measure_start, (Limit(1),)),
        Measurement("execute", "cells", 'execute("1+1")', floor, measure_execute, (Limit(1.4),)),
        Measurement("reset", "cells", "reset to first result", f"{floor}: kill, start", reset, of_reset),
        Measurement("stop", "end", "stop", stop, partial(measure_operation, operation="restart")),
    ]


def measure_import(setting: Setting) -> Samples:
    sides: dict[Side, Callable[[], list[float]]] = {"floor": partial(_run_seconds, sys.executable, "pass")}
    for side, python in setting.interpreters.items():
        sides[side] = partial(_run_seconds, python, "import ipybox")
    return Samples(take_turns(setting, sides, setting.rounds * 2))


def measure_start(setting: Setting) -> Samples:
    sides: dict[Side, Callable[[], list[float]]] = {"floor": partial(start_seconds, "bare_jupyter.py")}
    for side, python in setting.interpreters.items():
        sides[side] = partial(start_seconds, "executor.py", python=python)
    return Samples(take_turns(setting, sides))


def measure_execute(setting: Setting) -> Samples:
    count = setting.per_round(EXECUTIONS)
    wrong: dict[Side, int] = {}

    def execute(side: Side, subject: Subject) -> list[float]:
        answer: dict[str, Any] = subject.ask("execute", code="1+1", expected="2", count=count)
        wrong[side] = wrong.get(side, 0) + int(answer["wrong"])
        return answer["seconds"]

    with running(setting) as subjects:
        samples = take_turns(setting, {side: partial(execute, side, it) for side, it in subjects.items()})
    executions = count * (setting.rounds if setting.quick else setting.rounds + 1)
    remarks = [f"{side}: {number} of {executions} outputs wrong or lost" for side, number in wrong.items() if number]
    return Samples(samples, remarks)


def measure_operation(setting: Setting, operation: str) -> Samples:
    """Measures an operation that the subject times itself."""

    def operate(subject: Subject) -> list[float]:
        return [subject.ask(operation)]

    with running(setting) as subjects:
        return Samples(take_turns(setting, {side: partial(operate, it) for side, it in subjects.items()}))


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
