"""The command line: `python -m benchmarks.performance`."""

import argparse
import sys
from itertools import pairwise
from pathlib import Path

from benchmarks.measurement import SHOWN, Group
from benchmarks.performance.history import Change, compare, entry, last_before, read_history, record
from benchmarks.performance.page import page
from benchmarks.performance.plots import plot
from benchmarks.results import Results, ResultsError, read_results

ROOT = Path(__file__).parents[2]
HISTORY = ROOT / "benchmarks" / "history.jsonl"


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    arguments = argparse.ArgumentParser(
        prog="python -m benchmarks.performance", description="Shows the results of `python -m benchmarks --json FILE`."
    )
    arguments.add_argument("--history", type=Path, default=HISTORY, metavar="FILE", help="(default: history.jsonl)")
    commands = arguments.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="write docs/performance.md and its plots")
    write.add_argument("results", type=Path)
    write.add_argument("--docs", type=Path, default=ROOT / "docs", metavar="DIR", help="where to write (default: docs)")
    add = commands.add_parser("record", help="add the medians to the history, as for a release")
    add.add_argument("results", type=Path)
    changes = commands.add_parser("compare", help="list what changed; the exit status is 1 if anything became worse")
    changes.add_argument(
        "results", type=Path, nargs="?", help="compare with the last line before it (default: each line)"
    )
    return arguments


def main() -> None:
    """Does what the command line asks for."""
    arguments = parser().parse_args()
    try:
        match arguments.command:
            case "write":
                write(read_results(arguments.results), arguments.docs, arguments.history)
            case "record":
                record(arguments.history, read_results(arguments.results))
            case _:
                results = None if arguments.results is None else read_results(arguments.results)
                sys.exit(1 if print_changes(arguments.history, results) else 0)
    except (ResultsError, OSError) as exc:
        print(f"benchmarks.performance: {exc}", file=sys.stderr)
        sys.exit(2)


def write(results: Results, docs: Path, history: Path) -> None:
    """Writes the page and a plot of each group.

    Raises:
        ResultsError: If the history can't be read.
        OSError: If a file can't be written.
    """
    earlier = last_before(read_history(history), results)
    folder = docs / "performance"
    folder.mkdir(exist_ok=True)
    links: dict[Group, str] = {}
    for group in SHOWN:
        file = folder / f"{group.lower().replace(' ', '-')}.svg"
        rows = [row for row in results.rows if row.group == group]
        if rows:
            file.write_text(plot(rows), encoding="utf-8")
            links[group] = f"performance/{file.name}"
        else:
            file.unlink(missing_ok=True)
    changes = [] if earlier is None else compare(earlier, entry(results))
    (docs / "performance.md").write_text(page(results, links, earlier, changes), encoding="utf-8")


def print_changes(history: Path, results: Results | None) -> bool:
    """Prints what changed from one run to the next, and returns whether anything became worse in the last step.

    Raises:
        ResultsError: If the history can't be read.
    """
    entries = read_history(history)
    if results is not None:
        earlier = last_before(entries, results)
        entries = [*([] if earlier is None else [earlier]), entry(results)]
    found: list[Change] = []
    for before, now in pairwise(entries):
        found = compare(before, now)
        print(f"{before.title} → {now.title}:")
        print("\n".join(f"  {change}" for change in found) or "  no change beyond the noise")
    if len(entries) < 2:
        print("There is nothing to compare: the history needs another run.")
    return any(change.regression for change in found)


if __name__ == "__main__":
    main()
