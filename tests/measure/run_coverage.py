"""Runs tests, measures which lines and branches of ipybox they run in all processes, and reports.

    python -m tests.measure.run_coverage [--keep] [arguments of pytest]

While this runs, each Python process of this virtual environment is measured: run nothing else in it.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

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
    start = f"exec(compile(open({str(ROOT / 'tests/measure/start.py')!r}).read(), 'start.py', 'exec'), {names!r})"
    PTH.write_text(f"import sys; {start}\n")
    try:
        tested = subprocess.run([sys.executable, "-m", "pytest", *(it for it in arguments if it != "--keep")], cwd=ROOT)
    finally:
        PTH.unlink()
    file = f"--data-file={DATA}/data"
    for command in (["combine", file, "--quiet", "--append", str(DATA)], ["report", file], ["json", file, "-o", JSON]):
        subprocess.run([sys.executable, "-m", "coverage", *command], cwd=ROOT)
    return tested.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
