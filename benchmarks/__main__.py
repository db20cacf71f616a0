"""The command line: `python -m benchmarks`."""

import argparse
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from benchmarks.measurement import Setting, Side
from benchmarks.report import Result, machine, record, table
from benchmarks.subject import SubjectError, installed
from benchmarks.suite import SUITE


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks", description="Compares ipybox with its floors.")
    arguments.add_argument("--rounds", type=int, default=5, metavar="N", help="how often the sides take turns")
    names = [measurement.name for measurement in SUITE]
    arguments.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"some of: {', '.join(names)}")
    arguments.add_argument("--peer", metavar="PYTHON", help="an interpreter that has an earlier ipybox, see README.md")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="where to write all samples")
    return arguments


def main() -> None:
    """Measures, and prints the table."""
    arguments = parser().parse_args()
    if arguments.rounds < 1:
        sys.exit("benchmarks: --rounds must be at least 1")
    interpreters: dict[Side, str] = {"ipybox": sys.executable}
    if arguments.peer is not None:
        interpreters["peer"] = _interpreter(arguments.peer)
    versions = _versions(interpreters)

    setting = Setting(arguments.rounds, interpreters)
    progress = Console(stderr=True)
    results: list[Result] = []
    for measurement in SUITE:
        if arguments.only is None or measurement.name in arguments.only:
            with progress.status(f"{measurement.name}: {measurement.what}"):
                results.append((measurement, measurement.measure(setting)))

    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table(results))
    console.print(f"{versions}; {machine()}", style="dim", highlight=False)
    for measurement, samples in results:
        for remark in samples.remarks:
            console.print(f"{measurement.name}: {remark}", highlight=False)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(record(results, versions), indent=1) + "\n", encoding="utf-8")


def _interpreter(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        sys.exit(f"benchmarks: no such interpreter: {name}")
    return str(Path(path).absolute())  # not resolved: the link is what makes it that of its venv


def _versions(interpreters: Mapping[Side, str]) -> str:
    """Returns which ipybox is measured on each side, having made sure that they are not the same one."""
    try:
        found = {side: installed(python) for side, python in interpreters.items()}
    except SubjectError as exc:
        sys.exit(f"benchmarks: {exc}")
    if len({origin for _, origin in found.values()}) < len(found):
        sys.exit("benchmarks: the peer's interpreter imports the very ipybox that it is to be compared with")
    return ", ".join(f"{side}: {version}" for side, (version, _) in found.items())


if __name__ == "__main__":
    main()
