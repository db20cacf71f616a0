"""`docs/performance.md`, from the results of a run."""

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.figures import factor, figure
from benchmarks.measurement import SHOWN, Group
from benchmarks.results import Results, Row

TITLES: dict[Group, str] = {
    "start": "Start",
    "cells": "Cells and reset",
    "sessions": "Sessions",
    "tool calls": "Tool calls and registration",
    "data": "Data in bulk",
    "MCP server": "As an MCP server",
    "end": "End",
    "memory": "Memory",
    "age": "After many cells and calls",
    "sandbox": "In the sandbox",
}

HEADINGS = (
    "measured",
    "floor",
    "floor's p95",
    "ipybox",
    "p95",
    "÷ floor",
    "peer",
    "peer's p95",
    "÷ peer",
    "target",
    "holds",
)

INTRODUCTION = """\
# Performance

ipybox, the *floor* (the same without ipybox, with the library below) and the *peer* (ipybox {peer}), measured side
by side in one run. `make bench` writes this page. [benchmarks](../benchmarks/README.md) describes how it measures, and
what the floors are not.

- Figures are medians; the sides took turns in {rounds}. p95 is the value that 95 % of the samples don't exceed; of
  fewer than 20 samples it is the greatest. Ratios hold where absolute figures drift with the machine.
- In plots each bar begins at 0, and each row has a scale of its own.
- {limits}
"""

QUICK = """\
**This was a quick run**, to see that everything works: once, with less data and fewer repetitions than the descriptions
say. Its figures mean little.
"""


def page(results: Results, plots: Mapping[Group, str]) -> str:
    """Returns the page.

    Args:
        results: What it shows.
        plots: The link to the plot of each group.
    """
    parts = [
        INTRODUCTION.format(
            peer=results.versions.get("peer", "0.9.2, not measured in this run"),
            rounds="one round" if results.rounds == 1 else f"{results.rounds} rounds",
            limits=_limits(results.rows),
        ),
        *([QUICK] if results.quick else []),
        "\n".join(_facts(results)),
    ]
    for group in SHOWN:
        rows = [row for row in results.rows if row.group == group]
        if rows:
            parts.append("\n".join(_section(group, rows, plots.get(group))))
    if results.missing:
        parts.append("\n".join(_missing(results)))
    return "\n".join(parts)


def _facts(results: Results) -> Iterator[str]:
    on, versions = results.machine, results.versions
    below = ", ".join(f"{name} {version}" for name, version in versions.items() if name not in ("ipybox", "peer"))
    commit = f", commit {results.commit}" if results.commit else ""
    yield "| | |"
    yield "| --- | --- |"
    yield f"| date | {results.date} |"
    yield f"| ipybox | {versions['ipybox']}{commit} |"
    yield f"| packages | {below} |"
    yield f"| machine | {on.processor}, {on.cores} cores, {on.memory} |"
    yield f"| system | {on.system}, Python {on.python} |"
    yield f"| load at the start | {results.load:.1f} |"
    yield f"| command | `{results.command}` |"
    yield ""


def _section(group: Group, rows: Sequence[Row], plot: str | None) -> Iterator[str]:
    yield f"## {TITLES[group]}"
    yield ""
    if plot is not None:
        yield f"![{TITLES[group]}: medians of floor, ipybox and peer]({plot})"
        yield ""
    shown = [number for number in range(len(HEADINGS)) if number < 6 or number > 8 or _has_peer(rows)]
    yield _line([HEADINGS[number] for number in shown])
    yield _line(["---"] * len(shown))
    for row in rows:
        cells = _cells(row)
        yield _line([cells[number] for number in shown])
    yield ""
    remarks = [f"- `{row.name}`: {remark}" for row in rows for remark in row.remarks]
    if remarks:
        yield from remarks
        yield ""


def _cells(row: Row) -> list[str]:
    def of(value: float | None) -> str:
        return figure(value, row.unit)

    floor = f"; floor: {row.floor}" if row.floor else ""
    return [
        f"{row.what} (`{row.name}`{floor})",
        of(row.median("floor")),
        of(row.p95("floor")),
        f"**{of(row.median('ipybox'))}**",
        of(row.p95("ipybox")),
        factor(row.ratio("floor")),
        of(row.median("peer")),
        of(row.p95("peer")),
        factor(row.ratio("peer")),
        ", ".join(limit.text for limit in row.limits),
        " ".join(_mark(limit.holds) for limit in row.limits),
    ]


def _missing(results: Results) -> Iterator[str]:
    yield "## Not measured"
    yield ""
    yield from (f"- {each.what} (`{each.name}`): {each.reason}" for each in results.missing)
    yield ""


def _limits(rows: Sequence[Row]) -> str:
    known = [limit.holds for row in rows for limit in row.limits if limit.holds is not None]
    return (
        f"{sum(known)} of the {len(known)} targets that could be compared hold (✓). "
        "[Why the others don't](decisions/019-missed-targets.md)."
    )


def _mark(holds: bool | None) -> str:
    return "–" if holds is None else "✓" if holds else "✗"


def _has_peer(rows: Sequence[Row]) -> bool:
    return any("peer" in row.samples for row in rows)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
