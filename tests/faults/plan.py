"""What a run of the model test does: steps that depend on a seed alone, so that a run can be repeated and made shorter.

No step needs another one: any part of a plan is a plan, too.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.faults import cells

#: How many executors there are: the first one and its siblings.
EXECUTORS = 3

How = Literal["execute", "stream", "chunks", "leave"]
Decision = Literal["accept", "reject", "ignore", "late"]


@dataclass(frozen=True)
class Cancel:
    """How something is cancelled while it is under way.

    Attributes:
        by: Its task, or `CodeExecutor.cancel`.
        delay: Seconds after its start.
        times: How often.
    """

    by: Literal["task", "executor"]
    delay: float
    times: int


@dataclass(frozen=True)
class Step:
    """One operation, which goes on while the next ones begin.

    Attributes:
        what: The operation; `settle` waits for all that came before, and then for a clean cell of each executor.
        who: Which executor it is about.
        pause: Seconds until the next one begins.
        kind: What a cell does.
        how: How a cell is executed.
        timeout: The time limit of a cell, in seconds.
        decisions: What becomes of the tool calls of a cell, with the seconds until then.
        cancel: How it is cancelled, if it is.
    """

    what: Literal["cell", "reset", "stop", "start", "kill kernel", "kill gateway", "settle"]
    who: int = 0
    pause: float = 0.0
    kind: cells.Kind = "quick"
    how: How = "execute"
    timeout: float | None = None
    decisions: tuple[tuple[Decision, float], ...] = ()
    cancel: Cancel | None = None

    def __str__(self) -> str:
        shown = [f"{self.what} {self.who}"]
        if self.what == "cell":
            shown += [f"{self.kind!r} by {self.how}", f"timeout {self.timeout}"]
        if self.decisions:
            shown.append(" ".join(f"{decision}@{delay}" for decision, delay in self.decisions))
        if self.cancel is not None:
            shown.append(f"cancelled {self.cancel.times}x by {self.cancel.by}@{self.cancel.delay}")
        return f"{', '.join(shown)}; pause {self.pause}"


@dataclass(frozen=True)
class Plan:
    """The steps of a seed."""

    seed: int
    steps: Sequence[Step]

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}, {len(self.steps)} steps:", *map(str, self.steps)])


def make_plan(seed: int, steps: int) -> Plan:
    """Returns the plan of a seed; a longer one begins like a shorter one."""
    rng = random.Random(seed)
    return Plan(seed, [_step(rng, number) for number in range(steps)])


async def shortened(steps: Sequence[Step], fails: Callable[[Sequence[Step]], Awaitable[bool]]) -> Sequence[Step]:
    """Returns steps that still fail, as few as leaving some of them out leads to (delta debugging)."""
    size = len(steps) // 2
    while size:
        start = 0
        while start < len(steps):
            fewer = [*steps[:start], *steps[start + size :]]
            if await fails(fewer):
                steps = fewer
            else:
                start += size
        size //= 2
    return steps


def _step(rng: random.Random, number: int) -> Step:
    if number % 12 == 11:
        return Step("settle")
    who = rng.randrange(EXECUTORS)
    pause = rng.choice((0.0, 0.0, 0.02, 0.1, 0.3))
    chance = rng.random()
    if chance < 0.74:
        return _cell(rng, who, pause)
    if chance < 0.81:
        return Step("reset", who, pause, cancel=_cancel(rng, "task"))
    if chance < 0.84:
        return Step("stop", who, pause, cancel=_cancel(rng, "task"))
    if chance < 0.90:
        return Step("start", who, pause, cancel=_cancel(rng, "task"))
    return Step("kill gateway" if chance > 0.985 else "kill kernel", who, pause)


def _cell(rng: random.Random, who: int, pause: float) -> Step:
    kind: cells.Kind = rng.choice(
        (*cells.ENDING, *cells.ENDING, "error", "sleep", "async sleep", "late sleep", "sleep", "swallow", "die", "die")
    )
    how: How = rng.choice(("execute", "stream", "chunks", "leave"))
    timeout = round(rng.uniform(0.05, 1.5), 2) if kind not in cells.ENDING or rng.random() < 0.15 else None
    decisions: tuple[tuple[Decision, float], ...] = ()
    if kind in ("tools", "tools at once"):
        decisions = tuple(
            (rng.choice(("accept", "accept", "accept", "reject", "ignore", "late")), round(rng.uniform(0, 0.2), 2))
            for _ in range(rng.randint(1, 3))
        )
    by = (
        rng.choice((None, None, "task", "executor")) if kind in cells.ENDING else rng.choice((None, "task", "executor"))
    )
    return Step("cell", who, pause, kind, how, timeout, decisions, _cancel(rng, by))


def _cancel(rng: random.Random, by: Literal["task", "executor"] | None) -> Cancel | None:
    if by is None or rng.random() < 0.3:
        return None
    return Cancel(by, rng.choice((0.0, 0.001, 0.01, 0.05, 0.2, 0.5)), rng.choice((1, 1, 3)))
