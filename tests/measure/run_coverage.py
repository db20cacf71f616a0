"""Runs tests, measures which lines and branches of ipybox they run in all processes, and reports.

    python -m tests.measure.run_coverage [--keep] [arguments of pytest]

While this runs, each Python process of this virtual environment is measured: run nothing else in it.
"""

import json
import shutil
import subprocess
import sys
import sysconfig
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DATA = ROOT / ".coverage-data"
JSON = f"{DATA}/report.json"
PTH = Path(sysconfig.get_path("purelib")) / "zz_ipybox_coverage.pth"

#: How each process is measured; without relative paths, as each has a working directory of its own.
RUN = """\
[run]
branch = true
data_file = {data}
source = {source}
parallel = true
sigterm = true
patch = _exit
"""


def main(arguments: list[str]) -> int:
    """Returns the exit status of pytest, or of the report if that says that too little is covered."""
    keep = "--keep" in arguments
    if not keep:
        shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir(exist_ok=True)
    (DATA / "coveragerc").write_text(RUN.format(data=DATA / "data", source=ROOT / "ipybox"))
    names = {"DATA": str(DATA), "ROOT": str(ROOT), "__name__": "ipybox_coverage"}
    text = str(ROOT / "tests/measure/start.py")
    start = f"exec(compile(pathlib.Path({text!r}).read_text(), 'start.py', 'exec'), {names!r})"
    PTH.write_text(f"import pathlib; {start}\n")
    try:
        tested = subprocess.run([sys.executable, "-m", "pytest", *(it for it in arguments if it != "--keep")], cwd=ROOT)
    finally:
        PTH.unlink()
    file = f"--data-file={DATA}/data"
    for command in (["combine", file, "--quiet", "--append", str(DATA)], ["report", file], ["json", file, "-o", JSON]):
        subprocess.run([sys.executable, "-m", "coverage", *command], cwd=ROOT)
    print_packages()
    return tested.returncode


def print_packages() -> None:
    """Prints how much of the lines and branches of ipybox is covered, of all and of each package."""
    files: dict[str, Any] = json.loads(Path(JSON).read_text())["files"]
    packages: dict[str, list[dict[str, int]]] = defaultdict(list)
    for file, found in files.items():
        path = (ROOT / file).relative_to(ROOT / "ipybox")
        for package in ("all", f"{path.parts[0]}/" if len(path.parts) > 1 else "other modules"):
            packages[package].append(found["summary"])
    for package, summaries in sorted(packages.items()):
        cells = [f"{package:16}"]
        for kind, covered, number in (
            ("lines", "covered_lines", "num_statements"),
            ("branches", "covered_branches", "num_branches"),
        ):
            done, total = (sum(each[key] for each in summaries) for key in (covered, number))
            cells.append(f"{done:6} of {total:6} {kind} {done / (total or 1):6.1%}")
        print(*cells)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
