"""The demo, as a user runs it: `make demo` with the sandbox, and `ipybox demo` where `srt` is not installed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import ROOT

PROGRAMS = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"


#: What README.md has people run, in this environment.
MAKE = ("make", "--no-print-directory", "-C", str(ROOT), "demo", f"VENV={sys.prefix}")


def run_demo(directory: Path, path: str = PROGRAMS) -> subprocess.CompletedProcess[str]:
    return run(directory, path, sys.executable, "-m", "ipybox", "demo", "--workspace", str(directory))


def run(directory: Path, path: str, *command: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": path, "HOME": str(directory.parent), "COLUMNS": "100"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)


@pytest.mark.kernel
@pytest.mark.sandbox
def test_demo_compares_tokens_and_shows_an_approval_a_denial_and_a_plot(tmp_path: Path):
    workspace = tmp_path / "demo"
    done = run(workspace, PROGRAMS, *MAKE, f"ARGS=--workspace {workspace}")

    assert done.returncode == 0, done.stderr
    (by_tools,) = re.findall(r"41 JSON tool calls .* ([\d,]+) │", done.stdout)
    (by_code,) = re.findall(r"2 cells of code .* ([\d,]+) │", done.stdout)
    assert int(by_code.replace(",", "")) * 20 < int(by_tools.replace(",", ""))
    assert "approval requested  git.git_create_branch(" in done.stdout
    assert "git_show(repo_path" not in done.stdout, "the rules allow it without a request"
    assert f"The sandbox refused to write {tmp_path}/.bashrc" in done.stdout.replace("\n", " ").replace("  ", " ")
    (plot,) = (workspace / "images").glob("*.png")
    assert str(plot) in done.stdout
    assert not (tmp_path / ".bashrc").exists()


#: Runs the demo as if the extra were not installed.
WITHOUT_EXTRA = """
from ipybox import demo
from ipybox.cli.command import main
demo.find_spec = lambda module: None
main()
"""


@pytest.mark.kernel
@pytest.mark.slow
def test_demo_runs_without_srt_and_gets_what_it_needs_from_the_index_without_the_extra(tmp_path: Path):
    workspace = tmp_path / "demo"
    command = (sys.executable, "-c", WITHOUT_EXTRA, "demo", "--workspace", str(workspace))
    done = run(workspace, PROGRAMS, *command)

    assert done.returncode == 0, done.stderr
    assert "srt is not on PATH: install it with" in done.stdout
    assert (workspace / "mcptools" / "git").is_dir()
    assert "matplotlib" in done.stdout.partition("5. Variables persist")[2].partition("import")[0]
    assert len([*(workspace / "images").glob("*.png")]) == 1


@pytest.mark.kernel
def test_demo_ends_quietly_once_nobody_reads_its_output(tmp_path: Path):
    command = [sys.executable, "-m", "ipybox", "demo", "--workspace", str(tmp_path / "demo")]
    env = {**os.environ, "PATH": PROGRAMS, "HOME": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()

    assert (process.returncode, errors) == (1, "")


def test_demo_names_what_it_needs(tmp_path: Path):
    done = run_demo(tmp_path / "demo", str(tmp_path))

    assert (done.returncode, done.stdout) == (1, "The demo needs git.\n")
    assert not (tmp_path / "demo").exists()
