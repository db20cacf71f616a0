"""The results as a table for the terminal."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from benchmarks.figures import factor, figure
from benchmarks.machine import describe_machine
from benchmarks.results import Results, Row


def table(rows: Sequence[Row]) -> Table:
    """Returns a table with a row for each result; figures are medians."""
    peer = any("peer" in row.samples for row in rows)
    view = Table(box=box.SIMPLE_HEAD)
    view.add_column("name", style="cyan")
    view.add_column("what")
    for heading in ("floor", "ipybox", "relative", *(("peer", "relative") if peer else ()), "target"):
        view.add_column(heading, justify="right")
    view.add_column("")
    view.add_column("the floor is", style="dim")
    for row in rows:
        view.add_row(
            row.name,
            row.what,
            figure(row.median("floor"), row.unit),
            f"[bold]{figure(row.median('ipybox'), row.unit)}[/]",
            factor(row.ratio("floor")),
            *([figure(row.median("peer"), row.unit), factor(row.ratio("peer"))] if peer else []),
            ", ".join(limit.text for limit in row.limits),
            "" if row.met is None else "[green]✓[/]" if row.met else "[red]✗[/]",
            row.floor,
        )
    return view


def remarks(results: Results) -> list[str]:
    """Returns what else there is to say, line by line."""
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    return [
        f"{versions}; medians; {describe_machine(results.machine)}, load {results.load:.1f}",
        *(f"{row.name}: {remark}" for row in results.rows for remark in row.remarks),
        *(f"{each.name}: not measured: {each.reason}" for each in results.missing),
    ]
