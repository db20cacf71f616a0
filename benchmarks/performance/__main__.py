"""The command line: `python -m benchmarks.performance`."""

import argparse
import sys
from pathlib import Path

from benchmarks.measurement import SHOWN, Group
from benchmarks.performance.page import page
from benchmarks.performance.plots import plot
from benchmarks.results import Results, ResultsError, read_results

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Writes docs/performance.md and its plots."""
    arguments = argparse.ArgumentParser(
        prog="python -m benchmarks.performance", description="Shows the results of `python -m benchmarks --json FILE`."
    )
    arguments.add_argument("results", type=Path)
    arguments.add_argument("--docs", type=Path, default=ROOT / "docs", metavar="DIR", help="where (default: docs)")
    given = arguments.parse_args()
    try:
        write(read_results(given.results), given.docs)
    except (ResultsError, OSError) as exc:
        print(f"benchmarks.performance: {exc}", file=sys.stderr)
        sys.exit(2)


def write(results: Results, docs: Path) -> None:
    """Writes the page and a plot of each group.

    Raises:
        OSError: If a file can't be written.
    """
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
    (docs / "performance.md").write_text(page(results, links), encoding="utf-8")


if __name__ == "__main__":
    main()
