"""What people and clients are told, and how soon, if a container can't be had."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from ipybox.docker.engine import DAEMON_TIMEOUT, default_image, examine_engine
from tests.docker.conftest import readable_copy
from tests.servers import ROOT, WAIT

#: Seconds in which the reason must be reported: less than questions take that are asked one after the other.
SOON = 2 * DAEMON_TIMEOUT

#: Of nobody here, unless root starts the tests.
NOBODY = 65534


@dataclass(frozen=True)
class Told:
    """What a launcher that failed has said, and after how long."""

    message: str
    seconds: float


def told(workspace: Path, *options: str, **env: str) -> Told:
    """Starts a launcher that can't do its work, and returns what it says."""
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "ipybox", "docker", "--workspace", str(workspace), *options],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    seconds = time.monotonic() - start
    assert (done.returncode, done.stdout) == (1, "")
    (message,) = done.stderr.splitlines()
    return Told(message, seconds)


def problems() -> list[str]:
    """Returns what the doctor and the plugins say of Docker."""
    return [str(finding) for finding in examine_engine(default_image())[0] if finding.problem is not None]


@pytest.fixture
def daemon() -> Iterator[socket.socket]:
    """A socket at which nobody answers; its path is short enough for one."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{directory}/docker.sock")
        server.listen()
        yield server


def test_docker_is_not_there(tmp_path: Path):
    said = told(tmp_path, PATH=str(tmp_path))
    assert said.message == "ipybox: docker is not on PATH: install Docker Engine or Docker Desktop"
    assert said.seconds < SOON


@pytest.mark.parametrize(
    ("info", "inspect", "message"),
    [
        ("echo '{}}'", "true", "`docker info` printed unexpected output: '{}}\\n'"),
        ("""echo '[0, [], ["no route"], ""]'""", "true", "can't reach the Docker daemon (no route): start Docker"),
        (
            """echo '[0, [], null, "29"]'""",
            "echo 'no space left'; false",
            ": docker exited with 1: no space left",
        ),
    ],
    ids=["no JSON", "errors", "image"],
)
def test_a_docker_that_answers_something_else(tmp_path: Path, info: str, inspect: str, message: str):
    docker = tmp_path.with_name(f"{tmp_path.name}-bin") / "docker"  # not in the workspace
    docker.parent.mkdir()
    docker.write_text(f"#!/bin/sh\ncase $1 in info) {info} ;; image) {inspect} ;; *) exit 1 ;; esac\n")
    docker.chmod(0o755)

    assert message in told(tmp_path, PATH=f"{docker.parent}:/usr/bin:/bin").message


def test_the_daemon_is_not_there(tmp_path: Path, engine: None, monkeypatch: pytest.MonkeyPatch):
    host = f"unix://{tmp_path}/none.sock"
    said = told(tmp_path, DOCKER_HOST=host)
    assert said.message.startswith("ipybox: can't reach the Docker daemon (")
    assert host in said.message
    assert said.message.endswith("): start Docker Desktop, or run `systemctl start docker` as root")
    assert said.seconds < SOON

    monkeypatch.setenv("DOCKER_HOST", host)
    (line,) = problems()
    assert line == said.message.removeprefix("ipybox: ")


def test_the_daemon_does_not_answer(
    tmp_path: Path, engine: None, daemon: socket.socket, monkeypatch: pytest.MonkeyPatch
):
    host = f"unix://{daemon.getsockname()}"
    said = told(tmp_path, DOCKER_HOST=host)
    assert said.message == f"ipybox: the Docker daemon did not respond within {DAEMON_TIMEOUT:g} s: restart Docker"
    assert said.seconds < SOON

    monkeypatch.setenv("DOCKER_HOST", host)
    assert problems() == [said.message.removeprefix("ipybox: ")]


def test_the_daemon_is_not_for_this_user(engine: None, daemon: socket.socket):
    # It needs nothing but Python's standard library, so no environment either, which others may not be able to read.
    os.chmod(daemon.getsockname(), 0o000)
    os.chmod(Path(daemon.getsockname()).parent, 0o755)
    nobody = NOBODY if os.geteuid() == 0 else None
    with readable_copy() as (python, place):
        start = time.monotonic()
        done = subprocess.run(
            [python, "-S", "-m", "ipybox.docker", f"--workspace={place}"],
            cwd=place,
            env={"PATH": os.environ["PATH"], "HOME": str(place), "DOCKER_HOST": f"unix://{daemon.getsockname()}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
            user=nobody,
            group=nobody,
            extra_groups=[] if nobody else None,
        )
        assert time.monotonic() - start < SOON
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "ipybox: this user is not allowed to use the Docker daemon: run `usermod -aG docker USER` as root and log in "
        "again (this gives USER root permissions)\n"
    )


def test_the_image_is_not_there(tmp_path: Path, engine: None, monkeypatch: pytest.MonkeyPatch):
    how = f"build it with `IPYBOX_IMAGE=ipybox-none sh {ROOT / 'docker-build.sh'}`"
    said = told(tmp_path, "--image", "ipybox-none")
    assert said.message == f"ipybox: no Docker image named 'ipybox-none': {how}"
    assert said.seconds < SOON
    assert told(tmp_path, IPYBOX_IMAGE="ipybox-none").message == said.message

    monkeypatch.setenv("IPYBOX_IMAGE", "ipybox-none")
    assert problems() == [f"no Docker image named 'ipybox-none': {how}"]


def test_docker_can_not_make_the_container(tmp_path: Path, image: str):
    docker = tmp_path.with_name(f"{tmp_path.name}-bin") / "docker"  # not in the workspace
    docker.parent.mkdir()
    real = shutil.which("docker")
    docker.write_text(f'#!/bin/sh\n[ $1 = create ] && {{ echo no space left >&2; exit 1; }}\nexec {real} "$@"\n')
    docker.chmod(0o755)
    said = told(tmp_path, "--image", image, PATH=f"{docker.parent}:{os.environ['PATH']}")
    assert said.message == "ipybox: Docker can't create the container: no space left"


def test_a_variable_that_is_named_is_not_there(tmp_path: Path):
    said = told(tmp_path, "-e", "NO_SUCH_VARIABLE")
    assert said.message == (
        "ipybox: -e NO_SUCH_VARIABLE: environment variable NO_SUCH_VARIABLE is not set; "
        f"set it, or add it to {tmp_path.resolve()}/.env"
    )


async def test_the_client_has_the_message_in_its_error(tmp_path: Path):
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "ipybox", "docker", "--workspace", str(tmp_path)],
        env={"PATH": str(tmp_path)},
    )
    error = pytest.RaisesExc(MCPError, match="docker is not on PATH: install Docker Engine or Docker Desktop")
    with pytest.RaisesGroup(error, flatten_subgroups=True):
        async with asyncio.timeout(WAIT), Client(parameters):
            pass


@pytest.mark.parametrize("line", [b"", b"not json\n", b'{"jsonrpc":"2.0","method":"notification"}\n', b"[1]\n"])
async def test_only_requests_are_answered(line: bytes, tmp_path: Path):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ipybox", "docker", "--workspace", str(tmp_path)),
        env={**os.environ, "PATH": str(tmp_path)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT):
        answered, errors = await process.communicate(line)
    assert answered == b""
    assert b"docker is not on PATH" in errors


async def test_a_client_that_says_nothing_is_not_waited_for(tmp_path: Path):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ipybox", "docker", "--workspace", str(tmp_path)),
        env={**os.environ, "PATH": str(tmp_path)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(WAIT):
        assert await process.wait() == 1
    await process.communicate()
