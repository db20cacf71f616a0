"""The history of results: one line for each run that was recorded, and what became slower from one to the next."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from pydantic import BaseModel, ValidationError

from benchmarks.measurement import Side, Unit
from benchmarks.results import Machine, Results, ResultsError

#: By how much a figure may differ between two runs before that counts as a change. A busy machine makes more of it.
TOLERANCE = 0.2


class Past(BaseModel):
    """What was measured of one subject: medians, and what the floor was."""

    unit: Unit
    floor: str
    medians: dict[Side, float]


class Entry(BaseModel):
    """A line of the history."""

    date: str
    version: str
    commit: str
    rounds: int
    machine: Machine
    measured: dict[str, Past]

    @property
    def title(self) -> str:
        """The run, for people."""
        return f"{self.version} ({self.commit or 'no commit'}, {self.date})"


@dataclass(frozen=True)
class Change:
    """A figure that differs between two runs by more than the tolerance.

    Attributes:
        name: The measurement.
        what: What was compared: the ratio to the floor, or the figure itself.
        times: How many times worse it became; less than 1 if it became better.
    """

    name: str
    what: str
    times: float

    @property
    def regression(self) -> bool:
        """Whether it became worse."""
        return self.times > 1

    def __str__(self) -> str:
        better_or_worse = "worse" if self.regression else "better"
        return f"{self.name}: {self.what} {max(self.times, 1 / self.times):.2f} times {better_or_worse}"


def entry(results: Results) -> Entry:
    """Returns the line for a run."""
    measured: dict[str, Past] = {}
    for row in results.rows:
        medians: dict[Side, float] = {}
        for side in row.samples:
            if (median := row.median(side)) is not None:
                medians[side] = float(f"{median:.4g}")
        measured[row.name] = Past(unit=row.unit, floor=row.floor, medians=medians)
    return Entry(
        date=results.date,
        version=results.versions["ipybox"],
        commit=results.commit,
        rounds=results.rounds,
        machine=results.machine,
        measured=measured,
    )


def record(path: Path, results: Results) -> None:
    """Adds a run to a history.

    Raises:
        ResultsError: If the run was a quick one, or the history contains that commit already or can't be read.
    """
    if results.quick:
        raise ResultsError("a quick run is not recorded: its figures mean little")
    new = entry(results)
    if any(old.commit == new.commit for old in read_history(path)):
        raise ResultsError(f"{path} has a line for commit {new.commit or 'of no checkout'} already: remove it first")
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(new.model_dump(), ensure_ascii=False) + "\n")


def read_history(path: Path) -> list[Entry]:
    """Returns the lines of a history, oldest first; none if the file does not exist.

    Raises:
        ResultsError: If a line is not one of a history.
    """
    if not path.exists():
        return []
    entries: list[Entry] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            entries.append(Entry.model_validate_json(line))
        except ValidationError as exc:
            raise ResultsError(f"{path}:{number}: {exc.errors(include_url=False)[0]['msg']}") from exc
    return entries


def compare(before: Entry, now: Entry, tolerance: float = TOLERANCE) -> list[Change]:
    """Returns what changed between two runs by more than the tolerance, the worst first.

    Ratios to the floor of the same run are compared, because absolute figures depend on the machine. Where a
    measurement has no floor, or another one than before, figures are compared if the machine is the same.
    """
    changes: list[Change] = []
    for name, present in now.measured.items():
        past = before.measured.get(name)
        if past is None or past.unit != present.unit:
            continue
        found = _times(past, present, same_machine=before.machine == now.machine)
        if found is not None and not 1 / (1 + tolerance) <= found[1] <= 1 + tolerance:
            changes.append(Change(name, *found))
    return sorted(changes, key=lambda change: -change.times)


def last_before(entries: Sequence[Entry], results: Results) -> Entry | None:
    """Returns the last line before that of a run, or the last of all if the run is not recorded; None without one."""
    earlier = [*takewhile(lambda each: each.commit != results.commit, entries)]
    return earlier[-1] if earlier else None


def _times(past: Past, present: Past, same_machine: bool) -> tuple[str, float] | None:
    """Returns what can be compared, and how many times worse it became; None if nothing can."""
    before, now = past.medians.get("ipybox"), present.medians.get("ipybox")
    if not before or not now:
        return None
    floor_before, floor_now = past.medians.get("floor"), present.medians.get("floor")
    if past.floor == present.floor and floor_before and floor_now:
        what, times = "relative to the floor", (now / floor_now) / (before / floor_before)
    elif same_machine:
        what, times = "as a figure", now / before
    else:
        return None
    return what, 1 / times if present.unit == "calls/s" else times
