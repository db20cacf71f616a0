"""What keeps a machine from running code."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ipybox.cli.doctor import examine_modes
from ipybox.sandbox import findings
from ipybox.sandbox.findings import environment_findings
from tests.sandbox.test_preflight import NEEDED, replace
from tests.servers import ROOT, WAIT

#: The PATH of the tests themselves.
PATH = os.environ["PATH"]

SANDBOX = (*NEEDED, "sh", "env")


def path_in(place: Path, patch: pytest.MonkeyPatch) -> Path:
    """Makes an empty directory that is PATH."""
    directory = place / "bin"
    directory.mkdir()
    patch.setenv("PATH", str(directory))
    return directory


#: What a docker does whose daemon answers.
DAEMON = """echo '[1, [], null, "28.2.1"]'"""


def fill(directory: Path) -> Path:
    """Puts all that the sandbox needs into a directory."""
    for name in SANDBOX:
        real = shutil.which(name, path=PATH)
        assert real is not None, f"these tests need {name}"
        (directory / name).symlink_to(os.path.abspath(real))
    return directory


def docker_program(directory: Path, answer: str) -> None:
    """Puts a docker command on PATH that does this when it is asked for the daemon."""
    replace(
        directory, "docker", f"case $1 in --version) echo Docker version 28.2.2, build e6534b4 ;; *) {answer} ;; esac"
    )


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is PATH, and empty."""
    return path_in(tmp_path, monkeypatch)


@pytest.fixture
def sandbox(directory: Path) -> Path:
    """A directory that is PATH, with all that the sandbox needs."""
    return fill(directory)


def test_there_are_no_problems_where_all_is_well(sandbox: Path):
    docker_program(sandbox, DAEMON)
    found = asyncio.run(examine_modes())
    assert [finding for mode in ("plain", "sandbox", "docker") for finding in found[mode] if finding.problem] == []


def test_problems_are_one_line_each(directory: Path):
    found = asyncio.run(examine_modes())
    lines = {mode: [str(finding) for finding in examined if finding.problem] for mode, examined in found.items()}
    assert lines["plain"] == []
    assert [line.split()[0] for line in lines["sandbox"]] == list(NEEDED)
    assert [line.split()[0] for line in lines["docker"]] == ["docker"]
    assert not any("\n" in line for each in lines.values() for line in each)


def test_it_runs_before_anything_is_installed(tmp_path: Path):
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from ipybox.docker.request import container_options
from ipybox.sandbox.preflight import diagnose
print(len([finding for finding in diagnose() if finding.problem]))
"""
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", code],
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(NEEDED)


def test_a_python_without_environments_needs_uv(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(findings, "ENVIRONMENT_MODULES", ("venv", "no_such_module"))
    problem = "uv not found, and this Python can't create environments without no_such_module"

    (finding,) = environment_findings()
    assert str(finding) == f"{problem}: install it with `pip install uv`; it starts the Claude Code plugins"
    replace(directory, "apt-get", "exit 1")
    (finding,) = environment_findings()
    assert str(finding) == f"{problem}: install it with `apt-get install python3-venv` as root"


def test_environments_are_no_matter_where_uv_is(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(findings, "ENVIRONMENT_MODULES", ("no_such_module",))
    replace(directory, "uv", "echo uv 0.9.1")

    assert environment_findings() == []
