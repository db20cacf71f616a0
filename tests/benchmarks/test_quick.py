"""A quick run of measurements that docs/benchmarks.md shows: they work, and the page shows their results.

`make bench-quick` runs all of them, which takes three times as long.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.results import read_results
from tests.servers import ROOT

# It runs kernels in both modes, as processes of the benchmark.
pytestmark = [pytest.mark.kernel, pytest.mark.sandbox]

#: As few as run each subject but the growth by sessions, which takes longest.
MEASURED = (
    "import",
    "generate-running",
    "output-linear",
    "mcp-cell",
    "mcp-memory",
    "sandbox-tool-call",
)

#: Seconds that the run may take on a busy machine.
LIMIT = 400


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a program of the benchmarks."""
    path = f"{ROOT / '.npm/node_modules/.bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def test_the_page_shows_what_a_quick_run_has_measured(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    measured = run("benchmarks", "--quick", "--json", results, "--only", *MEASURED)
    assert measured.returncode == 0, measured.stdout + measured.stderr

    found = read_results(results)
    # Processes that protect themselves show their memory to root only.
    possible = () if os.geteuid() == 0 else ("mcp-memory",)
    assert [each for each in found.missing if each.name not in possible] == []
    assert sorted(each.name for each in [*found.rows, *found.missing]) == sorted(MEASURED)
    for row in found.rows:
        assert all(value > 0 for side in ("ipybox", "floor") for value in row.samples[side]), row.name
        assert all(limit.holds is not None or "peer" in limit.text for limit in row.limits), row.name

    written = run("benchmarks.performance", results, "--docs", tmp_path)
    assert written.returncode == 0, written.stderr
    page = (tmp_path / "benchmarks.md").read_text()
    assert all(f"\n| {row.what} |" in page for row in found.rows)
