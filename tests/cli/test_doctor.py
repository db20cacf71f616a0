import asyncio
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ipybox.cli.doctor import doctor, examine_modes
from ipybox.docker import engine
from ipybox.support import probe as probing
from tests.cli.test_diagnosis import DAEMON, docker_program, fill, path_in
from tests.cli.test_parsing import run
from tests.sandbox.test_preflight import NEEDED, package, replace
from tests.servers import WAIT

pytestmark = pytest.mark.kernel

DAEMON_DOWN = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
NOT_PERMITTED = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is PATH, and empty."""
    return path_in(tmp_path, monkeypatch)


@pytest.fixture
def sandbox(directory: Path) -> Path:
    """A directory that is PATH, with all that the sandbox needs."""
    return fill(directory)


def asked(*, sandbox: bool = False, docker: bool = False) -> int:
    return doctor(Path(), sandbox=sandbox, docker=docker, as_json=False)


def test_the_plain_mode_needs_nothing_but_python(directory: Path, capsys: pytest.CaptureFixture[str]):
    assert asked() == 0
    output = capsys.readouterr().out
    python = f"{'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})"
    assert re.search(rf"^ok +plain +python +{re.escape(python)}$", output, re.MULTILINE)
    assert re.search(r"^ok +plain +kernel +runs a cell$", output, re.MULTILINE)
    assert re.search(r"^missing +sandbox +srt$", output, re.MULTILINE)
    assert re.search(r"^missing +docker +docker$", output, re.MULTILINE)
    assert "plain mode: works (a kernel ran a cell)\n" in output
    assert "sandbox mode: can't work\n  srt is not on PATH: install it with `npm install -g " in output
    assert "docker mode: can't work\n  docker is not on PATH: install " in output
    assert "other problems:\n  uv is not on PATH: install it with `pip install uv`" in output


def test_a_home_that_can_not_be_read_is_explained(tmp_path: Path):
    done = run("doctor", cwd=tmp_path, HOME=f"/{'x' * 300}", XDG_STATE_HOME="")  # also root gets an error from it

    assert done.returncode == 1
    assert b"plain mode: can't work\n  ipybox can't keep its state in /x" in done.stdout


@pytest.mark.sandbox
def test_a_kernel_runs_in_the_sandbox_of_the_doctor(sandbox: Path, capsys: pytest.CaptureFixture[str]):
    assert asked(sandbox=True) == 0
    output = capsys.readouterr().out
    assert re.search(r"^ok +sandbox +kernel +runs a cell$", output, re.MULTILINE)
    assert "sandbox mode: works (a kernel ran a cell, confined by the sandbox)\n" in output


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("command", "problem"),
    [
        pytest.param(
            'shift 3; exec "$@"', "srt lets code write outside the workspace: install it", id="isolates_nothing"
        ),
        pytest.param("echo Error: no >&2; exit 1", "Error: no", id="does_not_start"),
    ],
)
def test_an_srt_that_does_not_do_its_work_is_seen(
    sandbox: Path, command: str, problem: str, capsys: pytest.CaptureFixture[str]
):
    copy = package(sandbox, '{"version": "0.0.78"}')
    replace(copy / "dist", "cli.js", f"case $1 in --version) echo 0.0.78 ;; *) {command} ;; esac")

    assert asked(sandbox=True) == 1

    output = capsys.readouterr().out
    assert "sandbox mode: can't work\n" in output
    assert problem in output


def test_a_kernel_that_does_not_start_is_a_problem(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/state")

    assert asked() == 1

    output = capsys.readouterr().out
    assert "plain mode: can't work\n" in output
    assert "/dev/null/state" in output


def test_a_sandbox_that_lacks_something_can_not_work(sandbox: Path, capsys: pytest.CaptureFixture[str]):
    for name in NEEDED:
        (sandbox / name).unlink()
    assert asked(sandbox=True) == 1
    assert asked() == 0
    output = capsys.readouterr().out
    for name in NEEDED:
        assert f"  {name} is not on PATH: " in output


def test_docker_works_if_its_daemon_answers(directory: Path, capsys: pytest.CaptureFixture[str]):
    docker_program(directory, DAEMON)
    assert asked(docker=True) == 0
    output = capsys.readouterr().out
    assert f"28.2.2 ({directory}/docker)\n" in output
    assert re.search(r"^ok +docker +docker daemon +28\.2\.1$", output, re.MULTILINE)
    assert "docker mode: the daemon responds, and the image exists\n" in output


def test_programs_read_json(directory: Path, capsys: pytest.CaptureFixture[str]):
    assert doctor(Path(), sandbox=False, docker=False, as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert {mode: each["works"] for mode, each in found.items()} == {
        "plain": True,
        "sandbox": False,
        "docker": False,
        "other": False,
    }
    (docker,) = found["docker"]["findings"]
    assert docker == {
        "what": "docker",
        "found": None,
        "problem": "docker is not on PATH",
        "remedy": "install Docker Engine or Docker Desktop",
    }


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(
            f"echo '{DAEMON_DOWN}' >&2; exit 1",
            f"can't reach the Docker daemon ({DAEMON_DOWN}): start Docker Desktop, or run ",
            id="down",
        ),
        pytest.param(
            f"echo '{NOT_PERMITTED}' >&2; exit 1",
            "this user is not allowed to use the Docker daemon: run `usermod -aG docker USER` as root",
            id="permission",
        ),
        pytest.param(
            "exec /bin/sleep 1000", "the Docker daemon did not respond within 0.3 s: restart Docker", id="hanging"
        ),
    ],
)
def test_docker_can_not_work_without_its_daemon(
    directory: Path, answer: str, problem: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine, "DAEMON_TIMEOUT", 0.3)
    docker_program(directory, answer)

    client, daemon = asyncio.run(examine_modes(Path()))["docker"]

    assert client.problem is None
    assert (daemon.what, str(daemon).startswith(problem)) == ("docker daemon", True)


def test_programs_that_hang_cost_one_bound_and_not_one_each(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(probing, "PROBE_TIMEOUT", 1.0)
    hanging = (*NEEDED[1:], "docker", "uv", "claude")
    for name in hanging:
        replace(directory, name, "exec /bin/sleep 1000")
    start = time.monotonic()
    found = asyncio.run(examine_modes(Path()))
    assert time.monotonic() - start < len(hanging) / 2
    broken = [each for examined in found.values() for each in examined if each.problem and each.found]
    assert len(broken) >= len(hanging)


def test_output_can_be_piped_everywhere(directory: Path):
    replace(directory, "uv", r"printf '\033[31mKaputt \303\274\n' >&2; exit 1")
    done = subprocess.run(
        [sys.executable, "-m", "ipybox", "doctor"],
        capture_output=True,
        timeout=WAIT,
        check=False,
        env={**os.environ, "PATH": str(directory), "PYTHONIOENCODING": "ascii", "COLUMNS": "40"},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode("ascii").splitlines()
    assert not any(character < " " for line in lines for character in line)
    assert "  uv is broken: it exited with 1: \\u001b[31mKaputt \\xfc: install it with `pip install uv`; " in "\n".join(
        lines
    )
