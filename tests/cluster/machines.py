"""The cluster that `cluster.sh` brings up, and the commands of engines on it."""

import os
import subprocess
import sys
from pathlib import Path

DIRECTORY = Path("/run/ipybox-cluster")
NODES = ("node1", "node2")
SSH_HOST = "10.77.0.11"

#: Runs a program on the head of the cluster, where Slurm's clients and `ssh` reach the nodes.
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
    state = [f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}"] if "XDG_STATE_HOME" in os.environ else []
    return ["env", *state, f"PATH={path}", sys.executable, "-P", "-m", "ipybox.node"]


def srun(*options: str) -> list[str]:
    """Returns the command of an engine of Slurm."""
    return [*HEAD, "srun", "--unbuffered", "--ntasks=1", "--mem=900M", *options, *node_command()]


def ssh(*options: str) -> list[str]:
    """Returns the command of an engine of one SSH host."""
    return [*ssh_client(*options), f"root@{SSH_HOST}", *node_command()]


def ssh_client(*options: str) -> list[str]:
    """Returns the command of an SSH client that knows the key of the hosts."""
    known = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes")
    flags = [part for option in known for part in ("-o", option)]
    return [*HEAD, "ssh", "-F", "none", "-i", str(DIRECTORY / "user_key"), *flags, *options]
