"""Kernel processes as the gateway manages them: watched without polling, and never left behind.

Jupyter's own manager polls its kernels every three seconds and restarts a dead one by itself, with its set-up
gone and nobody told. Here a thread waits for each kernel process; when it ends unasked, every WebSocket of the
kernel is sent `status: dead` at once and the kernel is not restarted: that is the client's decision.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, ClassVar, cast

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from kernel_gateway.services.kernels.manager import (  # pyright: ignore[reportMissingTypeStubs]
    KernelGatewayIOLoopKernelManager,
    SeedingMappingKernelManager,
)
from tornado.web import HTTPError

from ipybox.guest import strays

#: The process ids of all kernels that nobody has waited for yet.
running: set[int] = set()

#: What starts the kernel of a request: each is handled by a task, and so in a context, of its own.
_start_kernel: ContextVar[Callable[..., Any]] = ContextVar("start_kernel")


class WatchedProvisioner(LocalProvisioner):
    """Starts a kernel process in a process group of its own, and kills all that it has started when the kernel ends."""

    process: subprocess.Popen[bytes] | None
    pgid: int | None

    def __init__(self, on_exit: Callable[[], None], **kwargs: Any):
        super().__init__(**kwargs)
        self._on_exit = on_exit
        self._exited = asyncio.Event()
        self._kernel_id = ""
        #: What was below the kernel when it was told to end.
        self._seen: set[int] = set()

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Starts the kernel process and a thread that waits for its end."""
        self._kernel_id = kwargs["env"][strays.KERNEL_ID]
        info = await super().launch_kernel(cmd, **kwargs)
        self._exited = asyncio.Event()
        assert self.process is not None
        running.add(self.process.pid)
        threading.Thread(target=self._watch, args=(self.process.pid, asyncio.get_running_loop()), daemon=True).start()
        return info

    async def poll(self) -> int | None:
        """Returns the exit status of the kernel process, or None while it runs.

        Unlike the inherited method it leaves the process to the thread that waits for it, which must be the one to
        see it end.
        """
        return 0 if self.process is None else self.process.returncode

    async def wait(self) -> int | None:
        """Returns the exit status of the kernel process as soon as it has ended."""
        await self._exited.wait()
        status = await self.poll()
        self.process = None
        return status

    async def shutdown_requested(self, restart: bool = False) -> None:
        """Looks for the kernel's processes once more before the kernel ends, which then are nobody's children."""
        if self.process is not None:
            self._seen = strays.below_child(self.process.pid)
        await super().shutdown_requested(restart)

    def _kill_all(self, pid: int) -> None:
        if self.pgid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pgid, signal.SIGKILL)
        strays.kill_kernel(pid, self._kernel_id, self._seen)

    def _watch(self, pid: int, loop: asyncio.AbstractEventLoop) -> None:
        if sys.platform == "darwin":  # which has no waitid() before Python 3.13
            assert self.process is not None
            self.process.wait()
        else:
            # The process stays a zombie, so that its group id can't be taken before the group is killed.
            with contextlib.suppress(ChildProcessError):  # reaped by somebody else, so it has ended
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        self._kill_all(pid)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the gateway is ending, too
            loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        assert self.process is not None
        self.process.wait()  # takes no time: it has ended
        running.discard(self.process.pid)
        self._exited.set()
        self._on_exit()


class GuestKernelManager(KernelGatewayIOLoopKernelManager):
    """Runs `ipybox.guest.kernel` as the kernel process and tells its listeners when it dies."""

    #: The environment of kernels, which is not that of the gateway.
    environment: ClassVar[dict[str, str]] = {}
    #: What each process of a kernel may use, and how many there may be; see `ipybox.guest.rlimits`.
    memory_limit: ClassVar[int | None] = None
    process_limit: ClassVar[int | None] = None

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._dead_callbacks: list[Callable[[], object]] = []
        #: Set when the kernel process has ended unasked.
        self.died = asyncio.Event()
        # Output waits here, too, instead of being dropped.
        cast(Any, self).context.rcvhwm = 0

    def _ip_default(self) -> str:
        if self.transport != "ipc":
            return super()._ip_default()
        # Paths of sockets must be short (`ipybox.workspace.scratch`), and Jupyter's own name has 50 characters.
        return os.path.join(os.path.dirname(self.connection_file), cast(Any, self).kernel_id[:8])

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        """Returns the command line of our kernel, whatever the kernel spec says.

        `-P` keeps modules of the working directory from standing in for those that the kernel starts with.
        """
        limits = [str(limit or 0) for limit in (self.memory_limit, self.process_limit)]
        return [sys.executable, "-P", "-m", "ipybox.guest.kernel", self.connection_file, str(os.getpid()), *limits]

    async def _async_pre_start_kernel(self, **kwargs: Any) -> tuple[list[str], dict[str, Any]]:
        if self.provisioner is None:
            # The traits of the manager that the provisioner needs have no types.
            traits: dict[str, Any] = {"kernel_id": cast(Any, self).kernel_id, "kernel_spec": self.kernel_spec}
            self.provisioner = WatchedProvisioner(on_exit=self._kernel_ended, parent=self, **traits)
        return await super()._async_pre_start_kernel(**kwargs)

    async def _async_launch_kernel(self, kernel_cmd: list[str], **kwargs: Any) -> None:
        added = {name: value for name, value in kwargs["env"].items() if os.environ.get(name) != value}
        kwargs["env"] = self.environment | added | {strays.KERNEL_ID: cast(Any, self).kernel_id}
        await super()._async_launch_kernel(kernel_cmd, **kwargs)

    def start_restarter(self) -> None:
        """Does nothing: nobody restarts a kernel but its client."""

    def stop_restarter(self) -> None:
        """Does nothing, see `start_restarter`."""

    def add_restart_callback(self, callback: Callable[[], object], event: str = "restart") -> None:
        """Calls back when the kernel process ends unasked (event `dead`)."""
        if event == "dead":
            self._dead_callbacks.append(callback)
            if self.died.is_set():
                asyncio.get_running_loop().call_soon(callback)

    def remove_restart_callback(self, callback: Callable[[], object], event: str = "restart") -> None:
        """Undoes `add_restart_callback`."""
        if event == "dead" and callback in self._dead_callbacks:
            self._dead_callbacks.remove(callback)

    def _kernel_ended(self) -> None:
        if self.shutting_down:
            return
        self.died.set()
        for callback in tuple(self._dead_callbacks):
            callback()


class GuestKernelConnection(ZMQChannelsWebsocketConnection):
    """A client's WebSocket to a kernel, which says at once if that has died; Jupyter's own waits a minute for it."""

    async def prepare(self) -> None:
        """Waits until the kernel answers.

        Raises:
            HTTPError: If its process has ended instead: 410, as it will not come back.
        """
        if not await self._unless_dead(cast(Any, super()).prepare()):
            raise HTTPError(410, reason="Kernel Died")

    def nudge(self) -> asyncio.Future[Any]:
        """Returns what is done when the kernel's channels are known to work, or the kernel has died."""
        return asyncio.ensure_future(self._unless_dead(cast(Any, super()).nudge()))

    async def _unless_dead(self, work: Awaitable[object]) -> bool:
        """Awaits work that needs the kernel; returns False as soon as that has died."""
        died = asyncio.ensure_future(cast(GuestKernelManager, self.kernel_manager).died.wait())
        working = asyncio.ensure_future(work)
        try:
            await asyncio.wait([died, working], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                return False
            working.result()
            return True
        finally:
            died.cancel()
            working.cancel()


class GuestKernels(SeedingMappingKernelManager):
    """The kernels of the gateway, which can start at once, and are not watched for activity.

    Jupyter's own manager takes a second copy of all output and verifies its signature, to know how long a kernel
    has been idle; nobody asks for that here.
    """

    _prespawned: asyncio.Task[str] | None = None

    def prespawn(self) -> None:
        """Starts a kernel, which the first request gets that asks for no variables or directory of its own."""
        self._prespawned = asyncio.create_task(cast(Any, super()).start_kernel())

    async def _start(self, **kwargs: Any) -> str:
        if self._prespawned is not None and not kwargs.get("env") and not kwargs.get("path"):
            prespawned, self._prespawned = self._prespawned, None
            kernel_id = await prespawned
            if not cast(GuestKernelManager, self.get_kernel(kernel_id)).died.is_set():
                return kernel_id
            await cast(Any, self).shutdown_kernel(kernel_id)
        try:
            os.getcwd()
        except FileNotFoundError:
            # A new directory of the same name is another one, which this process, and its sandbox, can't get to.
            raise HTTPError(409, "the working directory was deleted: create it and restart ipybox") from None
        return await cast(Any, super()).start_kernel(**kwargs)

    def _get_start_kernel(self) -> Callable[..., Any]:
        return _start_kernel.get(None) or self._start

    def _set_start_kernel(self, start: Callable[..., Any]) -> None:
        _start_kernel.set(start)

    # The gateway's handler replaces this attribute while a kernel starts that has variables of its own. Kernels that
    # start at the same time would get each other's. https://github.com/jupyter-server/kernel_gateway/pull/133
    start_kernel: Any = property(_get_start_kernel, _set_start_kernel)

    def _handle_kernel_died(self, kernel_id: str) -> None:
        """Leaves a kernel that has died to its client; else it would be forgotten, also while it is being started."""

    def start_watching_activity(self, kernel_id: str) -> None:
        """Notes that the kernel has started, and nothing from then on."""
        kernel: Any = self.get_kernel(kernel_id)
        kernel.reason = ""
        kernel.last_activity = datetime.now(UTC)
        kernel.execution_state = "idle"
