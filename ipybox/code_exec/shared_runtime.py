"""What an executor shares with its siblings: the tool server and, without an engine, the gateway."""

import asyncio
import os
import socket
from contextlib import AsyncExitStack
from importlib import import_module
from typing import TYPE_CHECKING
from weakref import WeakSet

from ipybox.code_exec.config import ExecutorConfig
from ipybox.code_exec.gateway_owner import GatewayOwner
from ipybox.support.gc_pause import gc_paused
from ipybox.tool_exec.dispatch import ToolCaller

if TYPE_CHECKING:
    from ipybox.tool_exec.server import ToolServer

_NO_LOOP = (
    "CodeExecutor needs a running asyncio event loop: without asyncio, run ipybox.Executor in a thread, for example "
    "with trio.to_thread.run_sync()"
)
FORKED = "the executor was started in the parent process and can't be used in a forked child: create another one here"
_OTHER_LOOP = (
    "the code executor was started in another event loop: call it there with asyncio.run_coroutine_threadsafe(), or "
    "use ipybox.Executor, which works in any thread"
)
_CLOSED_LOOP = (
    "the code executor was started in an event loop that is closed now: create another one, and stop it before its "
    "event loop ends, for example with `async with`, or use ipybox.Executor, which needs no event loop"
)


class SharedRuntime:
    """Owns a tool server, from the first entry of its context, which returns it, to the last exit.

    Args:
        config: The configuration of all executors that share this.
        first: The kernel of the executor that creates the runtime.
    """

    def __init__(self, config: ExecutorConfig, first: ToolCaller):
        self._config = config
        self._first = first
        #: The owners of all existing executors' gateways.
        self._owners = WeakSet[GatewayOwner]()
        self._gateways = self._new_owner(first)
        self._tool_server: ToolServer | None = None
        self._users = 0
        #: The event loop and the process of the running executors.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()
        self._entrance = asyncio.Lock()
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> "ToolServer":
        self.check_loop()
        async with self._entrance:
            if self._users == 0:
                await asyncio.to_thread(_load_components)
                if (functions := self._config.functions) is not None:
                    from ipybox.code_exec.function_package import write_package

                    await asyncio.to_thread(write_package, functions, self._config.workspace)
                self._tool_server = await self._resources.enter_async_context(self._new_tool_server())
                self.hold_loop()
            self._users += 1
            assert self._tool_server is not None
            return self._tool_server

    async def __aexit__(self, *_: object) -> None:
        async with self._entrance:
            self._users -= 1
            if self._users == 0:
                self._tool_server = None
                self.release_loop()
                await self._resources.aclose()

    @property
    def forked(self) -> bool:
        """Whether this is a forked child of the process in which executors run."""
        return self._loop is not None and self._process != os.getpid()

    @property
    def stranded(self) -> bool:
        """Whether executors run in a closed event loop, so that nothing can stop them."""
        return self._loop is not None and self._loop.is_closed()

    def check_loop(self) -> None:
        """Raises a RuntimeError if calls would wait forever.

        That happens if no asyncio event loop runs here, such as under trio, or if executors run in another loop or in
        the parent process.
        """
        if self._loop is not None and self._process != os.getpid():
            raise RuntimeError(FORKED)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(_NO_LOOP) from None
        if self._loop is not None and self._loop is not loop:
            raise RuntimeError(_CLOSED_LOOP if self.stranded else _OTHER_LOOP)

    def hold_loop(self) -> None:
        """Binds all executors to the running event loop."""
        self._loop, self._process = asyncio.get_running_loop(), os.getpid()

    def release_loop(self) -> None:
        """Lets executors use another event loop, unless one of them is running."""
        if self._users == 0:
            self._loop = None

    def gateways(self, caller: ToolCaller) -> GatewayOwner:
        """Returns the owner of the gateway for an executor's kernel."""
        if caller is self._first or self._gateways.gateway.shared:
            return self._gateways
        return self._new_owner(caller)

    def _new_owner(self, caller: ToolCaller) -> GatewayOwner:
        owner = GatewayOwner(self._config, caller, self._accept_kernel_connection)
        self._owners.add(owner)
        return owner

    def _new_tool_server(self) -> "ToolServer":
        from ipybox.tool_exec.server import ToolServer

        config = self._config
        # Without a sandbox, uv may run packages' code on this machine. A remote kernel must not cause that.
        unconfined_node = config.engine is not None and not config.sandbox
        return ToolServer(
            config.tool_server_host,
            config.tool_server_port,
            connect_timeout=config.connect_timeout,
            sealed_workspace=config.untrusted_root,
            caller=self._first,
            install=None if unconfined_node else self._install_package,
            places=config.writable_places,
            read_variables=config.placeholder_values,
            functions=config.functions,
            shell_commands=config.approve_shell_cmds,
        )

    async def _install_package(self, specifier: str, remove: bool) -> str:
        from ipybox.kernel_mgr.packages import PackageInstaller

        # The tool server records it.
        installer = PackageInstaller(self._config.workspace, self._config.settings)
        work = installer.uninstall(specifier) if remove else installer.install(specifier, by_code=True)
        done = await work
        notices = await asyncio.gather(*(owner.gateway.push_files() for owner in self._owners))
        return "\n".join([done, *dict.fromkeys(notice for each in notices for notice in each)])

    def _accept_kernel_connection(self, connection: socket.socket) -> None:
        if self._tool_server is None:
            connection.close()
        else:
            self._tool_server.accept_kernel_connection(connection)


def _load_components() -> None:
    """Imports the modules that a start needs, except the MCP SDK, while the gateway process starts."""
    with gc_paused():
        for module in ("kernel_mgr.client", "tool_exec.server", "audit.redaction"):
            import_module(f"ipybox.{module}")
