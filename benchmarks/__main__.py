"""The command line: `python -m benchmarks`."""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks.machine import commit, machine, package_versions
from benchmarks.measurement import Measurement, Setting, Side, UnavailableError
from benchmarks.report import remarks, table
from benchmarks.results import Missing, Results, Row, row
from benchmarks.subject import SubjectError, installed
from benchmarks.suite import SUITE


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks", description="Compares ipybox with its floors.")
    arguments.add_argument("--rounds", type=int, default=5, metavar="N", help="how often the sides take turns")
    names = [measurement.name for measurement in SUITE]
    arguments.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"some of: {', '.join(names)}")
    arguments.add_argument("--quick", action="store_true", help="once, with less of all, to see that everything works")
    arguments.add_argument("--peer", metavar="PYTHON", help="an interpreter that has an earlier ipybox, see README.md")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="where to write all samples")
    return arguments


def main() -> None:
    """Measures, and prints the table; the exit status is 1 if a measurement failed."""
    arguments = parser().parse_args()
    if arguments.rounds < 1:
        sys.exit("benchmarks: --rounds must be at least 1")
    if arguments.json is not None and not arguments.json.parent.is_dir():
        sys.exit(f"benchmarks: {arguments.json.parent}: no such directory")
    interpreters: dict[Side, str] = {"ipybox": sys.executable}
    if arguments.peer is not None:
        interpreters["peer"] = _interpreter(arguments.peer)
    rounds = 1 if arguments.quick else arguments.rounds
    results = Results(
        date=datetime.now(UTC).date().isoformat(),
        command=_command(arguments),
        commit=commit(),
        rounds=rounds,
        quick=arguments.quick,
        load=os.getloadavg()[0],
        versions=_versions(interpreters),
        machine=machine(),
        rows=[],
        missing=[],
    )
    picked = [measurement for measurement in SUITE if arguments.only is None or measurement.name in arguments.only]
    try:
        _measure_all(picked, Setting(rounds, interpreters, arguments.quick), results)
    finally:
        # Also what was measured before a run that takes long is interrupted.
        if arguments.json is not None:
            arguments.json.write_text(results.model_dump_json() + "\n", encoding="utf-8")
    console = Console(width=None if sys.stdout.isatty() else 180)
    console.print(table(results.rows))
    for line in remarks(results):
        console.print(line, style="dim", highlight=False, markup=False)
    if any(each.failed for each in results.missing):
        sys.exit(1)


def _measure_all(measurements: Sequence[Measurement], setting: Setting, results: Results) -> None:
    """Adds what was measured, and what could not be, to the results."""
    progress = Console(stderr=True)
    for measurement in measurements:
        began = time.perf_counter()
        with progress.status(f"{measurement.name}: {measurement.what}"):
            outcome = _measure(measurement, setting, progress)
        progress.print(f"{measurement.name}: measured in {time.perf_counter() - began:.1f} s", highlight=False)
        if isinstance(outcome, Row):
            results.rows.append(outcome)
        else:
            results.missing.append(outcome)


def _measure(measurement: Measurement, setting: Setting, progress: Console) -> Row | Missing:
    """Returns what was measured. A failure does not cost the other measurements of a run that takes long.

    If the peer may be the cause, it is measured again without the peer.
    """
    try:
        return row(measurement, measurement.measure(setting))
    except UnavailableError as exc:
        return Missing(name=measurement.name, what=measurement.what, reason=str(exc), failed=False)
    except SubjectError as exc:
        # Only here, because the last words of a process name files of the machine, and results are published.
        progress.print(f"{measurement.name} failed: {exc}", highlight=False, markup=False)
        if "peer" in setting.interpreters:
            ours: dict[Side, str] = {"ipybox": setting.interpreters["ipybox"]}
            return _measure(measurement, replace(setting, interpreters=ours), progress)
        return Missing(name=measurement.name, what=measurement.what, reason="a process failed", failed=True)


def _command(arguments: argparse.Namespace) -> str:
    """Returns the command without names of files."""
    words = ["python -m benchmarks", *([] if arguments.quick else [f"--rounds {arguments.rounds}"])]
    words += [f"--only {' '.join(arguments.only)}"] if arguments.only else []
    words += ["--quick"] if arguments.quick else []
    words += ["--peer PYTHON"] if arguments.peer is not None else []
    return " ".join(words)


def _interpreter(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        sys.exit(f"benchmarks: no such interpreter: {name}")
    return str(Path(path).absolute())  # not resolved: the link is what makes it that of its venv


def _versions(interpreters: dict[Side, str]) -> dict[str, str]:
    """Returns which ipybox is measured on each side, and what is below; exits if both sides are the same one."""
    try:
        found = {side: installed(python) for side, python in interpreters.items()}
    except SubjectError as exc:
        sys.exit(f"benchmarks: {exc}")
    if len({origin for _, origin in found.values()}) < len(found):
        sys.exit("benchmarks: the peer's interpreter imports the very ipybox that it is to be compared with")
    return {side: version for side, (version, _) in found.items()} | package_versions()


if __name__ == "__main__":
    main()
