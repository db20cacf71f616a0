"""The results as a table and as JSON."""

import os
import platform
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.measurement import Measurement, Samples, Target, Unit

Result = tuple[Measurement, Samples]


def table(results: Sequence[Result]) -> Table:
    """Returns a table with a row for each result; figures are medians."""
    peer = any("peer" in samples.values for _, samples in results)
    view = Table(box=box.SIMPLE_HEAD)
    view.add_column("name", style="cyan")
    view.add_column("what")
    for heading in ("floor", "ipybox", "relative", "target"):
        view.add_column(heading, justify="right")
    view.add_column("")
    if peer:
        view.add_column("peer", justify="right")
    view.add_column("the floor is", style="dim")
    for measurement, samples in results:
        unit = measurement.unit
        ours, floor = samples.median("ipybox"), samples.median("floor")
        met = verdict(measurement, samples)
        cells = [
            measurement.name,
            measurement.what,
            figure(floor, unit),
            f"[bold]{figure(ours, unit)}[/]",
            comparison(measurement, ours, floor),
            describe(measurement.target),
            "" if met is None else "[green]✓[/]" if met else "[red]✗[/]",
            *([figure(samples.median("peer"), unit)] if peer else []),
            measurement.floor,
        ]
        view.add_row(*cells)
    return view


def record(results: Sequence[Result], versions: str) -> dict[str, Any]:
    """Returns everything that was measured, for a JSON file."""
    return {
        "versions": versions,
        "machine": machine(),
        "measurements": [
            {
                "name": measurement.name,
                "what": measurement.what,
                "floor": measurement.floor,
                "unit": measurement.unit,
                "target": describe(measurement.target),
                "met": verdict(measurement, samples),
                "medians": {side: samples.median(side) for side in samples.values},
                "samples": samples.values,
                "remarks": samples.remarks,
            }
            for measurement, samples in results
        ],
    }


def verdict(measurement: Measurement, samples: Samples) -> bool | None:
    """Returns whether ipybox is within its target; None without a target."""
    ours = samples.median("ipybox")
    if measurement.target is None or ours is None:
        return None
    return measurement.target.met(ours, samples.median("floor"))


def comparison(measurement: Measurement, ours: float | None, floor: float | None) -> str:
    """Returns how ipybox compares with the floor: a ratio, or a difference where the target is one."""
    if ours is None or floor is None:
        return ""
    if measurement.target is not None and measurement.target.seconds:
        sign = "+" if ours >= floor else "-"
        return sign + figure(abs(ours - floor), measurement.unit)
    return f"{ours / floor:.2f} ×"


def figure(value: float | None, unit: Unit) -> str:
    """Returns a figure with three digits that count, and its unit."""
    if value is None:
        return ""
    if unit == "calls/s":
        return f"{value:.0f} /s"
    if unit == "B":
        return f"{_three_digits(value / 1000)} kB"
    if value < 0.1:
        return f"{_three_digits(value * 1000)} ms"
    return f"{_three_digits(value)} s"


def describe(target: Target | None) -> str:
    """Returns a target in words."""
    if target is None:
        return ""
    terms = [f"{target.floors:g} × floor"] if target.floors not in (0, 1) else ["floor"] if target.floors else []
    if target.seconds:
        terms.append(f"{target.seconds:g} s" if target.seconds >= 0.1 else f"{target.seconds * 1000:g} ms")
    return f"≤ {' + '.join(terms)}"


def machine() -> str:
    """Returns what the figures were measured on."""
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    return f"medians; Python {platform.python_version()}, {os.cpu_count()} cores, {platform.platform()}, load {load}"


def _three_digits(value: float) -> str:
    return f"{value:.{max(0, 2 if value < 10 else 1 if value < 100 else 0)}f}"
