"""The job of an engine's command in the queue of a scheduler: its limits, what it waits for, and its end.

Only Slurm is supported. What ipybox sets for a job are variables of `srun`, so that options in the command override
them. One of them is the job's name: nothing that the command or the node prints says which job to cancel.

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
from ipybox.support.printable import printable

#: What srun prints when a job can't start immediately.
QUEUED = re.compile(r"srun: job (\d{1,18}) queued")

#: Seconds for squeue or scancel to answer.
ANSWER_TIMEOUT = 5.0

#: Bytes of squeue's answer about one job.
MAX_ANSWER = 200

#: Bytes that the node needs beyond the memory limit of its kernels: for itself and the gateway.
NODE_MEMORY = 256 << 20

#: Variables that srun does not accept together with a memory limit per node. Those of an allocation may be set.
OTHER_MEMORY = ("SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU")

#: Seconds between the first two questions to squeue; each later interval is twice as long, up to the second value.
FIRST_INTERVAL = 5.0
LAST_INTERVAL = 300.0


def queued_job(stderr: Iterable[str]) -> str | None:
    """Returns the number of the waiting job that `srun` names in its output, or None if no job waits."""
    jobs = [found[1] for line in stderr if (found := QUEUED.match(line))]
    return jobs[-1] if jobs else None


class SlurmJob:
    """The job of an engine's command, which does nothing if the command does not contain `srun`.

    What precedes `srun` in the command, such as `ssh login-node`, also runs Slurm's other programs, with `path` and
    `env`.
    """

    def __init__(self, command: Sequence[str], limits: ResourceLimits, path: str, env: Mapping[str, str]):
        #: The name of the job, unless the command sets its own.
        self.name = f"ipybox-{secrets.token_hex(6)}"
        #: The command that starts the job, and its environment.
        self.command, self.env = list(command), dict(env)
        self._path = path
        at = next((at for at, word in enumerate(command) if PurePath(word).name == "srun"), None)
        #: How another program of Slurm is run, up to its name; None without `srun`.
        self._programs = None if at is None else (command[:at], PurePath(command[at]))
        if at is None:
            return
        # Otherwise, srun keeps what does not end with a newline.
        settings = {"SLURM_JOB_NAME": self.name, "SLURM_UNBUFFEREDIO": "1"}
        unset = () if limits.memory is None else OTHER_MEMORY
        if limits.memory is not None:
            settings["SLURM_MEM_PER_NODE"] = f"{(limits.memory + NODE_MEMORY) >> 20}M"
        if at:  # perhaps on another machine, which does not get the environment
            words = [*(f"-u{name}" for name in unset), *map("=".join, settings.items())]
            self.command[at:at] = ["env", *words]
        self.env = {name: value for name, value in env.items() if name not in unset} | settings

    async def states(self, jobs: Sequence[str]) -> dict[str, str]:
        """Returns states such as `PENDING (Resources)`, by the jobs' numbers; squeue may omit some."""
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
        await self._run("scancel", f"--name={self.name}")

    async def _run(self, program: str, *arguments: str) -> bytes:
        """Returns what a program of Slurm prints; nothing without `srun`, without the program, and if it fails."""
        if self._programs is None:
            return b""
        prefix, srun = self._programs
        first, *rest = (*prefix, str(srun.with_name(program)), *arguments)
        if (found := which(first, path=self._path)) is None:
            return b""
        import anyio  # only for Slurm

        with anyio.move_on_after(ANSWER_TIMEOUT):
            done = await anyio.run_process(
                [found, *rest], stderr=subprocess.DEVNULL, env=self.env, cwd="/", check=False
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
