"""What a run of the tests says and does where the programs of sandboxes are missing."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import which

import pytest

from tests.servers import NODE_MODULES, ROOT
from tests.suites import COMPLETE, may_have

#: Seconds for a run of a few tests, on a busy machine.
RUN_TIMEOUT = 120

#: Two tests with the mark `sandbox`, and a module without.
TESTS = (
    "tests/sandbox/test_preflight.py::test_path_of_this_process_is_searched_by_default",
    "tests/sandbox/test_preflight.py::test_srt_is_returned_when_everything_is_there",
    "tests/support/test_bounded_queue.py",
)

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs tests where bubblewrap, socat and ripgrep are not installed."""
    for name in ("bash", "which", "sh", "git", "env", "node", "apt-get"):
        if program := which(name):
            (tmp_path / name).symlink_to(program)

    def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(tmp_path), str(NODE_MODULES / ".bin")])
        return subprocess.run(
            # With directories of its own, or it might delete those of earlier runs, which takes minutes.
            [
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "no:cacheprovider",
                f"--basetemp={tmp_path}/made",
                *arguments,
                *TESTS,
            ],
            cwd=ROOT,
            env={"PATH": path, "HOME": str(tmp_path), **env},
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT,
            check=False,
        )

    return run


@pytest.mark.skipif(sys.platform != "linux", reason="macOS brings what the sandbox needs")
@pytest.mark.parametrize("processes", ["0", "2"])
def test_all_that_can_run_runs_and_the_last_line_says_what_could_not(run: Run, processes: str):
    done = run("--numprocesses", processes)
    assert done.returncode == 0, done.stdout
    assert re.search(r" [1-9]\d* passed, 2 skipped", done.stdout)
    assert done.stdout.splitlines()[-1] == (
        "2 tests of the sandbox were not run: sudo apt-get install bubblewrap socat ripgrep"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="macOS brings what the sandbox needs")
def test_nothing_may_be_left_out_in_ci(run: Run):
    done = run(**{COMPLETE: "1"})
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no test may be left out, but sandboxes can't start here: sudo apt-get install bubblewrap" in done.stderr


@pytest.mark.parametrize(
    ("expression", "placed", "imported"),
    [
        ("", {"slow"}, True),
        ("user and kernel", {"user"}, True),
        ("user and kernel", {"python"}, False),
        ("user or kernel", set[str](), True),
        ("not (slow or fuzz)", {"slow"}, False),
        ("not (slow or fuzz)", {"python"}, True),
        ("not (not (slow or fuzz)) and not cluster", set[str](), True),
        ("not (not (slow or fuzz)) and not cluster", {"cluster"}, False),
        ("not (not (fuzz or soak))", {"python"}, False),
        ("not (not (fuzz or soak))", {"fuzz"}, True),
    ],
)
def test_only_modules_are_imported_whose_tests_may_be_picked(expression: str, placed: set[str], imported: bool):
    assert may_have(expression, placed) == imported
