"""The gateway's kernels: monitored without polling, and restarted only by their clients.

Jupyter's own manager polls its kernels every three seconds, and silently restarts a dead one, without its setup. Here a
thread waits for each kernel process (`ipybox.guest.provisioner`). If the process ends on its own, all WebSockets of the
kernel receive `status: dead` immediately.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import zmq
from jupyter_client.connect import port_names, write_connection_file
from jupyter_client.kernelspec import KernelSpec
from jupyter_server.services.kernels.connection import base as connections
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from kernel_gateway.services.kernels.manager import (  # pyright: ignore[reportMissingTypeStubs]
    KernelGatewayIOLoopKernelManager,
    SeedingMappingKernelManager,
)
from tornado.web import HTTPError

from ipybox.guest import descendants
from ipybox.guest.kernel_output import GatewayOutput
from ipybox.guest.protocol import EXIT, NOT_PRELOADED, ExitStatus
from ipybox.guest.provisioner import KernelProvisioner
from ipybox.guest.template_client import ForkedProcess, KernelTemplate, Spare
from ipybox.support.tasks import until_one_ends

logger = logging.getLogger(__name__)

#: Milliseconds between attempts to connect to a kernel.
RECONNECT_MILLISECONDS = 5

#: The channel of output, which has no ZeroMQ stream (`ipybox.guest.kernel_output`).
OUTPUT = SimpleNamespace(channel="iopub", closed=lambda: False)

#: The variables of the session of the current request. Each request has its own task, and so its own context.
session_variables: ContextVar[dict[str, str]] = ContextVar("session_variables")


class GuestKernelManager(KernelGatewayIOLoopKernelManager):
    """Runs `ipybox.guest.kernel` as the kernel process and notifies its listeners when it dies."""

    #: The environment of kernels, separate from the gateway's own.
    environment: ClassVar[dict[str, str]] = {}
    #: Limits of each process of a kernel, and of their number; see `ipybox.guest.process.limit_process`.
    memory_limit: ClassVar[int | None] = None
    process_limit: ClassVar[int | None] = None
    #: The process that kernels are forked from; None if each is a new program.
    template: ClassVar[KernelTemplate | None] = None

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._dead_callbacks: list[Callable[[], object]] = []
        #: How the kernel process ended, if it ended on its own, and the text that it left in its streams.
        self.exit: ExitStatus | None = None
        self.left: dict[str, str] = {}
        #: Whether the kernel is spare, without a session.
        self.spare = False
        # A starting kernel may not listen yet. ZeroMQ would retry after 100 ms, which is as long as a start takes.
        cast(Any, self).context.reconnect_ivl = RECONNECT_MILLISECONDS
        if self.transport == "tcp":  # all sessions in the sandbox share the loopback interface
            self.curve_publickey, self.curve_secretkey = zmq.curve_keypair()
        file = Path(cast(Any, self).connection_file)
        #: The directory of this kernel alone, removed when the kernel ends.
        self.directory = file.parent / file.name.removeprefix("kernel-")[:8]
        self.connection_file = str(self.directory / file.name)

    @property
    def is_current(self) -> bool:
        """Whether the kernel, a fork, is running, with the same modules as a new kernel."""
        assert self.template is not None
        process = cast(ForkedProcess, cast(KernelProvisioner, self.provisioner).process)
        # The thread that waits for its end may not have noticed it yet.
        return process.runs and self.template.is_current(process)

    async def hand_over(self) -> None:
        """Assigns a spare kernel to the session of the current request."""
        assert isinstance(self.provisioner, KernelProvisioner)
        self.spare = False
        await self.provisioner.hand_over(session_variables.get({}))

    def write_connection_file(self, **kwargs: Any) -> None:
        """Chooses ports and writes them to the file, without keys, because other sessions' code can read it."""
        self.directory.mkdir(mode=0o700)
        manager: Any = self  # its attributes are not annotated
        info: dict[str, Any] = {"transport": self.transport, "ip": manager.ip}
        _, chosen = write_connection_file(manager.connection_file, **info)
        info |= {name: chosen[name] for name in port_names}
        for name in port_names:
            setattr(self, name, info[name])
        Path(manager.connection_file).write_text(json.dumps(info))

    def _ip_default(self) -> str:
        if self.transport != "ipc":
            return "127.0.0.1"  # Jupyter would look up all addresses of this machine with psutil
        # Socket paths must be short (`ipybox.support.scratch`), and Jupyter's own name has 50 characters.
        return str(self.directory / "c")

    @property
    def kernel_spec(self) -> KernelSpec:
        """An empty kernel spec. Jupyter searches for a file, which another session's code could have written."""
        return KernelSpec()

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        """Returns the command line of our kernel, whatever the kernel spec says.

        `-P` keeps modules in the working directory from shadowing those that the kernel imports.
        """
        limits = [str(limit or 0) for limit in (self.memory_limit, self.process_limit)]
        return [sys.executable, "-P", "-m", "ipybox.guest.kernel", self.connection_file, str(os.getpid()), *limits]

    async def _async_pre_start_kernel(self, *, spare: bool = False, **kwargs: Any) -> tuple[list[str], dict[str, Any]]:
        self.spare = spare
        # The manager's traits are not annotated.
        traits: dict[str, Any] = {"kernel_id": cast(Any, self).kernel_id, "kernel_spec": self.kernel_spec}
        self.provisioner = KernelProvisioner(parent=self, **traits)
        return await super()._async_pre_start_kernel(**kwargs)

    async def _async_launch_kernel(self, kernel_cmd: list[str], **kwargs: Any) -> None:
        own = {descendants.KERNEL_ID: cast(Any, self).kernel_id, "IPYTHONDIR": str(self.directory / "ipython")}
        kwargs["env"] = self.environment | own
        assert isinstance(self.provisioner, KernelProvisioner)
        await self.provisioner.launch_kernel(kernel_cmd, **kwargs)  # Jupyter would check the file's keys
        if not self.spare:
            await self.hand_over()

    async def _async_post_start_kernel(self, **kwargs: Any) -> None:
        """Opens no connection for a later shutdown request, unlike Jupyter.

        It may arrive when code has used up all descriptors, and ZeroMQ aborts a process that can't accept it.
        https://github.com/zeromq/libzmq/blob/master/src/ipc_listener.cpp
        """
        assert self.provisioner is not None
        await self.provisioner.post_launch(**kwargs)

    async def _async_wait(self, pollinterval: float = 0.1) -> None:
        """Waits until the kernel process has ended; Jupyter polls every 0.1 s."""
        await cast(KernelProvisioner, self.provisioner).ended()

    def add_restart_callback(self, callback: Callable[[], object], event: str = "restart") -> None:
        """Calls back when the kernel process ends on its own (event `dead`)."""
        if event == "dead":
            self._dead_callbacks.append(callback)
            if self.exit is not None:
                asyncio.get_running_loop().call_soon(callback)

    def remove_restart_callback(self, callback: Callable[[], object], event: str = "restart") -> None:
        """Undoes `add_restart_callback`."""
        if event == "dead" and callback in self._dead_callbacks:
            self._dead_callbacks.remove(callback)

    def kernel_ended(self, exit_status: ExitStatus, output: GatewayOutput) -> None:
        """Records how the kernel process ended and notifies listeners, unless a shutdown was requested."""
        if self.shutting_down:
            return
        self.exit, self.left = exit_status, output.finish()
        for callback in tuple(self._dead_callbacks):
            callback()


class GuestKernelConnection(ZMQChannelsWebsocketConnection):
    """A client's WebSocket to a kernel. It reports a dead kernel immediately; Jupyter's own waits a minute."""

    _receivers: set[Any] | None = None

    def create_stream(self) -> None:
        """Connects to the kernel's channels, except for stdin, because no cell can ask for input."""
        connection: Any = self
        receivers: set[Any] = connection.kernel_manager.provisioner.output.receivers
        receivers.add(self._pass_on)
        self._receivers = receivers
        for channel in ("shell", "control"):
            connect = getattr(connection.kernel_manager, f"connect_{channel}")
            connection.channels[channel] = stream = connect(identity=connection.session.bsession)
            stream.channel = channel

    def disconnect(self) -> None:
        """Closes the connection."""
        if self._receivers is not None:
            self._receivers.discard(self._pass_on)
        cast(Any, super()).disconnect()

    def _pass_on(self, message: list[bytes]) -> None:
        cast(Any, self).handle_outgoing_message(OUTPUT, message)

    def on_restart_failed(self) -> None:
        """Reports that the kernel has died, after the text that it left behind."""
        manager = cast(GuestKernelManager, self.kernel_manager)
        for name, text in manager.left.items():
            if text:
                self._report("stream", {"name": name, "text": text})
        self._report("status", {"execution_state": "dead", EXIT: manager.exit})

    def _report(self, msg_type: str, content: dict[str, Any]) -> None:
        session: Any = self.session
        data = cast(Any, connections).serialize_msg_to_ws_v1(session.msg(msg_type, content), "iopub", session.pack)
        cast(Any, self).write_message(data, binary=True)

    async def prepare(self) -> None:
        """Waits until the kernel answers.

        Raises:
            HTTPError: 410 if its process has ended, because it won't be restarted.
        """
        provisioner: KernelProvisioner = cast(Any, self.kernel_manager).provisioner
        ended = asyncio.ensure_future(provisioner.ended())
        await until_one_ends(cast(Any, super()).prepare(), ended)
        if not ended.cancelled():
            raise HTTPError(410, reason="Kernel Died")

    def nudge(self) -> asyncio.Future[None]:
        """Returns a future that is done: no output is missed. Jupyter would wait for the first."""
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


class GuestMultiKernelManager(SeedingMappingKernelManager):
    """The gateway's kernels, which can start concurrently. Their activity is not monitored.

    Jupyter's own manager receives a second copy of all output to measure how long a kernel has been idle.
    """

    #: Whether to keep a spare kernel if kernels are forked.
    keep_spare: ClassVar[bool] = False

    def __init__(self, *args: Any, **kwargs: Any):
        cast(Any, super()).__init__(*args, **kwargs)
        keeps = self.keep_spare and GuestKernelManager.template is not None
        self.spare = Spare(self._make_spare, self._discard) if keeps else None

    def list_kernels(self) -> list[dict[str, Any]]:
        """Returns the kernels of sessions, without a spare one."""
        models: list[dict[str, Any]] = cast(Any, super()).list_kernels()
        return [model for model in models if not cast(GuestKernelManager, self.get_kernel(model["id"])).spare]

    def kernel_model(self, kernel_id: str) -> dict[str, Any]:
        """Returns the description of a kernel, including the modules that are not preloaded."""
        model: dict[str, Any] = cast(Any, super()).kernel_model(kernel_id)
        template = GuestKernelManager.template
        return model if template is None else model | {NOT_PRELOADED: template.not_preloaded}

    async def start_kernel(self, **kwargs: Any) -> str:
        """Starts a kernel, or hands over the spare one, and returns its id."""
        try:
            os.getcwd()
        except FileNotFoundError:
            # A new directory of the same name is a different one, which this process and its sandbox can't reach.
            raise HTTPError(409, "the working directory was deleted: create it and restart ipybox") from None
        start = cast(Any, super()).start_kernel
        if self.spare is None:
            return await start(**kwargs)
        try:
            if kwargs.get("path") or (spare := await self.spare.claim()) is None:
                return await start(**kwargs)
            await spare.hand_over()
            return spare.kernel_id
        finally:
            self.spare.start_later()

    async def _make_spare(self) -> GuestKernelManager:
        return cast(GuestKernelManager, self.get_kernel(await cast(Any, super()).start_kernel(spare=True)))

    async def _discard(self, kernel: GuestKernelManager) -> None:
        await cast(Any, self).shutdown_kernel(cast(Any, kernel).kernel_id, now=True)

    def _handle_kernel_died(self, kernel_id: str) -> None:
        """Keeps a dead kernel for its client; Jupyter would remove it, even during its start."""

    def start_watching_activity(self, kernel_id: str) -> None:
        """Records that the kernel has started; later activity is not recorded."""
        kernel: Any = self.get_kernel(kernel_id)
        kernel.reason = ""
        kernel.last_activity = datetime.now(UTC)
        kernel.execution_state = "idle"
