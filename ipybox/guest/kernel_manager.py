"""Kernels as the gateway manages them: monitored without polling, and restarted by their clients only.

Jupyter's own manager polls its kernels every three seconds, and restarts a dead one silently, without its set-up. Here
a thread waits for each kernel process (`ipybox.guest.provisioner`). If it ends on its own, every WebSocket of the
kernel gets `status: dead` immediately, and the kernel is not restarted: the client decides.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, ClassVar, cast

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from kernel_gateway.services.kernels.manager import (  # pyright: ignore[reportMissingTypeStubs]
    KernelGatewayIOLoopKernelManager,
    SeedingMappingKernelManager,
)
from tornado.web import HTTPError

from ipybox.guest import strays
from ipybox.guest.provisioner import ForkProvisioner, WatchedProvisioner
from ipybox.guest.template_client import KernelTemplate

#: Milliseconds between attempts to connect to a kernel.
RECONNECT_MILLISECONDS = 5

#: The provisioner arguments of a request's kernel: each request has its own task, and so its own context.
_start_kernel: ContextVar[Callable[..., Any]] = ContextVar("start_kernel")


class GuestKernelManager(KernelGatewayIOLoopKernelManager):
    """Runs `ipybox.guest.kernel` as the kernel process and notifies its listeners when it dies."""

    #: The environment of kernels, separate from that of the gateway.
    environment: ClassVar[dict[str, str]] = {}
    #: Limits of each process of a kernel, and of their number; see `ipybox.guest.rlimits`.
    memory_limit: ClassVar[int | None] = None
    process_limit: ClassVar[int | None] = None
    #: The process that kernels are forked off; None where each is a new process.
    template: ClassVar[KernelTemplate | None] = None

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._dead_callbacks: list[Callable[[], object]] = []
        #: Set when the kernel process has ended on its own.
        self.died = asyncio.Event()
        # Output waits here instead of being dropped.
        cast(Any, self).context.rcvhwm = 0
        # A kernel that starts may not listen yet. ZeroMQ would try again after 100 ms, as long as a start takes.
        cast(Any, self).context.reconnect_ivl = RECONNECT_MILLISECONDS

    def _ip_default(self) -> str:
        if self.transport != "ipc":
            return "127.0.0.1"  # Jupyter would look for all addresses of this machine, with psutil
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
            traits |= {"on_exit": self._kernel_ended, "parent": self}
            if self.template is None:
                self.provisioner = WatchedProvisioner(**traits)
            else:
                self.provisioner = ForkProvisioner(self.template, **traits)
        return await super()._async_pre_start_kernel(**kwargs)

    async def _async_launch_kernel(self, kernel_cmd: list[str], **kwargs: Any) -> None:
        added = {name: value for name, value in kwargs["env"].items() if os.environ.get(name) != value}
        kwargs["env"] = self.environment | added | {strays.KERNEL_ID: cast(Any, self).kernel_id}
        await super()._async_launch_kernel(kernel_cmd, **kwargs)

    async def _async_post_start_kernel(self, **kwargs: Any) -> None:
        """Leaves the connection for the request to shut down to that request.

        A connection that is made while the kernel starts may arrive when code has used up all descriptors, and ZeroMQ
        ends a process that can't accept one. https://github.com/zeromq/libzmq/blob/master/src/ipc_listener.cpp
        """
        assert self.provisioner is not None
        await self.provisioner.post_launch(**kwargs)

    async def _async_wait(self, pollinterval: float = 0.1) -> None:
        """Waits until the kernel process has ended; Jupyter looks every 0.1 s."""
        if self.has_kernel:
            await cast(WatchedProvisioner, self.provisioner).ended()

    def start_restarter(self) -> None:
        """Does nothing: only the client restarts a kernel."""

    def stop_restarter(self) -> None:
        """Does nothing, see `start_restarter`."""

    def add_restart_callback(self, callback: Callable[[], object], event: str = "restart") -> None:
        """Calls back when the kernel process ends on its own (event `dead`)."""
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
    """A client's WebSocket to a kernel, which reports a dead kernel immediately; Jupyter's waits a minute for it."""

    async def prepare(self) -> None:
        """Waits until the kernel answers.

        Raises:
            HTTPError: If its process has ended: 410, because it will not come back.
        """
        if not await self._unless_dead(cast(Any, super()).prepare()):
            raise HTTPError(410, reason="Kernel Died")

    def nudge(self) -> asyncio.Future[Any]:
        """Returns a future that is done when the kernel's channels work, or the kernel has died."""
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


class GuestMultiKernelManager(SeedingMappingKernelManager):
    """The kernels of the gateway, which can start concurrently, and whose activity is not monitored.

    Jupyter's own manager takes a second copy of all output and verifies its signature, to measure how long a kernel has
    been idle; ipybox does not use that.
    """

    _prespawned: asyncio.Task[str] | None = None

    def prespawn(self) -> None:
        """Starts a kernel, for the first request without its own variables or directory."""
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
            # A new directory of the same name is a different one, which this process and its sandbox can't reach.
            raise HTTPError(409, "the working directory was deleted: create it and restart ipybox") from None
        return await cast(Any, super()).start_kernel(**kwargs)

    def _get_start_kernel(self) -> Callable[..., Any]:
        return _start_kernel.get(None) or self._start

    def _set_start_kernel(self, start: Callable[..., Any]) -> None:
        _start_kernel.set(start)

    # The gateway's handler replaces this attribute while a kernel with its own variables starts. Kernels that start at
    # the same time would get each other's. https://github.com/jupyter-server/kernel_gateway/pull/133
    start_kernel: Any = property(_get_start_kernel, _set_start_kernel)

    def _handle_kernel_died(self, kernel_id: str) -> None:
        """Leaves a dead kernel to its client; otherwise the manager would forget it, even during its start."""

    def start_watching_activity(self, kernel_id: str) -> None:
        """Notes that the kernel has started, and no activity after that."""
        kernel: Any = self.get_kernel(kernel_id)
        kernel.reason = ""
        kernel.last_activity = datetime.now(UTC)
        kernel.execution_state = "idle"
