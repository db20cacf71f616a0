"""The cluster that `cluster.sh` brings up, and the commands of engines on it."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

DIRECTORY = Path("/run/ipybox-cluster")
SCRIPT = Path(__file__).with_name("cluster.sh")
NODES = {"node1", "node2"}
SSH_HOST = "10.77.0.11"

#: Runs a program on the head of the cluster, where Slurm's clients and `ssh` reach the nodes.
HEAD = ["ip", "netns", "exec", "ipybox-head"]


def on_head(*command: str) -> str:
    """Runs a program on the head of the cluster, and returns what it prints."""
    environment = {**os.environ, "SLURM_CONF": str(DIRECTORY / "slurm.conf")}
    done = subprocess.run([*HEAD, *command], env=environment, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.strip()


#: Seconds in which the scheduler notices what happened, and between two questions about it.
SCHEDULER_WAIT = 60.0
POLL_INTERVAL = 0.2


async def until_printed(expected: str, *command: str) -> None:
    """Returns when a program on the head prints this; Slurm reports no events."""
    said = ""
    for _ in range(int(SCHEDULER_WAIT / POLL_INTERVAL)):
        if (said := await asyncio.to_thread(on_head, *command)) == expected:
            return
        await asyncio.sleep(POLL_INTERVAL)
    raise AssertionError(f"{command[0]} still says {said!r}")


async def until_saved(job_name: str) -> None:
    """Returns when the controller has written a job to its state, which it does every few seconds."""
    state = DIRECTORY / "state" / "job_state"
    for _ in range(int(SCHEDULER_WAIT / POLL_INTERVAL)):
        if state.exists() and job_name.encode() in state.read_bytes():
            return
        await asyncio.sleep(POLL_INTERVAL)
    raise AssertionError(f"{job_name} is not in the saved state of the controller")


async def queue_is_empty() -> None:
    """Returns when no job is left."""
    await until_printed("", "squeue", "--noheader", "--format=%i %T %N")


async def nodes_are_idle() -> None:
    """Returns when all nodes are ready for jobs."""
    await until_printed(str(len(NODES)), "sinfo", "--noheader", "--states=idle", "--responding", "--format=%D")


async def start(host: str) -> None:
    """Starts the daemons of a host, after they were killed."""
    await asyncio.to_thread(subprocess.run, [SCRIPT, "start", host], check=True, timeout=SCHEDULER_WAIT)


def processes(host: str) -> set[int]:
    """Returns the ids of all processes on a host."""
    done = subprocess.run(["ip", "netns", "pids", f"ipybox-{host}"], capture_output=True, text=True, check=True)
    return {int(each) for each in done.stdout.split()}


def kill_node(host: str) -> None:
    """Kills all processes of a node, stopped before, as if it lost power: none reports that another has ended."""
    pids = processes(host)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def node_command() -> list[str]:
    """Returns what an engine runs on a node, where all programs are in the same places as here."""
    # `tests/suites.py` hides bubblewrap from tests without a sandbox, which share this command with the others.
    path = os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if Path(each).name != "unmarked")
    state = [f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}"] if "XDG_STATE_HOME" in os.environ else []
    return ["env", *state, f"PATH={path}", sys.executable, "-P", "-m", "ipybox.node"]


def srun(*options: str) -> list[str]:
    """Returns the command of an engine of Slurm."""
    return [*HEAD, "srun", "--ntasks=1", "--mem=900M", *options, *node_command()]


def ssh(*options: str) -> list[str]:
    """Returns the command of an engine of one SSH host."""
    return [*ssh_client(*options), f"root@{SSH_HOST}", *node_command()]


def ssh_client(*options: str) -> list[str]:
    """Returns the command of an SSH client that knows the key of the hosts."""
    known = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes")
    flags = [part for option in known for part in ("-o", option)]
    return [*HEAD, "ssh", "-F", "none", "-i", str(DIRECTORY / "user_key"), *flags, *options]
