"""The job of an engine's command in Slurm's queue; other schedulers' queues are not supported.

ipybox configures a job with `srun`'s environment variables, so options in the command override them. It also names the
job, and cancels it by that name: output of the command or the node isn't trusted.

Sites restrict how often users may query the queue. `WaitingJobs` queries all jobs of an engine together, at growing
intervals.
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

#: Output of srun when a job can't start immediately.
QUEUED = re.compile(r"srun: job (\d{1,18}) queued")

#: Timeout of squeue and scancel in seconds.
ANSWER_TIMEOUT = 5.0

#: Maximum bytes of their output: enough for 400 jobs.
MAX_ANSWER = 1 << 16

#: Bytes that the node and the gateway need in addition to the kernels' memory limit.
NODE_MEMORY = 256 << 20

#: Variables that srun rejects together with a memory limit per node. An allocation may set them.
OTHER_MEMORY = ("SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU")

#: Seconds between the first two queries; each later interval is twice as long, up to the second value.
FIRST_INTERVAL = 5.0
LAST_INTERVAL = 300.0


def queued_job(stderr: Iterable[str]) -> str | None:
    """Returns the number of the queued job that `srun` reports in its output, or None if no job is queued."""
    jobs = [found[1] for line in stderr if (found := QUEUED.match(line))]
    return jobs[-1] if jobs else None


class SlurmJob:
    """The job of an engine's command. Without `srun` in the command, its methods do nothing.

    Slurm's other programs run with `path` and `env`, and with the command's prefix before `srun`, such as
    `ssh login-node`.
    """

    def __init__(self, command: Sequence[str], limits: ResourceLimits, path: str, env: Mapping[str, str]):
        #: The name of the job, unless the command sets its own.
        self.name = f"ipybox-{secrets.token_hex(6)}"
        #: The command that starts the job, and its environment.
        self.command, self.env = list(command), dict(env)
        self._path = path
        at = next((at for at, word in enumerate(command) if PurePath(word).name == "srun"), None)
        #: The command's prefix and the path of srun, for running other Slurm programs; None without `srun`.
        self._programs = None if at is None else (command[:at], PurePath(command[at]))
        if at is None:
            return
        # By default, srun buffers output that doesn't end with a newline.
        settings = {"SLURM_JOB_NAME": self.name, "SLURM_UNBUFFEREDIO": "1"}
        unset = () if limits.memory is None else OTHER_MEMORY
        if limits.memory is not None:
            settings["SLURM_MEM_PER_NODE"] = f"{(limits.memory + NODE_MEMORY) >> 20}M"
        if at:  # srun may run on another machine, without this environment
            words = [*(f"-u{name}" for name in unset), *map("=".join, settings.items())]
            self.command[at:at] = ["env", *words]
        self.env = {name: value for name, value in env.items() if name not in unset} | settings

    async def states(self, jobs: Sequence[str]) -> dict[str, str]:
        """Returns states such as `PENDING (Resources)` by job number; squeue may omit some jobs."""
        arguments = ("--noheader", f"--jobs={','.join(jobs)}", "--Format=JobID:20,State:20,Reason:100")
        answer = await self._run("squeue", *arguments)
        states: dict[str, str] = {}
        for line in answer.decode(errors="replace").splitlines():
            match printable(" ".join(line.split())).split(" "):  # squeue pads its columns with spaces
                case [job, state, *reason] if job in jobs:
                    states[job] = f"{state} ({' '.join(reason)})" if reason else state
                case _:
                    pass
        return states

    async def cancel(self) -> None:
        """Cancels the job, which a command that was killed or lost its node may have left in the queue."""
        await self._run("scancel", f"--name={self.name}")

    async def _run(self, program: str, *arguments: str) -> bytes:
        """Returns the output of a Slurm program; empty without `srun` or it, after a timeout, or if too long."""
        if self._programs is None:
            return b""
        prefix, srun = self._programs
        first, *rest = (*prefix, str(srun.with_name(program)), *arguments)
        if (found := which(first, path=self._path)) is None:
            return b""
        import anyio  # only for Slurm

        with anyio.move_on_after(ANSWER_TIMEOUT):
            quiet = subprocess.DEVNULL
            async with await anyio.open_process(
                [found, *rest], stdin=quiet, stderr=quiet, env=self.env, cwd="/"
            ) as process:
                assert process.stdout is not None
                answer = bytearray()
                async for piece in process.stdout:
                    answer += piece
                    if len(answer) > MAX_ANSWER:
                        return b""
            return bytes(answer)
        return b""


class WaitingJobs:
    """The queued jobs of one engine, and their last known states."""

    def __init__(self, clock: Callable[[], float] = lambda: asyncio.get_running_loop().time()):
        self._clock = clock
        #: The states by job: None before the first query, empty if squeue omitted the job.
        self._states: dict[str, str | None] = {}
        self._interval = 0.0
        self._asked = -math.inf
        self._turn = asyncio.Lock()

    async def state(self, job: str, ask: Callable[[Sequence[str]], Awaitable[Mapping[str, str]]]) -> str:
        """Returns a queued job and its state, such as `job 17, PENDING (Resources)`; empty if the job is running.

        `ask` returns the states of jobs. It is called with all queued jobs, and only if a query is due.
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
        """Stops querying a job that has left the queue."""
        self._states.pop(job, None)
        if not self._states:
            self._interval = 0.0
