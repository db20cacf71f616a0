"""Docker for tests: an engine, the image, and containers that are started as `ipybox docker` does."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from ipybox.docker.container import LABEL
from tests.mcp_server.test_server import EXECUTE, INITIALIZE
from tests.servers import ROOT, WAIT, descendants, until, until_dead

ENSURE_DOCKER = ROOT / "tests" / "docker" / "ensure-docker.sh"
BUILD_IMAGE = ROOT / "tests" / "docker" / "build-image.sh"

#: The image of these sources; `.ci/run` builds it before the tests need it.
IMAGE = "ipybox-test"

#: Seconds for all layers of the image.
BUILD_TIMEOUT = 900

#: Seconds after the end of a client in which its container has to be gone: `END_GRACE` of the launcher, and the time
#: that a busy engine needs to remove it.
GRACE = 20.0

#: The engine that `ensure-docker.sh` starts has none but the host's and none at all.
NETWORK = "host"


@pytest.fixture(scope="session")
def engine() -> Iterator[None]:
    """A Docker that answers, to which `docker` leads."""
    done = subprocess.run([ENSURE_DOCKER], stdout=subprocess.PIPE, text=True, timeout=BUILD_TIMEOUT, check=False)
    assert done.returncode == 0, "these tests need Docker: see above"
    with pytest.MonkeyPatch.context() as patch:
        if host := re.search(r"export DOCKER_HOST=(\S+)", done.stdout):
            patch.setenv("DOCKER_HOST", host[1])
        yield


@pytest.fixture(scope="session")
def image(engine: None) -> str:
    """The name of the image, which is built of these sources."""
    return build(IMAGE)


def build(name: str, *arguments: str, script: Path = ROOT / "docker-build.sh") -> str:
    """Builds the image and returns its name."""
    done = subprocess.run(
        [BUILD_IMAGE, *arguments],
        env={**os.environ, "IPYBOX_IMAGE": name, "DOCKER_BUILD": str(script)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return name


def docker(*arguments: str) -> str:
    """Returns what a docker command writes."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=WAIT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def containers(workspace: Path) -> str:
    """Returns the ids of this workspace's containers, whatever their state."""
    return docker("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={LABEL}={workspace}")


async def until_removed(workspace: Path) -> None:
    """Waits until there is no container of this workspace.

    Raises:
        TimeoutError: It takes longer than `GRACE`.
    """
    await until(lambda: not containers(workspace), GRACE)


def command(workspace: Path, image: str, *options: str) -> list[str]:
    """Returns the command line of the launcher."""
    given = ["--workspace", str(workspace), "--image", image, "--network", NETWORK, *options]
    return [sys.executable, "-m", "ipybox", "docker", *given]


@asynccontextmanager
async def client_of(workspace: Path, image: str, *options: str, **env: str) -> AsyncGenerator[Client]:
    """An MCP client of a server in a container, of which nothing is there in the end."""
    program, *arguments = command(workspace, image, *options)
    variables = {name: os.environ[name] for name in ("PATH", "DOCKER_HOST", "XDG_STATE_HOME") if name in os.environ}
    parameters = StdioServerParameters(command=program, args=arguments, env={**variables, **env})
    async with Client(parameters) as client:
        yield client
    await until_removed(workspace)


def cell(code: str) -> dict[str, object]:
    """Returns a request to execute code."""
    return {**EXECUTE, "params": {"name": "execute_ipython_cell", "arguments": {"code": code}}}


@dataclass
class Launched:
    """A launcher that was started by hand, and all its processes on this side."""

    process: asyncio.subprocess.Process
    workspace: Path

    async def ask(self, request: Mapping[str, Any]) -> Any:
        """Sends a request and returns the answer."""
        await self.send(request)
        assert self.process.stdout is not None
        async with asyncio.timeout(WAIT):
            answer = json.loads(await self.process.stdout.readline())
        assert answer["id"] == request["id"], answer
        return answer

    async def send(self, request: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        await self.process.stdin.drain()

    def processes(self) -> set[int]:
        """Returns the docker command that the launcher has become, and the owner of the container."""
        return {self.process.pid, *descendants(self.process.pid)}


@contextmanager
def readable_copy() -> Generator[tuple[str, Path]]:
    """Yields a Python that any user can run, and a directory with a copy of ipybox that any user can read."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        shutil.copytree(ROOT / "ipybox", Path(directory, "ipybox"), ignore=shutil.ignore_patterns("__pycache__"))
        yield shutil.which("python3", path="/usr/bin") or sys.executable, Path(directory)


@asynccontextmanager
async def launched(workspace: Path, *arguments: str, **how: Any) -> AsyncGenerator[Launched]:
    """Starts a launcher, and takes away what it leaves if a test fails.

    Args:
        workspace: Its workspace.
        arguments: Its command line.
        how: What `subprocess.Popen` takes, such as `user`.
    """
    process = await asyncio.create_subprocess_exec(
        *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, **how
    )
    pids: set[int] = {process.pid}
    try:
        running = Launched(process, workspace)
        await running.ask(INITIALIZE)
        pids |= running.processes()
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        for pid in await until_dead(pids, GRACE):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for container in containers(workspace).split():
            with suppress(AssertionError):  # it may be about to be removed
                docker("rm", "--force", container)
