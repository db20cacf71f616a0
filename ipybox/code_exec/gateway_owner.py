"""The owner of a kernel gateway: creates, starts, replaces and stops it.

A gateway on this machine runs the kernels of all executors of a `SharedRuntime`. The first executor starts it, the last
one stops it. The first executor to notice that the gateway died or hangs replaces it; the others get a new kernel at
their next execution. An engine's gateway is a scheduler job, and each executor has its own.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Self

from ipybox.code_exec.config import ExecutorConfig
from ipybox.guest.protocol import APPROVE_COMMANDS, REQUIRE_ESCAPE, SHELL_VARIABLE
from ipybox.kernel_mgr.gateway import Gateway, GatewaySetup
from ipybox.support.acceptor import AcceptedSocket
from ipybox.support.errors import GatewayError
from ipybox.tool_exec.dispatch import ToolCaller


class GatewayOwner:
    """Owns a gateway, from the first entry of its context to the last exit.

    Args:
        config: The configuration of the executors that use the gateway.
        first: The kernel of the executor whose recorder receives the job events.
        on_tool_connection: Receives each connection from a kernel to the tool server.
    """

    def __init__(self, config: ExecutorConfig, first: ToolCaller, on_tool_connection: AcceptedSocket):
        self._config = config
        self._first = first
        self._on_tool_connection = on_tool_connection
        #: The gateway that runs, or will run.
        self.gateway = self._new_gateway()
        self._users = 0
        #: Held while the gateway starts, is replaced, or stops.
        self._lock = asyncio.Lock()
        #: Number of `withdrawn` contexts in progress.
        self._withdrawals = 0

    async def __aenter__(self) -> Self:
        async with self._lock:
            if self._users == 0:
                if not self.gateway.spawned:
                    self.gateway = self._new_gateway()
                await self._start()
            self._users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self._lock:
            self._users -= 1
            if self._users == 0:
                await self.gateway.stop()

    async def prepare(self) -> None:
        """See `CodeExecutor.prepare`."""
        async with self._lock:
            if self._users == 0 and not self.gateway.spawned:
                self.gateway = self._new_gateway()
                await self.gateway.spawn()

    async def discard(self) -> None:
        """Stops the gateway that `prepare` started, if no executor uses it."""
        async with self._lock:
            if self._users == 0:
                await self.gateway.stop()

    async def kill(self, gateway: Gateway) -> None:
        """Kills a gateway that does not answer."""
        async with self._lock:
            await gateway.stop(timeout=0)

    async def replace(self, lost: Gateway) -> None:
        """Replaces a lost gateway with a new one, unless another executor has; raises as `Gateway.start`."""
        async with self._lock:
            if self.gateway is lost or not self.gateway.running:
                former, self.gateway = self.gateway, self._new_gateway()
                await former.stop()
                await self._start()

    @contextmanager
    def withdrawn(self) -> Generator[None]:
        """Cancels the wait for an engine's node: starts and replacements fail, including later ones in the context.

        Does nothing with a shared gateway: a start takes seconds, and others may use the gateway.
        """
        if self.gateway.shared:
            yield
            return
        self._withdrawals += 1
        self.gateway.withdraw()
        try:
            yield
        finally:
            self._withdrawals -= 1

    def _new_gateway(self) -> Gateway:
        config = self._config
        env = dict(config.kernel_env or {})
        if config.approve_shell_cmds:
            env[SHELL_VARIABLE] = REQUIRE_ESCAPE if config.require_shell_escape else APPROVE_COMMANDS
        setup = GatewaySetup(
            env=env,
            sandbox=config.settings,
            limits=config.limits,
            log_level=config.log_level,
            preload=config.preload,
            spare_kernel=config.spare_kernel,
        )
        return config.new_gateway(setup, self._on_tool_connection, self._first.recorder.job)

    async def _start(self) -> None:
        """Starts the gateway, which cleans up after itself if that fails."""
        if self._withdrawals:
            raise GatewayError("the request for a node was cancelled")
        await self.gateway.start()
