"""One gateway process, from `spawn` to `end`. `KernelGateway` owns it, and starts a new one when needed.

`end` closes the link, which ends the gateway and its kernels. A process still running after a bounded wait gets
SIGTERM, then SIGKILL, with its whole group. Then `end` removes the private directory and what a killed sandbox left in
the workspace.
"""

import asyncio
import logging
import os
import signal
from contextlib import suppress
from functools import partial

from ipybox.guest.descendants import GATEWAY_ID
from ipybox.kernel_mgr.gateway_launch import GatewayLaunch
from ipybox.kernel_mgr.link import Link
from ipybox.support.acceptor import AcceptedSocket
from ipybox.support.child import StderrLines, end_group
from ipybox.support.errors import GatewayError
from ipybox.support.signals import signal_group

logger = logging.getLogger(__name__)

START_TIMEOUT = 60.0

#: Seconds to wait for killed processes to end.
KILL_GRACE = 2.0


class GatewayProcess:
    """Owns the process, the link to it, its stderr and its private directory.

    Args:
        launch: The prepared launch. This object owns its directory from now on.
        log_to_stderr: Whether the gateway's log goes to this process's stderr. Otherwise it is logged here at level
            DEBUG.
    """

    def __init__(self, launch: GatewayLaunch, *, log_to_stderr: bool):
        self.launch = launch
        self.link = Link()
        self._process: asyncio.subprocess.Process | None = None
        self._stderr = StderrLines(partial(logger.debug, "gateway: %s"), echo=log_to_stderr)
        #: Cleans up when the process ends.
        self._cleaning: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The id of the gateway process, or of the sandbox around it."""
        assert self._process is not None
        return self._process.pid

    async def spawn(self, on_tool_connection: AcceptedSocket | None) -> None:
        """Starts the process without waiting for it to answer; for `on_tool_connection`, see `Link.open`.

        Raises:
            OSError: If the process can't be started.
        """
        with os.fdopen(await self._stderr.open(), "wb") as stderr:
            self._process = await asyncio.create_subprocess_exec(
                *self.launch.command,
                env=self.launch.env,
                cwd=self.launch.cwd,
                stdin=self.link.guest_end.fileno(),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        self.link.open(on_tool_connection)
        self._cleaning = asyncio.create_task(self._end_with_process(self._process))

    async def wait_until_ready(self) -> None:
        """Waits until the gateway answers requests.

        Raises:
            GatewayError: If the process ends or does not answer in time; the message contains its last lines of stderr.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT):
                await self.link.settled.wait()
        if self.link.failure is not None:
            raise GatewayError(f"the kernel gateway can't be used: {self.link.failure}")
        if self.link.settled.is_set() and not self.link.closed.is_set():
            return
        fate = "exited during startup" if self.link.closed.is_set() else f"did not respond within {START_TIMEOUT:g} s"
        await self._stderr.settled(timeout=1)
        lines = "".join(f"\n{line}" for line in self._stderr.last)
        raise GatewayError(f"the kernel gateway {fate}{':' if lines else ''}{lines}")

    async def wait(self) -> None:
        """Waits until the process ends."""
        assert self._process is not None
        await self._process.wait()

    async def end(self, timeout: float) -> None:
        """Ends the process with all its kernels and children, and removes its directory.

        Args:
            timeout: Seconds to wait for the process to end by itself before it is terminated.
        """
        self.link.close()
        if self._process is not None:
            await end_group(self._process, timeout)
            if self._cleaning is not None:  # cancelling it would not stop its thread
                await asyncio.wait([self._cleaning])
            killed = (self._process.returncode or 0) < 0
            if killed and self.launch.clean_up is not None:
                with suppress(OSError):  # the workspace is gone
                    await asyncio.to_thread(self.launch.clean_up)
        await self._stderr.close()
        self.launch.scratch.remove()

    async def _end_with_process(self, process: asyncio.subprocess.Process) -> None:
        """Kills what an ended process left running: a sandbox outlives the process that set it up."""
        if await process.wait() != 0:  # it has not ended its kernels' processes
            # First, because this waits for the sandbox to end: code there could use names that are freed too early.
            try:
                await asyncio.to_thread(_kill_marked, str(self.launch.scratch.path))
            except RuntimeError:  # at a limit on threads, this may block the event loop briefly
                _kill_marked(str(self.launch.scratch.path))
        signal_group(process.pid, signal.SIGKILL)
        self.link.close()


def _kill_marked(gateway: str) -> None:
    """Kills all processes whose environment names a gateway, and waits until they have ended.

    Once the first process of a PID namespace has ended, so have all others in it.
    """
    import psutil  # slow to import, and rarely needed

    def is_marked(process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            return process.environ().get(GATEWAY_ID) == gateway
        return False

    killed: set[psutil.Process] = set()
    while (
        processes := {*filter(is_marked, psutil.process_iter())} - killed
    ):  # a killed process may start another one before it ends
        for process in processes:
            with suppress(psutil.Error):
                process.kill()
        killed |= processes
    psutil.wait_procs(killed, timeout=KILL_GRACE)
