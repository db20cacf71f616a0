"""The state of a job that waits in the queue of a scheduler, for messages.

Only Slurm is known: `srun` prints the number of a job that waits, and `squeue` says why.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath
from shutil import which

from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits
from ipybox.support.printable import printable

#: What srun prints when a job can't start immediately.
QUEUED = re.compile(r"srun: job (\d{1,18}) queued")

#: Seconds for squeue to answer.
SQUEUE_TIMEOUT = 5.0

#: Bytes of its answer that messages contain.
MAX_STATE = 200

#: Bytes that the node needs beyond the memory limit of its kernels: for itself and the gateway.
NODE_MEMORY = 256 << 20


def with_limits(command: Sequence[str], limits: ResourceLimits) -> list[str]:
    """Returns the command of an engine, with the memory limit as an option of `srun` unless it sets its own."""
    at = _srun(command)
    if at is None or limits.memory is None or any(each.startswith("--mem") for each in command[at:]):
        return list(command)
    return [*command[: at + 1], f"--mem={(limits.memory + NODE_MEMORY) >> 20}M", *command[at + 1 :]]


def queued_job(stderr: Iterable[str]) -> str | None:
    """Returns the number of the job that waits; None if no job waits."""
    jobs = [found[1] for line in stderr if (found := QUEUED.match(line))]
    return jobs[-1] if jobs else None


async def job_state(command: Sequence[str], job: str, path: str, env: Mapping[str, str]) -> str:
    """Returns the state of a job of Slurm and the reason, such as `PENDING (Resources)`; empty if that is unknown.

    Args:
        command: The engine's command. What precedes `srun` in it, such as `ssh login-node`, also runs `squeue`.
        job: The number of the job.
        path: Where to search the program.
        env: The environment of the program.
    """
    at = _srun(command)
    if at is None:
        return ""
    squeue = str(PurePath(command[at]).with_name("squeue"))
    program, *arguments = (*command[:at], squeue, "--noheader", f"--jobs={job}", "--Format=State:20,Reason:100")
    if (found := which(program, path=path)) is None:
        return ""
    process = await asyncio.create_subprocess_exec(
        found,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=env,
        cwd="/",
    )
    answer = b""
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(SQUEUE_TIMEOUT):
                answer, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    # squeue fills its columns with spaces.
    state, *reason = printable(" ".join(answer[:MAX_STATE].decode(errors="replace").split())).split(" ")
    return f"{state} ({' '.join(reason)})" if reason else state


def _srun(command: Sequence[str]) -> int | None:
    """Returns where `srun` is in a command; None if it is not."""
    return next((at for at, each in enumerate(command) if PurePath(each).name == "srun"), None)
