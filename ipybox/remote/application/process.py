"""The process of an engine's command, such as `srun`, from `spawn` to `end`."""

import asyncio
import logging
import os
from contextlib import suppress
from functools import partial
from shutil import which

from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits
from ipybox.remote.application import tied
from ipybox.remote.application.settings import Engine
from ipybox.remote.application.slurm import SlurmJob, queued_job
from ipybox.support.child import StderrLines, end_group
from ipybox.support.errors import GatewayError
from ipybox.support.inherited import BASIC, inherited
from ipybox.workspace.writable import interpreter

logger = logging.getLogger(__name__)

#: Variables that scheduler clients read. All others are withheld, because `srun` would pass them on to the node.
VARIABLES = (
    *(name for name in BASIC if name != "TMPDIR"),
    *("SSH_AUTH_SOCK", "KRB5CCNAME", "KUBECONFIG", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "NOMAD_ADDR"),
)
SLURM_PREFIX = "SLURM_"

#: Seconds to wait for the exit status and the last lines of stderr after the pipes have closed.
EXIT_TIMEOUT = 1.0


class EngineProcess:
    """Runs an engine's command, found on `path`, whose standard input and output carry the connection to the node."""

    def __init__(self, engine: Engine, limits: ResourceLimits, path: str):
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
