"""The command line: `python -m benchmarks.performance`."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.page import DOCS, replace_part
from benchmarks.performance.page import part
from benchmarks.performance.plots import plot
from benchmarks.report import table
from benchmarks.results import ResultsError, read_results


def main() -> None:
    """Writes the part of docs/benchmarks.md and its plot, and prints the results with their targets."""
    arguments = argparse.ArgumentParser(
        prog="python -m benchmarks.performance", description="Shows the results of `python -m benchmarks --json FILE`."
    )
    arguments.add_argument("results", type=Path)
    arguments.add_argument("--docs", type=Path, default=DOCS, metavar="DIR", help="where (default: docs)")
    given = arguments.parse_args()
    try:
        results = read_results(given.results)
        (given.docs / "pictures").mkdir(parents=True, exist_ok=True)
        (given.docs / "pictures" / "speed.svg").write_text(plot(results.rows), encoding="utf-8")
        replace_part(given.docs, "performance", part(results))
    except (ResultsError, OSError) as exc:
        print(f"benchmarks.performance: {exc}", file=sys.stderr)
        sys.exit(2)
    Console(width=None if sys.stdout.isatty() else 180).print(table(results.rows))


if __name__ == "__main__":
    main()
