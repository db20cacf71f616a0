"""The process of an engine's command, such as `srun`, from `spawn` to `end`, and its job in a scheduler's queue.

Only Slurm's queue is supported. ipybox configures a job with `srun`'s environment variables, so options in the command
override them. It also names the job, and cancels it by that name: output of the command or the node isn't trusted.

Sites restrict how often users may query the queue. `WaitingJobs` queries all jobs of an engine together, at growing
intervals.
"""

import asyncio
import logging
import math
import os
import re
import secrets
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import PurePath
from shutil import which
from typing import TYPE_CHECKING

from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits
from ipybox.remote.application import tied
from ipybox.support.child import StderrLines, end_group
from ipybox.support.errors import GatewayError
from ipybox.support.inherited import BASIC, inherited
from ipybox.support.printable import printable
from ipybox.workspace.writable import interpreter

if TYPE_CHECKING:
    from ipybox.remote.application.settings import Engine

logger = logging.getLogger(__name__)

#: Variables that scheduler clients read. All others are withheld, because `srun` would pass them on to the node.
VARIABLES = (
    *(name for name in BASIC if name != "TMPDIR"),
    *("SSH_AUTH_SOCK", "KRB5CCNAME", "KUBECONFIG", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "NOMAD_ADDR"),
)
SLURM_PREFIX = "SLURM_"

#: Seconds to wait for the exit status and the last lines of stderr after the pipes have closed.
EXIT_TIMEOUT = 1.0

#: Output of srun when a job can't start immediately.
QUEUED = re.compile(r"srun: job (\d{1,18}) queued")

#: Timeout of squeue and scancel in seconds.
ANSWER_TIMEOUT = 5.0

#: Maximum bytes of squeue's output per job.
MAX_ANSWER = 200

#: Bytes that the node and the gateway need in addition to the kernels' memory limit.
NODE_MEMORY = 256 << 20

#: Variables that srun rejects together with a memory limit per node. An allocation may set them.
OTHER_MEMORY = ("SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU")

#: Seconds between the first two queries; each later interval is twice as long, up to the second value.
FIRST_INTERVAL = 5.0
LAST_INTERVAL = 300.0


class EngineProcess:
    """Runs an engine's command, found on `path`, whose standard input and output carry the connection to the node."""

    def __init__(self, engine: "Engine", limits: ResourceLimits, path: str):
        slurm = {name: value for name, value in os.environ.items() if name.startswith(SLURM_PREFIX)}
        self._job = SlurmJob(engine.command, limits, path, inherited((*VARIABLES, *engine.env)) | slurm)
        self._path = path
        self._waiting = engine.waiting
        self._queued: str | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._stderr = StderrLines(partial(logger.debug, "engine: %s"))

    async def spawn(self) -> tuple[int, int]:
        """Starts the process. Returns descriptors for its output and its input, which the caller must close.

        Raises:
            GatewayError: If the program does not exist.
        """
        program = which(self._job.command[0], path=self._path)
        if program is None:
            raise GatewayError(
                f"the engine's command was not found: {self._job.command[0]}: install it or correct the command"
            )
        command = [os.path.abspath(program), *self._job.command[1:]]
        stderr = await self._stderr.open()
        stdin, to_process = os.pipe()
        from_process, stdout = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(str(interpreter()), "-I", "-S", tied.__file__, str(os.getpid()), *command),
                env=self._job.env,
                cwd="/",  # srun also uses it on the node; not the workspace, where code could plant option files
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except BaseException:
            os.close(to_process)
            os.close(from_process)
            raise
        finally:
            for fd in (stdin, stdout, stderr):
                os.close(fd)
        return from_process, to_process

    @property
    def stderr_text(self) -> str:
        """The last lines of its stderr, each preceded by a line break."""
        return "".join(f"\n{line}" for line in self._stderr.last)

    @property
    def job(self) -> str | None:
        """The number of the queued job, even if it has started; None if unknown."""
        self._queued = self._queued or queued_job(self._stderr.last)
        return self._queued

    async def queue_state(self) -> str:
        """Returns the queued job and its state, such as `job 17, PENDING (Resources)`; empty if no job is queued."""
        return "" if self.job is None else await self._waiting.state(self.job, self._job.states)

    def leave_queue(self) -> None:
        """Stops querying the job, which has a node or is no longer needed."""
        if self.job is not None:
            self._waiting.forget(self.job)

    async def exit_report(self) -> str:
        """Waits for the exit status and the last lines of stderr, and returns both as text."""
        assert self._process is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_TIMEOUT):
                await self._process.wait()
                await self._stderr.settled(EXIT_TIMEOUT)
        status, fate = self._process.returncode, "closed its output"
        if status is not None:
            fate = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        lines = self.stderr_text
        return f"the engine's command {fate}{':' if lines else ''}{lines}"

    async def end(self, timeout: float) -> None:
        """Waits for the process to exit after its input was closed, and cancels its job if that may still be queued.

        Terminates its whole process group after `timeout` seconds.
        """
        if self._process is not None and await end_group(self._process, timeout) != 0:
            await self._job.cancel()
        await self._stderr.close()


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
        for line in answer[: MAX_ANSWER * len(jobs)].decode(errors="replace").splitlines():
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
        """Returns the output of a Slurm program; empty without `srun`, without the program, or after a timeout."""
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
