"""The job of an engine's command in the queue of a scheduler: its limits, what it waits for, and its end.

Only Slurm is known. A command with `srun` gets a name for its job, which this application chooses: nothing that the
command or the node prints says which job to cancel.
"""

import asyncio
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath
from shutil import which

from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits
from ipybox.support.printable import printable

#: What srun prints when a job can't start immediately.
QUEUED = re.compile(r"srun: job (\d{1,18}) queued")

#: Seconds for squeue or scancel to answer.
ANSWER_TIMEOUT = 5.0

#: Bytes of an answer that messages contain.
MAX_ANSWER = 200

#: Bytes that the node needs beyond the memory limit of its kernels: for itself and the gateway.
NODE_MEMORY = 256 << 20


def with_limits(command: Sequence[str], limits: ResourceLimits) -> list[str]:
    """Returns the command of an engine, with the memory limit as an option of `srun` unless it sets its own."""
    if limits.memory is None or _sets(command, "--mem"):
        return list(command)
    return _with_option(command, f"--mem={(limits.memory + NODE_MEMORY) >> 20}M")


class SlurmJob:
    """The job of an engine's command, which does nothing if the command does not contain `srun`.

    Args:
        command: The engine's command. What precedes `srun` in it, such as `ssh login-node`, also runs Slurm's other
            programs.
        path: Where to search programs.
        env: The environment of programs.
    """

    def __init__(self, command: Sequence[str], path: str, env: Mapping[str, str]):
        #: The name of the job; None if the command sets its own.
        self.name = None if _sets(command, "--job-name", "-J") else f"ipybox-{secrets.token_hex(6)}"
        # Without --unbuffered, srun keeps what does not end with a newline.
        named = list(command) if self.name is None else _with_option(command, f"--job-name={self.name}")
        #: The command that starts the job.
        self.command = _with_option(named, "--unbuffered")
        self._at = _srun(command)
        self._path = path
        self._env = env

    async def state(self, stderr: Iterable[str]) -> str:
        """Returns what waits and why, such as `job 17, PENDING (Resources)`; empty if no job waits, or it is unknown.

        Args:
            stderr: What the command has printed to stderr, which may name a job that the command itself has named.
        """
        printed = queued_job(stderr)
        picked = f"--name={self.name}" if self.name is not None else f"--jobs={printed}" if printed is not None else ""
        answer = await self._run("squeue", "--noheader", picked, "--Format=JobID:20,State:20,Reason:100")
        # squeue fills its columns with spaces.
        match printable(" ".join(answer.split())).split(" "):
            case [job, state, *reason] if state != "RUNNING":
                return f"job {job}, {state} ({' '.join(reason)})" if reason else f"job {job}, {state}"
            case [_, _, *_]:
                return ""
            case _:
                return f"job {printed}" if printed is not None else ""

    async def cancel(self) -> None:
        """Removes the job from the queue. A command that was killed, or has lost its node, may have left it there."""
        await self._run("scancel", f"--name={self.name}" if self.name is not None else "")

    async def _run(self, program: str, *arguments: str) -> str:
        """Returns what a program of Slurm prints; empty without a job, without the program, and if it fails."""
        if self._at is None or not all(arguments):
            return ""
        sibling = str(PurePath(self.command[self._at]).with_name(program))
        first, *rest = (*self.command[: self._at], sibling, *arguments)
        if (found := which(first, path=self._path)) is None:
            return ""
        process = await asyncio.create_subprocess_exec(
            found,
            *rest,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=self._env,
            cwd="/",
        )
        answer = b""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_TIMEOUT):
                    answer, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return answer[:MAX_ANSWER].decode(errors="replace")


def queued_job(stderr: Iterable[str]) -> str | None:
    """Returns the number of the job that waits; None if no job waits."""
    jobs = [found[1] for line in stderr if (found := QUEUED.match(line))]
    return jobs[-1] if jobs else None


def _srun(command: Sequence[str]) -> int | None:
    """Returns where `srun` is in a command; None if it is not."""
    return next((at for at, each in enumerate(command) if PurePath(each).name == "srun"), None)


def _sets(command: Sequence[str], *options: str) -> bool:
    """Returns whether `srun` has one of the options in a command."""
    at = _srun(command)
    return at is not None and any(each.startswith(options) for each in command[at:])


def _with_option(command: Sequence[str], option: str) -> list[str]:
    """Returns a command with one more option of `srun`, if that is in it."""
    at = _srun(command)
    return list(command) if at is None else [*command[: at + 1], option, *command[at + 1 :]]
