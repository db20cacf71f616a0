"""The Docker engine of this machine: whether it can be used, and what a container depends on."""

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any, cast

from ipybox.docker.options import DockerError
from ipybox.sandbox.findings import Finding, Program
from ipybox.support.probe import ProbeResult, probe

DOCKER = Program("docker", "docker", "", remedy="install Docker Engine or Docker Desktop")

#: Seconds that the Docker daemon gets to answer.
DAEMON_TIMEOUT = 1.5

#: The arguments for `docker info`.
INFORMATION = ["info", "--format", "[{{json .MemTotal}}, {{json .SecurityOptions}}, {{json .ServerErrors}}]"]

#: The script that builds the image, in the directory with the package.
BUILD_SCRIPT = "docker-build.sh"


@dataclass(frozen=True)
class Engine:
    """A working Docker engine.

    Attributes:
        program: Path of the docker command.
        memory: Bytes of memory of the machine that runs containers, which need not be this one.
        rootless: Whether the root of a container is the user who runs the daemon.
        apparmor: Whether it also confines containers with AppArmor.
    """

    program: str
    memory: int
    rootless: bool = False
    apparmor: bool = False


def find_engine(image: str, network: str | None = None) -> Engine:
    """Returns this machine's Docker after checking that it answers and has image and network; blocks for at most 2 s.

    Raises:
        DockerError: If Docker can't be used, or the image or network does not exist.
    """
    program = _program()
    if program is None:
        raise DockerError(f"docker is not on PATH: {DOCKER.remedy}")
    # A network of another container has no name.
    networks = [["network", "inspect", network]] if network and ":" not in network else []
    info, inspected, *connected = _ask(program, INFORMATION, _inspection(image), *networks)
    problem = _daemon_problem(info) or _image_problem(image, inspected)
    if problem is not None:
        raise DockerError(str(problem))
    if any(outcome.failure for outcome in connected):
        raise DockerError(f"no Docker network named {network!r}: `docker network ls` lists the networks")
    return _engine(program, info.output)


def engine_findings(image: str) -> list[Finding]:
    """Returns the findings about Docker for the user: the daemon, and if it answers, the image."""
    program = _program()
    if program is None:
        return [Finding("docker", None, "docker is not on PATH", DOCKER.remedy)]
    version, inspected = _ask(program, ["version", "--format", "{{.Server.Version}}"], _inspection(image))
    if (problem := _daemon_problem(version)) is not None:
        return [problem]
    problem = _image_problem(image, inspected)
    return [Finding("docker daemon", version.output.strip()), problem or Finding("docker image", image)]


def how_to_build(image: str) -> str:
    """Returns how the user gets the image."""
    script = Path(__file__).parents[2] / BUILD_SCRIPT
    if not script.is_file():
        return f"build it with {BUILD_SCRIPT} from ipybox's repository"
    variable = "" if image == "ipybox" else f"IPYBOX_IMAGE={image} "
    return f"build it with `{variable}sh {script}`"


def _program() -> str | None:
    found = which(DOCKER.name)
    return None if found is None else os.path.abspath(found)


def _engine(program: str, information: str) -> Engine:
    try:
        memory, security, errors = cast(list[Any], json.loads(information))
    except ValueError as exc:
        raise DockerError(f"`docker info` printed unexpected output: {information[:200]!r}") from exc
    # Some clients succeed although they could not reach the daemon.
    if errors:
        raise DockerError(str(_daemon_problem(ProbeResult("", str(errors[0])))))
    names = {str(option).partition(",")[0].removeprefix("name=") for option in security or ()}
    return Engine(program, int(memory), rootless="rootless" in names, apparmor="apparmor" in names)


def _ask(program: str, *questions: Sequence[str]) -> list[ProbeResult]:
    """Sends several requests to the daemon concurrently."""
    with ThreadPoolExecutor(len(questions)) as pool:
        asked = [pool.submit(probe, [program, *question], timeout=DAEMON_TIMEOUT) for question in questions]
        return [answer.result() for answer in asked]


def _inspection(image: str) -> list[str]:
    return ["image", "inspect", "--format", "{{.Id}}", image]


def _daemon_problem(outcome: ProbeResult) -> Finding | None:
    if outcome.failure is None:
        return None
    reason = outcome.failure.removeprefix("exited with 1: ")
    if "permission denied" in reason.lower():
        problem = "this user is not allowed to use the Docker daemon"
        remedy = "run `usermod -aG docker USER` as root and log in again (this gives USER root permissions)"
    elif "did not finish" in reason:
        problem = f"the Docker daemon {reason.replace('did not finish', 'did not respond')}"
        remedy = "restart Docker"
    else:
        problem = f"can't reach the Docker daemon ({reason})"
        remedy = "start Docker Desktop, or run `systemctl start docker` as root"
    return Finding("docker daemon", reason, problem, remedy)


def _image_problem(image: str, outcome: ProbeResult) -> Finding | None:
    """Returns the problem with the image if the daemon answers, or None."""
    if outcome.failure is None:
        return None
    if "no such" in outcome.failure.lower():
        return Finding("docker image", None, f"no Docker image named {image!r}", how_to_build(image))
    return Finding("docker image", image, f"can't inspect the Docker image {image!r}: docker {outcome.failure}")
