"""The command line: `python -m benchmarks.scaling measure` and `write`."""

import argparse
import asyncio
import sys
from pathlib import Path

from benchmarks.scaling.figures import FILE, FiguresError, read_figures

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Does what the command line asks for."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description="How far one host goes.")
    arguments.add_argument("command", choices=("measure", "write"), help="measure this machine, or write the page")
    arguments.add_argument("--file", type=Path, default=FILE, help="the measurement (default: benchmarks/scaling.json)")
    arguments.add_argument("--docs", type=Path, default=ROOT / "dev", help="where to write (default: dev)")
    arguments.add_argument("--quick", action="store_true", help="with less of everything, to see that it works")
    given = arguments.parse_args()
    try:
        if given.command == "measure":
            from benchmarks.scaling.measure import main as measure

            asyncio.run(measure(given.file, given.quick))
        else:
            from benchmarks.scaling.page import write

            write(read_figures(given.file), given.docs, quick=given.quick)
    except (FiguresError, OSError) as exc:
        sys.exit(f"benchmarks.scaling: {exc}")


main()
