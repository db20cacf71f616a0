"""The part of `docs/benchmarks.md` about speed and memory, from the results of a run."""

from collections.abc import Iterator

from benchmarks.figures import figure
from benchmarks.results import Results, Row

INTRODUCTION = """\
{quick}Medians of {rounds} on {date}: {processor}, {cores} cores, {memory}, {system},
Python {python}, ipybox {ipybox}{commit}, {packages}.

![ipybox and ipybox 0.9.2, relative to the same work without ipybox](pictures/speed.svg)

| measured | ipybox | without ipybox | ipybox {peer} |
| --- | --- | --- | --- |
"""

QUICK = "**A quick run, to see that everything works: its figures mean little.** "


def part(results: Results) -> str:
    """Returns the facts of the run, the plot, and a table with a row for each measurement, in Markdown."""
    return "".join([_introduction(results), *map(_line, results.rows), *_remarks(results)])


def _introduction(results: Results) -> str:
    on, versions = results.machine, results.versions
    packages = ", ".join(f"{name} {version}" for name, version in versions.items() if name not in ("ipybox", "peer"))
    return INTRODUCTION.format(
        quick=QUICK if results.quick else "",
        rounds="one round" if results.rounds == 1 else f"{results.rounds} rounds",
        date=results.date,
        **on.model_dump(),
        ipybox=versions["ipybox"],
        commit=f" (commit {results.commit})" if results.commit else "",
        packages=packages,
        peer=versions.get("peer", "0.9.2 (not measured)"),
    )


def _line(row: Row) -> str:
    def of(value: float | None) -> str:
        return figure(value, row.unit)

    floor = f"{of(row.median('floor'))} ({row.floor})"
    cells = [row.what, of(row.median("ipybox")), floor, of(row.median("peer"))]
    return f"| {' | '.join(cells)} |\n"


def _remarks(results: Results) -> Iterator[str]:
    peer = results.versions.get("peer", "")
    remarks = [f"- {row.what}: {remark.replace('peer', peer)}\n" for row in results.rows for remark in row.remarks]
    remarks += [f"- {each.what}: not measured, {each.reason}\n" for each in results.missing]
    yield from ["\n", *remarks] if remarks else []
