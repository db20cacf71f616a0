"""Cells and tool calls of an executor that has run many of both, compared with those of a fresh one."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

from benchmarks.kernel import EXECUTIONS
from benchmarks.measurement import Limit, Measurement, Samples, Setting, Side, take_turns
from benchmarks.subject import Subject, started
from benchmarks.tools import CALL, CALLS, TEXT, prepare

#: Cells, and tool calls, that the old executor has run.
BEFORE = 10_000

#: Those of one request, so that each ends within its limit.
AT_A_TIME = 2_500


def measurements() -> list[Measurement]:
    """Returns the measurements of this module."""
    floor, limit = "a fresh executor", (Limit(1.05),)
    after = f"after {BEFORE:,} of each"
    return [
        Measurement("old-execute", "age", f'execute("1+1") {after}', floor, partial(_of, what="cells"), limit),
        Measurement("old-tool-call", "age", f"tool call {after}", floor, partial(_of, what="calls"), limit),
    ]


def _of(setting: Setting, what: str) -> Samples:
    return Samples(_measured(setting.rounds, setting.quick)[what])


@cache
def _measured(rounds: int, quick: bool) -> dict[str, dict[Side, list[float]]]:
    """Returns the seconds of cells and of tool calls; both rows have the executor grow old once."""
    setting = Setting(rounds, {}, quick)
    with _running() as (fresh, old):
        for first in range(0, setting.scaled(BEFORE), AT_A_TIME):
            count = min(AT_A_TIME, setting.scaled(BEFORE) - first)
            _execute(old, count)
            _call(old, count)
        measured: dict[str, dict[Side, list[float]]] = {}
        for what, measure, count in (("cells", _execute, EXECUTIONS), ("calls", _call, CALLS)):
            work = partial(measure, count=setting.per_round(count))
            measured[what] = take_turns(setting, {"floor": partial(work, fresh), "ipybox": partial(work, old)})
        return measured


def _execute(subject: Subject, count: int) -> list[float]:
    answer: dict[str, Any] = subject.ask("execute", code="1+1", expected="2", count=count)
    return answer["seconds"]


def _call(subject: Subject, count: int) -> list[float]:
    return subject.ask("evaluate", code=CALL.format(text=TEXT, count=count), expression="seconds")


@contextmanager
def _running() -> Generator[tuple[Subject, Subject]]:
    """Runs two executors that have called the server."""
    with ExitStack() as stack:
        fresh, old = (stack.enter_context(started("executor.py"))[0] for _ in range(2))
        for executor in (fresh, old):
            prepare(executor)
        yield fresh, old
