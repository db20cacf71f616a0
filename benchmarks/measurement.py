"""What a measurement is and what comes out of it, pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import cycle, islice
from statistics import median
from typing import Literal, get_args

#: Who is measured. The floor is the same thing done without ipybox, the peer an earlier ipybox.
Side = Literal["ipybox", "floor", "peer"]

Unit = Literal["s", "calls/s", "B", "MiB"]

#: What belongs together.
Group = Literal["start", "cells", "sessions", "tool calls", "data", "MCP server", "end", "memory", "age", "sandbox"]

#: The order in which results are shown.
SHOWN: tuple[Group, ...] = get_args(Group)

#: By how much `--quick` divides repetitions and sizes.
QUICK_DIVISOR = 50


class UnavailableError(Exception):
    """If this machine can't do what is to be measured; the message says what it lacks."""


@dataclass(frozen=True)
class Setting:
    """How to measure.

    Attributes:
        rounds: How often the sides take turns.
        interpreters: The Python interpreter of each ipybox that is measured.
        quick: Whether to measure once, with fewer repetitions and less data, to see that everything works.
    """

    rounds: int
    interpreters: Mapping[Side, str]
    quick: bool = False

    def scaled(self, count: int) -> int:
        """Returns how many repetitions, or bytes, to measure in place of `count`."""
        return max(1, count // QUICK_DIVISOR) if self.quick else count

    def per_round(self, count: int) -> int:
        """Returns how many of `count` repetitions belong to one round."""
        return max(1, self.scaled(count) // self.rounds)


@dataclass(frozen=True)
class Samples:
    """What was measured, in the measurement's unit, and what else there is to say about it."""

    values: Mapping[Side, list[float]]
    remarks: list[str] = field(default_factory=list[str])

    def median(self, side: Side) -> float | None:
        """Returns the median of a side; None if it was not measured."""
        values = self.values.get(side)
        return median(values) if values else None


@dataclass(frozen=True)
class Limit:
    """A limit for the median of ipybox: so many times another side's, plus so much.

    It is an upper limit, except for rates, whose limits are lower ones.

    Attributes:
        times: Factor of the other side's median; 0 for a limit that depends on no other side.
        side: The other side.
        plus: What is added, in the unit of the measurement.
        origin: How an absolute limit was chosen, for people.
    """

    times: float = 0
    side: Side = "floor"
    plus: float = 0
    origin: str = ""

    def value(self, samples: Samples) -> float | None:
        """Returns the limit in the measurement's unit; None if the other side was not measured."""
        other = samples.median(self.side) if self.times else 0.0
        return None if other is None else self.times * other + self.plus


@dataclass(frozen=True)
class Measurement:
    """One row of the table.

    Attributes:
        name: What `--only` knows it by.
        group: Where it belongs.
        what: What is measured, for people.
        floor: Description of the floor, for people; empty without a floor.
        measure: Measures all sides.
        limits: What ipybox must reach, if anything.
        unit: Of the samples.
    """

    name: str
    group: Group
    what: str
    floor: str
    measure: Callable[[Setting], Samples]
    limits: tuple[Limit, ...] = ()
    unit: Unit = "s"

    @property
    def more_is_better(self) -> bool:
        """Whether greater figures are better ones."""
        return self.unit == "calls/s"

    def holds(self, limit: Limit, samples: Samples) -> bool | None:
        """Returns whether ipybox is within a limit; None if a side was not measured."""
        ours, value = samples.median("ipybox"), limit.value(samples)
        if ours is None or value is None:
            return None
        return ours >= value if self.more_is_better else ours <= value


def take_turns(
    setting: Setting, sides: Mapping[Side, Callable[[], list[float]]], rounds: int | None = None
) -> dict[Side, list[float]]:
    """Has each side do its work once per round, in an order that changes, and returns all samples.

    So that a machine that gets slower, or is busy for a while, hits every side. A round to warm up goes before,
    whose samples are dropped: it fills the file cache and writes bytecode. A quick run has one round and no other.

    Args:
        setting: How to measure.
        sides: The work of each side, which returns samples.
        rounds: How many rounds, if other than the setting's.
    """
    samples: dict[Side, list[float]] = {side: [] for side in sides}
    if not setting.quick:
        for work in sides.values():
            work()
    order = list(sides.items())
    for number in range(1 if setting.quick else rounds or setting.rounds):
        for side, work in islice(cycle(order), number, number + len(order)):
            samples[side] += work()
    return samples
