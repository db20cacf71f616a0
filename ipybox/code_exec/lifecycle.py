"""The kernel of one executor, from start to stop, even if its process or the gateway dies.

Components start in this order: gateway process (`gateway_owner`), tool server (`shared_runtime`), kernel, and stop in
reverse order. If the kernel or its gateway has died, `ensure_kernel` starts a new one before the next execution.
"""

import asyncio
import enum
import errno
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ipybox.code_exec.config import ExecutorConfig
from ipybox.code_exec.shared_runtime import SharedRuntime
from ipybox.guest.protocol import DIRECTORY_VARIABLE
from ipybox.guest.tools.protocol import TOKEN_VARIABLE
from ipybox.support.errors import CodeExecutionError, GatewayError, SandboxError
from ipybox.support.tasks import TaskSet
from ipybox.tool_exec.dispatch import ToolCaller

if TYPE_CHECKING:
    from ipybox.kernel_mgr.attach.relay import KernelRelay
    from ipybox.kernel_mgr.client import KernelClient

logger = logging.getLogger(__name__)

CAME = "A person is connected to this kernel: variables may change between cells."
LEFT = "The person connected to this kernel has disconnected: variables may have changed."


class _State(enum.Enum):
    NEW = "has not been started: call start(), or use `async with`"
    STARTED = "is running"
    STOPPED = "has been stopped"


class KernelLifecycle:
    """Starts, replaces and stops the kernel of one executor. The kernel is the `caller` of tools.

    It runs in `directory`; by default, in the workspace.
    """

    def __init__(self, config: ExecutorConfig, runtime: SharedRuntime, caller: ToolCaller, directory: Path | None):
        self._config = config
        self._directory = directory
        self._runtime = runtime
        self._gateways = runtime.gateways(caller)
        self._caller = caller
        self._recorder = caller.recorder
        self._state = _State.NEW
        self._resources = AsyncExitStack()
        self._tasks = TaskSet()
        #: Held while the executor starts, stops or gets a new kernel.
        self._lock = asyncio.Lock()
        self._reset_mcp_servers: Callable[[], Awaitable[None]] | None = None
        #: The gateway that runs, or last ran, this executor's kernel.
        self.gateway = self._gateways.gateway
        self.client: KernelClient | None = None
        #: The id of the kernel whose state the consumer expects. If another one runs, the loss is not reported yet.
        self.expected_kernel_id = ""
        #: How the process of the last kernel that died exited, see `KernelChannels.exit`.
        self.exit = ""
        #: Notices for the next result, error or timeout.
        self.notices: list[str] = []
        #: The number of relays with clients.
        self._present = 0

    @property
    def running(self) -> bool:
        """Whether the executor was started and has not been stopped."""
        return self._state is _State.STARTED

    @property
    def forked(self) -> bool:
        """Whether this is a forked child of the executor's process."""
        return self._runtime.forked

    @property
    def waits_for(self) -> str:
        """What the gateway of an engine or a batch of calls waits for; empty if neither waits."""
        return self._gateways.gateway.waits_for or next(iter(self._caller.batches.values()), "")

    def check_running(self) -> None:
        """Raises a RuntimeError if the executor is not running, or belongs to another event loop."""
        if self._state is not _State.STARTED:
            raise RuntimeError(f"the code executor {self._state.value}")
        self._runtime.check_loop()

    async def prepare(self) -> None:
        """See `CodeExecutor.prepare`."""
        self._runtime.check_loop()
        async with self._lock:
            if self._state is _State.NEW:
                self._runtime.hold_loop()
                self._resources.callback(self._runtime.release_loop)
                self._resources.push_async_callback(self._gateways.discard)
                await self._gateways.prepare()

    async def start(self) -> None:
        """See `CodeExecutor.start`. If the caller is cancelled, everything stops again."""
        self._runtime.check_loop()
        await self._tasks.undo(self._start(), lambda _: self._stop())

    async def stop(self) -> None:
        """See `CodeExecutor.stop`. Continues if the caller is cancelled.

        Does nothing in a forked child. If the event loop that started the executor is closed, only ends the gateway.
        """
        if self._runtime.forked or self._runtime.stranded:
            self.abandon()
            return
        self._runtime.check_loop()
        await self._tasks.finish(self._stop())

    def abandon(self) -> None:
        """Ends the gateway and all its kernels for good if the event loop is closed."""
        if self._runtime.stranded and not self._runtime.forked:
            self._state = _State.STOPPED if self.running else self._state
            self.gateway.abandon()

    def withdraw(self) -> None:
        """Cancels a wait for an engine's node: the operation in progress that needs a node fails."""
        self._tasks.start(self._withdraw())

    async def _withdraw(self) -> None:
        with self._gateways.withdrawn():
            async with self._lock:  # wait for the operation in progress, which may not have requested the node yet
                pass

    async def reset(self) -> None:
        """See `CodeExecutor.reset`. Continues if the caller is cancelled, but then waits for no node."""
        self.check_running()
        self._recorder.session("reset")
        try:
            await self._tasks.finish(self._reset())
        except asyncio.CancelledError:
            self.withdraw()
            raise

    async def ensure_kernel(self) -> "KernelClient":
        """Returns the client of a kernel that can run code. Replaces a dead one, even if the caller is cancelled.

        Raises:
            CodeExecutionError: If a new kernel can't be started.
            RuntimeError: If the executor is not running.
        """
        if self._lock.locked() or self.client is None or not self.client.idle:
            await self._tasks.finish(self._revive())
            self.check_running()
        client = self.client
        assert client is not None
        self.notices += await self.gateway.push_files()
        return client

    async def surviving_kernel(self) -> "KernelClient":
        """Returns the client of the kernel that still has the state of earlier executions.

        Raises:
            CodeExecutionError: If that kernel died or was restarted.
            RuntimeError: If the executor is not running.
        """
        async with self._lock:  # a reset in progress starts a kernel
            self.check_running()
            if self.client is not None:
                await self.client.recovered()
                if self.client.alive and self.client.kernel_id == self.expected_kernel_id:
                    return self.client
        raise CodeExecutionError("the kernel died or was restarted: its variables are lost")

    @asynccontextmanager
    async def attached(self, name: str) -> "AsyncGenerator[KernelRelay]":
        """See `CodeExecutor.attach`."""
        from ipybox.kernel_mgr.attach.relay import KernelRelay

        kernel = (await self.ensure_kernel()).remote_kernel
        confined = self._config.untrusted_root is not None
        relay = KernelRelay(kernel, name, confined=confined, on_presence=self._note_presence)
        await self._tasks.undo(relay.start(), lambda _: relay.close())
        try:
            yield relay
        finally:
            await self._tasks.finish(relay.close())

    def _note_presence(self, present: bool) -> None:
        """Records that the first client of a relay has connected, or its last one has disconnected."""
        self._present += 1 if present else -1
        if self._present != int(present):  # another relay has clients
            return
        self._recorder.session("attach" if present else "detach")
        # An agent that has not read the previous notice needs only the latest one.
        self.notices[:] = [notice for notice in self.notices if notice not in (CAME, LEFT)]
        self.notices.append(CAME if present else LEFT)

    async def _revive(self) -> None:
        async with self._lock:  # a reset in progress starts a kernel
            self.check_running()
            if self.client is not None:
                await self.client.recovered()
                if self.client.alive:
                    return
                self.exit = self.client.remote_kernel.channels.exit
            logger.warning("the kernel died: starting a new one")
            try:
                await self._renew_kernel()
            except (GatewayError, SandboxError, OSError) as exc:
                raise CodeExecutionError(f"the kernel died and could not be restarted: {exc}") from exc

    async def _start(self) -> None:
        async with self._lock:
            if self._state is _State.STARTED:
                raise RuntimeError("the code executor is already running")
            await self._recorder.require()
            place = self._directory or self._config.workspace
            if not place.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "no such working directory", str(place))
            self.expected_kernel_id = ""
            async with AsyncExitStack() as resources:
                resources.push_async_callback(self._gateways.discard)
                await self._gateways.prepare()
                tool_server = await resources.enter_async_context(self._runtime)
                await resources.enter_async_context(self._gateways)
                servers = await resources.enter_async_context(tool_server.serving(self._caller))
                self._reset_mcp_servers = servers.reset
                resources.push_async_callback(self._end)
                client = await self._connect()
                self.expected_kernel_id = client.kernel_id
                policy = self._config.policy
                if policy is not None and policy.untrusted is not None:
                    self.notices.append(policy.untrusted)
                self._recorder.session("start", sandbox=self._config.sandbox)
                await self._recorder.flush()
                self._resources = resources.pop_all()
            self._state = _State.STARTED

    async def _stop(self) -> None:
        # A start in progress completes first. Only a wait for a node, which may take long, is cancelled.
        with self._gateways.withdrawn():
            async with self._lock:
                was_started = self.running
                self._state = _State.STOPPED if was_started else self._state
                await self._resources.aclose()
                if was_started:
                    self._recorder.session("stop")
                    await self._recorder.close()

    async def _end(self) -> None:
        """Ends the kernel and its MCP servers concurrently: both may take a while."""
        assert self._reset_mcp_servers is not None
        await asyncio.gather(self._disconnect(), self._reset_mcp_servers())

    async def _reset(self) -> None:
        assert self._reset_mcp_servers is not None
        async with self._lock:
            self.check_running()
            client, _ = await asyncio.gather(self._renew_kernel(), self._reset_mcp_servers())
            self.expected_kernel_id = client.remote_kernel.id or ""

    async def _renew_kernel(self) -> "KernelClient":
        """Replaces the kernel; replaces the gateway only if it is lost, because it also runs other kernels."""
        client = self.client
        if client is not None and not client.remote_kernel.lost:
            try:
                await client.replace_kernel()
                return client
            except GatewayError as exc:
                if self.gateway.running and not client.remote_kernel.lost:
                    raise
                logger.warning("the kernel gateway died as well: %s", exc)
        await self._disconnect()
        return await self._connect()

    async def _connect(self) -> "KernelClient":
        """Creates a kernel, in a new gateway if the current one was lost."""
        if (client := await self._join_gateway()) is None:
            await self._gateways.replace(self.gateway)
            if (client := await self._join_gateway()) is None:
                raise GatewayError("the kernel gateway exited while the kernel was starting")
        return client

    async def _join_gateway(self) -> "KernelClient | None":
        """Creates a kernel in the current gateway; returns None if that is lost."""
        from ipybox.kernel_mgr.client import KernelClient
        from ipybox.kernel_mgr.remote_kernel import preload_notices

        gateway = self._gateways.gateway
        if not gateway.running:  # ended, or being started by another executor
            return None
        self.gateway = gateway
        env, images = {TOKEN_VARIABLE: self._caller.token}, self._config.images
        if self._directory is not None:
            env[DIRECTORY_VARIABLE] = str(self._directory)
            images = images if self._config.images_dir else self._directory / "images"
        client = KernelClient(
            images_dir=images,
            untrusted_root=self._config.untrusted_root,
            workspace=self._directory or self._config.workspace,
            kernel_init_timeout=self._config.kernel_init_timeout,
            endpoint=gateway.endpoint,
            env=env,
        )
        client.on_interrupt = self._caller.approvals.end_batches
        try:
            await client.connect(retries=0)
        except (GatewayError, RuntimeError):
            if client.remote_kernel.lost:
                await self._gateways.kill(gateway)  # it would not exit by itself
            if gateway.running:
                raise
            return None
        self.client = client
        self.notices += gateway.notices
        if self._config.preload:
            self.notices += preload_notices(self._config.preload, client.remote_kernel.description)
        return client

    async def _disconnect(self) -> None:
        client, self.client = self.client, None
        if client is None:
            return
        if client.remote_kernel.lost:
            await self._gateways.kill(self.gateway)  # it would not exit by itself
        await client.disconnect()
