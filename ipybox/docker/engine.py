"""The Docker engine of this machine: whether it works, and the properties that containers depend on."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any, cast

from ipybox.sandbox.findings import Finding, Program
from ipybox.support.errors import IpyboxError
from ipybox.support.probe import probe

DOCKER = Program("docker", "docker", remedy="install Docker Engine or Docker Desktop")

#: Seconds for the Docker daemon to answer.
DAEMON_TIMEOUT = 1.5

#: The arguments for `docker info`. Docker 20 knows only the errors if it can't reach the daemon, and exits with 0.
INFORMATION = [
    *("info", "--format"),
    '{{if .ServerErrors}}[0, [], {{json .ServerErrors}}, ""]{{else}}'
    "[{{json .MemTotal}}, {{json .SecurityOptions}}, null, {{json .ServerVersion}}]{{end}}",
]

#: The script that builds the image, next to the package.
BUILD_SCRIPT = "docker-build.sh"


class DockerError(IpyboxError):
    """ipybox can't be run in a container; the message says why, and what to do."""


def default_image() -> str:
    """Returns the image's default name; docker-build.sh reads the same variable."""
    return os.environ.get("IPYBOX_IMAGE") or "ipybox"


@dataclass(frozen=True)
class Engine:
    """A working Docker engine."""

    program: str
    #: Memory in bytes of the machine that runs containers, which may be a different machine.
    memory: int
    #: Whether root in a container is the user who runs the daemon.
    rootless: bool = False
    #: Whether it confines containers with AppArmor.
    apparmor: bool = False


def find_engine(image: str) -> Engine:
    """Returns this machine's Docker; raises a DockerError if it lacks the image. Blocks for at most 2 s."""
    findings, engine = examine_engine(image)
    problem = next((finding for finding in findings if finding.problem is not None), None)
    if problem is not None or engine is None:
        raise DockerError(str(problem))
    return engine


def examine_engine(image: str) -> tuple[list[Finding], Engine | None]:
    """Returns the findings about Docker, and the engine if its daemon answers."""
    program = which(DOCKER.name)
    if program is None:
        return [Finding("docker", None, "docker is not on PATH", DOCKER.remedy)], None
    program = os.path.abspath(program)
    questions = [INFORMATION, ["image", "inspect", "--format", "{{.Id}}", image]]
    with ThreadPoolExecutor(len(questions)) as pool:
        asked = [pool.submit(probe, [program, *question], timeout=DAEMON_TIMEOUT) for question in questions]
        info, inspected = [answer.result() for answer in asked]
    if info.failure is not None:
        return [_daemon_problem(info.failure)], None
    try:
        memory, security, errors, version = cast(list[Any], json.loads(info.output))
    except (ValueError, TypeError):
        return [Finding("docker", "", f"`docker info` printed unexpected output: {info.output[:200]!r}")], None
    if errors:
        return [_daemon_problem(str(errors[0]))], None
    findings = [Finding("docker daemon", version), _image_finding(image, inspected.failure)]
    names = {str(option).partition(",")[0].removeprefix("name=") for option in security or ()}
    return findings, Engine(program, int(memory), rootless="rootless" in names, apparmor="apparmor" in names)


def how_to_build(image: str) -> str:
    """Returns instructions for getting the image."""
    script = Path(__file__).parents[2] / BUILD_SCRIPT
    if not script.is_file():
        return f"build it with {BUILD_SCRIPT} from ipybox's repository"
    variable = "" if image == "ipybox" else f"IPYBOX_IMAGE={image} "
    return f"build it with `{variable}sh {script}`"


def _daemon_problem(failure: str) -> Finding:
    reason = failure.removeprefix("exited with 1: ")
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


def _image_finding(image: str, failure: str | None) -> Finding:
    if failure is None:
        return Finding("docker image", image)
    if "no such" in failure.lower():
        return Finding("docker image", None, f"no Docker image named {image!r}", how_to_build(image))
    return Finding("docker image", image, f"can't inspect the Docker image {image!r}: docker {failure}")
