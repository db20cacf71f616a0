"""The job of an engine's command in the queue of a scheduler: its limits, what it waits for, and its end.

Only Slurm is supported. A command with `srun` gets a name for its job, which this application chooses: nothing that the
command or the node prints says which job to cancel.

Sites restrict how often users may ask for the state of the queue. `WaitingJobs` asks once for all jobs of an engine,
and then ever more rarely.
"""

import asyncio
import math
import re
import secrets
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from shutil import which

from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits
from ipybox.remote.application.srun import find_srun, sets_memory, sets_name, with_option
from ipybox.support.printable import printable

#: What srun prints when a job can't start immediately.
QUEUED = re.compile(r"srun: job (\d{1,18}) queued")

#: Seconds for squeue or scancel to answer.
ANSWER_TIMEOUT = 5.0

#: Bytes of squeue's answer about one job.
MAX_ANSWER = 200

#: Bytes that the node needs beyond the memory limit of its kernels: for itself and the gateway.
NODE_MEMORY = 256 << 20

#: Seconds between the first two questions to squeue; each later interval is twice as long, up to the second value.
FIRST_INTERVAL = 5.0
LAST_INTERVAL = 300.0


def with_limits(command: Sequence[str], limits: ResourceLimits) -> list[str]:
    """Returns an engine's command, with the memory limit as an option of `srun` unless the command sets the memory."""
    if limits.memory is None or sets_memory(command):
        return list(command)
    return with_option(command, f"--mem={(limits.memory + NODE_MEMORY) >> 20}M")


def queued_job(stderr: Iterable[str]) -> str | None:
    """Returns the number of the waiting job that `srun` names in its output, or None if no job waits."""
    jobs = [found[1] for line in stderr if (found := QUEUED.match(line))]
    return jobs[-1] if jobs else None


class SlurmJob:
    """The job of an engine's command, which does nothing if the command does not contain `srun`.

    What precedes `srun` in the command, such as `ssh login-node`, also runs Slurm's other programs, with `path` and
    `env`.
    """

    def __init__(self, command: Sequence[str], path: str, env: Mapping[str, str]):
        #: The name of the job; None if the command sets its own.
        self.name = None if sets_name(command) else f"ipybox-{secrets.token_hex(6)}"
        # Without --unbuffered, srun keeps what does not end with a newline.
        named = list(command) if self.name is None else with_option(command, f"--job-name={self.name}")
        #: The command that starts the job.
        self.command = with_option(named, "--unbuffered")
        self._at = find_srun(command)
        self._path = path
        self._env = env

    async def states(self, jobs: Sequence[str]) -> dict[str, str]:
        """Returns the states of jobs, such as `PENDING (Resources)`, by their numbers; squeue may omit some."""
        arguments = ("--noheader", f"--jobs={','.join(jobs)}", "--Format=JobID:20,State:20,Reason:100")
        answer = await self._run("squeue", *arguments)
        states: dict[str, str] = {}
        for line in answer[: MAX_ANSWER * len(jobs)].decode(errors="replace").splitlines():
            match printable(" ".join(line.split())).split(" "):  # squeue fills its columns with spaces
                case [job, state, *reason] if job in jobs:
                    states[job] = f"{state} ({' '.join(reason)})" if reason else state
                case _:
                    pass
        return states

    async def cancel(self) -> None:
        """Removes the job from the queue. A command that was killed, or has lost its node, may have left it there."""
        if self.name is not None:
            await self._run("scancel", f"--name={self.name}")

    async def _run(self, program: str, *arguments: str) -> bytes:
        """Returns what a program of Slurm prints; nothing without `srun`, without the program, and if it fails."""
        if self._at is None:
            return b""
        sibling = str(PurePath(self.command[self._at]).with_name(program))
        first, *rest = (*self.command[: self._at], sibling, *arguments)
        if (found := which(first, path=self._path)) is None:
            return b""
        import anyio  # only for Slurm

        with anyio.move_on_after(ANSWER_TIMEOUT):
            done = await anyio.run_process(
                [found, *rest], stderr=subprocess.DEVNULL, env=self._env, cwd="/", check=False
            )
            return done.stdout
        return b""


class WaitingJobs:
    """The jobs of one engine that wait in the queue, and what is known of their states."""

    def __init__(self, clock: Callable[[], float] = lambda: asyncio.get_running_loop().time()):
        self._clock = clock
        #: The states by job: None before the first question, empty if squeue did not say.
        self._states: dict[str, str | None] = {}
        self._interval = 0.0
        self._asked = -math.inf
        self._turn = asyncio.Lock()

    async def state(self, job: str, ask: Callable[[Sequence[str]], Awaitable[Mapping[str, str]]]) -> str:
        """Returns a waiting job and its state, such as `job 17, PENDING (Resources)`; empty if the job runs.

        `ask` returns the states of jobs. It is called only if a question is due, with all jobs that wait.
        """
        self._states.setdefault(job, None)
        async with self._turn:
            if self._clock() >= self._asked + (FIRST_INTERVAL if self._states.get(job) is None else self._interval):
                self._asked = self._clock()
                self._interval = min(max(2 * self._interval, FIRST_INTERVAL), LAST_INTERVAL)
                answer = await ask(list(self._states))
                self._states = {each: answer.get(each, "") for each in self._states}
        state = self._states.get(job) or ""
        return "" if state.startswith("RUNNING") else f"job {job}, {state}" if state else f"job {job}"

    def forget(self, job: str) -> None:
        """Stops asking about a job, because it no longer waits."""
        self._states.pop(job, None)
        if not self._states:
            self._interval = 0.0
