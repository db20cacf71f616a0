"""What the sandbox costs: the same executor with it and without, which is the floor here."""

import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from benchmarks.kernel import EXECUTIONS
from benchmarks.measurement import Measurement, Samples, Setting, Side, Target, take_turns
from benchmarks.subject import Subject, start_seconds, started
from benchmarks.tools import CALL, CALLS, ECHO, TEXT

FLOOR = "without it"

#: Arguments of the executor's script.
ARGUMENTS: dict[Side, tuple[str, ...]] = {"floor": (), "ipybox": ("--sandbox",)}


def measurements() -> list[Measurement]:
    """Returns the measurements of this module."""
    return [
        Measurement("sandbox-start", "sandbox: first result", FLOOR, measure_start, Target(floors=1, seconds=1.0)),
        Measurement("sandbox-execute", 'sandbox: execute("1+1")', FLOOR, measure_execute, Target(floors=1.2)),
        Measurement("sandbox-tool-call", "sandbox: tool call", FLOOR, measure_calls, Target(floors=1.2)),
    ]


def measure_start(setting: Setting) -> Samples:
    sides: dict[Side, Callable[[], list[float]]] = {
        side: partial(start_seconds, "executor.py", *arguments) for side, arguments in ARGUMENTS.items()
    }
    return Samples(take_turns(setting.rounds, sides))


def measure_execute(setting: Setting) -> Samples:
    count = max(1, EXECUTIONS // setting.rounds)

    def execute(subject: Subject) -> list[float]:
        answer: dict[str, Any] = subject.ask("execute", code="1+1", expected="2", count=count)
        return answer["seconds"]

    with running() as subjects:
        return Samples(take_turns(setting.rounds, {side: partial(execute, it) for side, it in subjects.items()}))


def measure_calls(setting: Setting) -> Samples:
    code = CALL.format(text=TEXT, count=max(1, CALLS // setting.rounds))

    def call(subject: Subject) -> list[float]:
        return subject.ask("evaluate", code=code, expression="seconds")

    with running() as subjects:
        for subject in subjects.values():
            subject.ask("generate", server_name="measured", server_params=ECHO)
        return Samples(take_turns(setting.rounds, {side: partial(call, it) for side, it in subjects.items()}))


@contextmanager
def running() -> Generator[dict[Side, Subject]]:
    """Runs an executor without a sandbox and one with it."""
    with ExitStack() as stack:
        yield {
            side: stack.enter_context(started("executor.py", *arguments, python=sys.executable))[0]
            for side, arguments in ARGUMENTS.items()
        }
