"""The results of a run, as they are written to a file and read again."""

from collections.abc import Mapping
from pathlib import Path
from statistics import median

from pydantic import BaseModel, ValidationError

from benchmarks.figures import describe
from benchmarks.measurement import Group, Measurement, Samples, Side, Unit


class ResultsError(Exception):
    """If a file has no results that can be read; the message has its name."""


class LimitResult(BaseModel):
    """A limit in words and in the unit of the row, and whether it held; None if a side was not measured."""

    text: str
    value: float | None
    holds: bool | None


class Row(BaseModel):
    """What was measured of one subject."""

    name: str
    group: Group
    what: str
    floor: str
    unit: Unit
    limits: list[LimitResult]
    samples: dict[Side, list[float]]
    remarks: list[str]

    @property
    def met(self) -> bool | None:
        """Whether all limits held that could be compared; None without such a limit."""
        known = [limit.holds for limit in self.limits if limit.holds is not None]
        return all(known) if known else None

    def median(self, side: Side) -> float | None:
        """Returns the median of a side; None if it was not measured."""
        values = self.samples.get(side)
        return median(values) if values else None

    def p95(self, side: Side) -> float | None:
        """Returns the value that 95 % of a side's samples don't exceed; None if it was not measured."""
        values = sorted(self.samples.get(side, []))
        return values[-(len(values) // 20) - 1] if values else None

    def ratio(self, side: Side) -> float | None:
        """Returns how many times the other side's median that of ipybox is; None if one was not measured."""
        ours, other = self.median("ipybox"), self.median(side)
        return None if ours is None or not other else ours / other


class Missing(BaseModel):
    """What could not be measured, and why.

    Attributes:
        failed: Whether it should have been possible.
    """

    name: str
    what: str
    reason: str
    failed: bool


class Machine(BaseModel):
    """What the figures were measured on."""

    processor: str
    cores: int
    memory: str
    system: str
    python: str


class Results(BaseModel):
    """All of a run.

    Attributes:
        date: The day on which it began.
        command: How to repeat it, without names of files.
        commit: That of the checkout, with a + if files were changed since; empty outside of one.
        rounds: How often the sides took turns.
        quick: Whether everything was measured once, with less of it: figures mean little then.
        load: The load average of the last minute at the start.
        versions: Those of ipybox, of the peer, and of the packages below.
        machine: What they were measured on.
        rows: What was measured, in the order of the suite.
        missing: What could not be measured.
    """

    date: str
    command: str
    commit: str
    rounds: int
    quick: bool
    load: float
    versions: dict[str, str]
    machine: Machine
    rows: list[Row]
    missing: list[Missing]


def row(measurement: Measurement, samples: Samples) -> Row:
    """Returns what was measured, and which limits held."""
    return Row(
        name=measurement.name,
        group=measurement.group,
        what=measurement.what,
        floor=measurement.floor,
        unit=measurement.unit,
        limits=[
            LimitResult(
                text=describe(limit, measurement), value=limit.value(samples), holds=measurement.holds(limit, samples)
            )
            for limit in measurement.limits
        ],
        samples=_rounded(samples.values),
        remarks=samples.remarks,
    )


def read_results(path: Path) -> Results:
    """Returns the results in a file.

    Raises:
        ResultsError: If it can't be read, or contains anything else.
    """
    try:
        return Results.model_validate_json(path.read_bytes())
    except OSError as exc:
        raise ResultsError(f"{path}: {exc.strerror}") from exc
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ResultsError(f"{path} has no results of benchmarks: {place or 'JSON'}: {first['msg']}") from exc


def _rounded(values: Mapping[Side, list[float]]) -> dict[Side, list[float]]:
    """Returns samples with the digits that may count, as the file is part of the repository."""
    return {side: [float(f"{value:.4g}") for value in samples] for side, samples in values.items()}
