"""The engines of the cluster that `cluster.sh` brings up: Slurm, and SSH hosts."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

DIRECTORY = Path("/run/ipybox-cluster")
HEAD = ["ip", "netns", "exec", "ipybox-head"]


def on_head(*command: str) -> str:
    """Runs a program on the head of the cluster, and returns what it prints."""
    environment = {**os.environ, "SLURM_CONF": str(DIRECTORY / "slurm.conf")}
    done = subprocess.run([*HEAD, *command], env=environment, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.strip()


def node_command() -> list[str]:
    """Returns what an engine runs on a node, where all programs are in the same places as here."""
    # `tests/suites.py` hides bubblewrap from tests without a sandbox, which share this command with the others.
    path = os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if Path(each).name != "unmarked")
    state = os.environ["XDG_STATE_HOME"]
    return ["env", f"XDG_STATE_HOME={state}", f"PATH={path}", sys.executable, "-P", "-m", "ipybox.node"]


def srun(*options: str) -> list[str]:
    """Returns the command of an engine of Slurm."""
    return [*HEAD, "srun", "--unbuffered", "--ntasks=1", "--mem=900M", *options, *node_command()]


def ssh(host: str) -> list[str]:
    """Returns the command of an engine of one SSH host."""
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes")
    flags = [part for option in options for part in ("-o", option)]
    return [*HEAD, "ssh", "-F", "none", "-i", str(DIRECTORY / "user_key"), *flags, f"root@{host}", *node_command()]


@pytest.fixture(scope="session", autouse=True)
def cluster(private_directories: None) -> Iterator[None]:
    assert (DIRECTORY / "slurm.conf").exists(), "run `make cluster`, which brings up the cluster"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(DIRECTORY / "slurm.conf"))
        yield


@pytest.fixture(scope="module", params=["slurm", "ssh"])
def command(request: pytest.FixtureRequest, cluster: None) -> list[str]:
    """The command of an engine, for the tests of `tests/engine`."""
    return srun() if request.param == "slurm" else ssh("10.77.0.11")
