import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ipybox.cli.doctor import doctor
from ipybox.docker import engine
from ipybox.support import probe as probing
from tests.cli.test_diagnosis import docker_program, fill, path_in
from tests.sandbox.test_preflight import NEEDED, replace
from tests.servers import WAIT

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


def test_the_plain_mode_needs_nothing_but_python(directory: Path, capsys: pytest.CaptureFixture[str]):
    assert doctor() == 0
    output = capsys.readouterr().out
    assert f"ok       python           {'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})\n" in output
    assert "missing  srt\n" in output
    assert "missing  docker\n" in output
    assert "plain mode: works\n" in output
    assert "sandbox mode: can't work\n  srt is not on PATH: install it with `npm install -g " in output
    assert "docker mode: can't work\n  docker is not on PATH: install " in output
    assert "also missing:\n  uv is not on PATH: install it with `pip install uv`" in output


def test_a_sandbox_is_started_if_it_is_asked_for(sandbox: Path, capsys: pytest.CaptureFixture[str]):
    assert doctor(sandbox=True) == 0
    output = capsys.readouterr().out
    assert "ok       sandbox          starts, and holds\n" in output
    assert "sandbox mode: works\n" in output


def test_no_sandbox_is_started_if_it_is_not_asked_for(sandbox: Path, capsys: pytest.CaptureFixture[str]):
    assert doctor() == 0
    output = capsys.readouterr().out
    assert "starts, and holds" not in output
    assert "sandbox mode: nothing is missing; --sandbox tries it\n" in output


@pytest.mark.parametrize("name", NEEDED)
def test_a_sandbox_that_lacks_something_can_not_work(sandbox: Path, name: str, capsys: pytest.CaptureFixture[str]):
    (sandbox / name).unlink()
    assert doctor(sandbox=True) == 1
    assert f"sandbox mode: can't work\n  {name} is not on PATH: " in capsys.readouterr().out


def test_docker_works_if_its_daemon_answers(directory: Path, capsys: pytest.CaptureFixture[str]):
    docker_program(directory, "echo 28.2.1")
    assert doctor(docker=True) == 0
    output = capsys.readouterr().out
    assert f"ok       docker           28.2.2 ({directory}/docker)\nok       docker daemon    28.2.1\n" in output
    assert "docker mode: works\n" in output


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(
            f"echo '{DAEMON_DOWN}' >&2; exit 1",
            f"the Docker daemon can't be reached ({DAEMON_DOWN}): start Docker Desktop, or run ",
            id="down",
        ),
        pytest.param(
            f"echo '{NOT_PERMITTED}' >&2; exit 1",
            "this user may not talk to the Docker daemon: run `usermod -aG docker USER` as root",
            id="permission",
        ),
        pytest.param(
            "exec /bin/sleep 1000", "the Docker daemon does not answer within 0.3 s: restart Docker", id="hanging"
        ),
    ],
)
def test_docker_can_not_work_without_its_daemon(
    directory: Path,
    answer: str,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(engine, "DAEMON_TIMEOUT", 0.3)
    docker_program(directory, answer)
    assert doctor(docker=True) == 1
    output = capsys.readouterr().out
    assert "broken   docker daemon " in output
    assert f"docker mode: can't work\n  {problem}" in output


def test_what_is_not_asked_for_is_a_remark(directory: Path):
    docker_program(directory, "exit 1")
    assert doctor() == 0
    assert doctor(docker=True) == 1


def test_programs_that_hang_cost_one_bound_and_not_one_each(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(probing, "PROBE_TIMEOUT", 1.0)
    hanging = (*NEEDED[1:], "docker", "uv", "claude")
    for name in hanging:
        replace(directory, name, "exec /bin/sleep 1000")
    start = time.monotonic()
    assert doctor(sandbox=True) == 1
    assert time.monotonic() - start < len(hanging) / 2
    assert capsys.readouterr().out.count("broken ") >= len(hanging)


def test_output_can_be_piped_everywhere(directory: Path):
    replace(directory, "uv", r"printf '\033[31mKaputt \303\274\n' >&2; exit 1")
    code = "import sys; from ipybox.cli.doctor import doctor; sys.exit(doctor())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        timeout=WAIT,
        check=False,
        env={**os.environ, "PATH": str(directory), "PYTHONIOENCODING": "ascii", "COLUMNS": "40"},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode("ascii").splitlines()
    assert not any(character < " " for line in lines for character in line)
    assert "  uv is broken, it exits with 1: \\u001b[31mKaputt ?: install it with `pip install uv`, " in "\n".join(
        lines
    )
