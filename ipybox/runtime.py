"""What executors share: the gateway process, which is the sandbox, too, and the tool server.

Each executor has a kernel of its own in that gateway, which the first one starts and the last one stops. Who finds it
lost replaces it, and the kernels of all are lost with it; the others get theirs anew at their next execution.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Self

from ipybox.acceptor import AcceptedSocket
from ipybox.kernel_mgr.server import KernelGateway
from ipybox.loading import loading

if TYPE_CHECKING:
    from ipybox.tool_exec.server import ToolServer


class Runtime:
    """Owns a gateway process and a tool server, as long as anybody is in its context.

    Args:
        new_gateway: Makes a gateway, which gives the connections of its kernels to what it is called with.
        new_tool_server: Makes the tool server, in modules that may not be loaded before the first start.

    Raises:
        SandboxError, ValueError: As `new_gateway` does; it is tried at once.
    """

    def __init__(
        self, new_gateway: Callable[[AcceptedSocket], KernelGateway], new_tool_server: "Callable[[], ToolServer]"
    ):
        self._new_gateway = new_gateway
        self._new_tool_server = new_tool_server
        self.gateway = new_gateway(self._accept_guest)
        self._tool_server: ToolServer | None = None
        self._users = 0
        self._entrance = asyncio.Lock()
        self._gateway_lock = asyncio.Lock()
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with self._entrance:
            if self._users == 0:
                await self._start()
            self._users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self._entrance:
            self._users -= 1
            if self._users == 0:
                await self._resources.aclose()

    @property
    def tool_server(self) -> "ToolServer":
        """The tool server, which there is inside of the context."""
        assert self._tool_server is not None
        return self._tool_server

    async def prepare(self) -> None:
        """Lets gateway process and first kernel start by themselves, which takes their time, for whoever comes first.

        Raises:
            OSError, SandboxError: If it can't be started.
        """
        async with self._entrance:
            if self._users == 0 and self.gateway.port is None and not self.gateway.spawned:
                self.gateway = self._new_gateway(self._accept_guest)
                await self.gateway.spawn()

    async def discard(self) -> None:
        """Ends what `prepare` has started, if nobody has come."""
        async with self._entrance:
            if self._users == 0:
                await self._stop_gateway()

    async def _start(self) -> None:
        async with AsyncExitStack() as resources:
            # Importing aiohttp takes about as long as the gateway process needs to start.
            components = asyncio.create_task(asyncio.to_thread(_load_components))
            resources.push_async_callback(asyncio.wait, [components])
            resources.push_async_callback(self._stop_gateway)
            if not self.gateway.spawned:
                self.gateway = self._new_gateway(self._accept_guest)
            await self.gateway.start()
            await components
            self._tool_server = await resources.enter_async_context(self._new_tool_server())
            resources.callback(self._forget_tool_server)
            self._resources = resources.pop_all()

    async def drop(self, gateway: KernelGateway) -> None:
        """Ends a gateway that does not answer, now."""
        async with self._gateway_lock:
            await gateway.stop(timeout=0)

    async def replace(self, lost: KernelGateway) -> None:
        """Starts another gateway in place of one that was lost, unless somebody else has done it.

        Raises:
            GatewayError: If it does not start.
            OSError: If a given port is taken.
            SandboxError: If the sandbox can't start.
        """
        async with self._gateway_lock:
            if self.gateway is lost or not self.gateway.running:
                await self.gateway.stop()
                self.gateway = self._new_gateway(self._accept_guest)
                await self.gateway.start()

    async def _stop_gateway(self) -> None:
        async with self._gateway_lock:
            await self.gateway.stop()

    def _forget_tool_server(self) -> None:
        self._tool_server = None

    def _accept_guest(self, connection: socket.socket) -> None:
        if self._tool_server is None:
            connection.close()
        else:
            self._tool_server.accept_guest(connection)


def _load_components() -> None:
    """Imports what a start needs beyond the gateway process; not the MCP SDK, which no start needs."""
    with loading():
        for module in ("kernel_mgr.client", "tool_exec.server"):
            import_module(f"ipybox.{module}")
