"""What the sandbox costs. The floor is the same executor without it, or of the start `jupyter_client`."""

import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from benchmarks.kernel import EXECUTIONS
from benchmarks.measurement import Limit, Measurement, Samples, Setting, Side, UnavailableError, take_turns
from benchmarks.subject import Subject, start_seconds, started
from benchmarks.tools import CALL, CALLS, TEXT, prepare
from ipybox.sandbox.preflight import diagnose

#: Arguments of the executor's script.
ARGUMENTS: dict[Side, tuple[str, ...]] = {"floor": (), "ipybox": ("--sandbox",)}


def measurements() -> list[Measurement]:
    """Returns the measurements of this module."""
    floor, limit = "without it", (Limit(1.2),)
    kernel, of_start = "jupyter_client", (Limit(1.3),)
    return [
        Measurement("sandbox-start", "sandbox", "sandbox: start to first result", kernel, measure_start, of_start),
        Measurement("sandbox-execute", "sandbox", 'sandbox: execute("1+1")', floor, measure_execute, limit),
        Measurement("sandbox-tool-call", "sandbox", "sandbox: tool call", floor, measure_calls, limit),
    ]


def measure_start(setting: Setting) -> Samples:
    _require_sandbox()
    sides: dict[Side, Callable[[], list[float]]] = {
        "floor": partial(start_seconds, "bare_jupyter.py"),
        "ipybox": partial(start_seconds, "executor.py", "--sandbox"),
    }
    return Samples(take_turns(setting, sides))


def measure_execute(setting: Setting) -> Samples:
    count = setting.per_round(EXECUTIONS)

    def execute(subject: Subject) -> list[float]:
        answer: dict[str, Any] = subject.ask("execute", code="1+1", expected="2", count=count)
        return answer["seconds"]

    with running() as subjects:
        return Samples(take_turns(setting, {side: partial(execute, it) for side, it in subjects.items()}))


def measure_calls(setting: Setting) -> Samples:
    code = CALL.format(text=TEXT, count=setting.per_round(CALLS))

    def call(subject: Subject) -> list[float]:
        return subject.ask("evaluate", code=code, expression="seconds")

    with running() as subjects:
        for subject in subjects.values():
            prepare(subject)
        return Samples(take_turns(setting, {side: partial(call, it) for side, it in subjects.items()}))


@contextmanager
def running() -> Generator[dict[Side, Subject]]:
    """Runs an executor without a sandbox and one with it."""
    _require_sandbox()
    with ExitStack() as stack:
        yield {
            side: stack.enter_context(started("executor.py", *arguments, python=sys.executable))[0]
            for side, arguments in ARGUMENTS.items()
        }


def _require_sandbox() -> None:
    for finding in diagnose():
        if finding.problem is not None:
            raise UnavailableError(f"the sandbox can't start: {finding.problem}")
