"""What a measurement is and what comes out of it, pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import cycle, islice
from statistics import median
from typing import Literal

#: Who is measured. The floor is the same thing done without ipybox, the peer an earlier ipybox.
Side = Literal["ipybox", "floor", "peer"]

Unit = Literal["s", "calls/s", "B"]


@dataclass(frozen=True)
class Setting:
    """How to measure.

    Attributes:
        rounds: How often the sides take turns.
        interpreters: The Python interpreter of each ipybox that is measured.
    """

    rounds: int
    interpreters: Mapping[Side, str]


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
class Target:
    """An upper limit: so many times the floor, plus so many seconds."""

    floors: float = 0
    seconds: float = 0

    def met(self, value: float, floor: float | None) -> bool:
        """Tells whether `value` is within the limit."""
        return value <= self.floors * (floor or 0) + self.seconds


@dataclass(frozen=True)
class Measurement:
    """One row of the table.

    Attributes:
        name: What `--only` knows it by.
        what: What is measured, for people.
        floor: Description of the floor, for people; empty without a floor.
        measure: Measures all sides.
        target: The limit for ipybox, if one was set.
        unit: Of the samples.
    """

    name: str
    what: str
    floor: str
    measure: Callable[[Setting], Samples]
    target: Target | None = None
    unit: Unit = "s"


def take_turns(rounds: int, sides: Mapping[Side, Callable[[], list[float]]]) -> dict[Side, list[float]]:
    """Has each side do its work once per round, in an order that changes, and returns all samples.

    So that a machine that gets slower, or is busy for a while, hits every side. A round to warm up goes before,
    whose samples are dropped: it fills the file cache and writes bytecode.
    """
    samples: dict[Side, list[float]] = {side: [] for side in sides}
    for work in sides.values():
        work()
    order = list(sides.items())
    for number in range(rounds):
        for side, work in islice(cycle(order), number, number + len(order)):
            samples[side] += work()
    return samples
