"""The part that executors share: the tool server, and the gateway process, which is also the sandbox.

Each executor has its own kernel in the gateway. The first executor starts the gateway, the last one stops it. The
first executor to notice that the gateway died or stopped answering replaces it. All its kernels are lost; every other
executor gets a new kernel at its next execution.
"""

import asyncio
import socket
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from ipybox.code_exec.config import ExecutorConfig
from ipybox.guest.protocol import APPROVE_COMMANDS, DISPLAY_DATA_VARIABLE, REQUIRE_ESCAPE, SHELL_VARIABLE
from ipybox.guest.tools.protocol import TOKEN_VARIABLE
from ipybox.kernel_mgr.server import KernelGateway
from ipybox.support.gc_pause import gc_paused
from ipybox.tool_exec.caller import ToolCaller

if TYPE_CHECKING:
    from ipybox.engine.gateway import EngineGateway
    from ipybox.engine.settings import Engine
    from ipybox.jupyter_engine.gateway import JupyterGateway
    from ipybox.kernel_mgr.remote_kernel import RemoteKernel
    from ipybox.support.endpoint import Endpoint
    from ipybox.tool_exec.functions.function_tools import FunctionTools
    from ipybox.tool_exec.server import ToolServer


#: A gateway on this machine, where an engine runs it, or of a Jupyter server.
Gateway: TypeAlias = "KernelGateway | EngineGateway | JupyterGateway"


class SharedRuntime:
    """Owns a gateway process and a tool server, from the first entry of its context to the last exit.

    Args:
        config: The configuration of all executors that share this.
        first: The kernel of the executor that creates the runtime. The gateway starts it before the executor asks.

    Raises:
        SandboxError: If the settings of the sandbox can't be read or are wrong.
        ValueError: If there are sandbox settings without `sandbox`, or a limit is too low.
    """

    def __init__(self, config: ExecutorConfig, first: ToolCaller):
        self._config = config
        self._first = first
        self.gateway = self._new_gateway()
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
        """The tool server, which exists within the context."""
        assert self._tool_server is not None
        return self._tool_server

    def new_kernel(self, gateway: "Gateway", caller: ToolCaller, *, first: bool) -> "RemoteKernel":
        """Returns a kernel of the gateway for an executor; the gateway does not create it yet.

        Args:
            gateway: The gateway.
            caller: The kernel, as a source of tool calls.
            first: Whether the executor had no kernel since its start.
        """
        from ipybox.kernel_mgr.remote_kernel import RemoteKernel

        if self._config.server is not None:
            from ipybox.jupyter_engine.gateway import JupyterGateway

            assert isinstance(gateway, JupyterGateway)
            return gateway.kernel(caller.token, adopt=first and caller is self._first)
        # The gateway has the variables of the first executor's kernel.
        env = None if caller is self._first else {TOKEN_VARIABLE: caller.token}
        return RemoteKernel(gateway.endpoint, env, heartbeat=None, init_timeout=self._config.kernel_init_timeout)

    async def prepare(self) -> None:
        """Starts the gateway process and its first kernel in the background, which saves time later.

        An engine starts later: a scheduler's job should not wait for a first cell. A Jupyter server runs already.

        Raises:
            OSError, SandboxError: If the process can't be started.
        """
        async with self._entrance:
            if self._config.known_engine is not None or self._config.server is not None:
                return
            if self._users == 0 and self.gateway.port is None and not self.gateway.spawned:
                self.gateway = gateway = self._local_gateway()
                await gateway.spawn()

    async def discard(self) -> None:
        """Stops the gateway that `prepare` started, if no executor uses it."""
        async with self._entrance:
            if self._users == 0:
                await self._stop_gateway()

    async def kill_gateway(self, gateway: "Gateway") -> None:
        """Kills a gateway that does not answer."""
        async with self._gateway_lock:
            await gateway.stop(timeout=0)

    async def replace_gateway(self, lost: "Gateway") -> None:
        """Starts a new gateway in place of a lost one, unless another executor already did.

        Raises:
            GatewayError: If it does not start.
            OSError: If a given port is taken.
            SandboxError: If the sandbox can't start.
        """
        async with self._gateway_lock:
            if self.gateway is lost or not self.gateway.running:
                await self.gateway.stop()
                self.gateway = self._new_gateway()
                await self.gateway.start()

    async def _start(self) -> None:
        async with AsyncExitStack() as resources:
            # Importing aiohttp takes about as long as the gateway process needs to start.
            components = asyncio.create_task(asyncio.to_thread(_load_components))
            resources.push_async_callback(asyncio.wait, [components])
            resources.push_async_callback(self._stop_gateway)
            if self._config.functions is not None:
                await asyncio.to_thread(_write_package, self._config.functions, self._config.workspace)
            if not self.gateway.spawned:
                self.gateway = self._new_gateway()
            await self.gateway.start()
            await components
            self._tool_server = await resources.enter_async_context(self._new_tool_server())
            resources.callback(self._forget_tool_server)
            self._resources = resources.pop_all()

    async def _stop_gateway(self) -> None:
        async with self._gateway_lock:
            await self.gateway.stop()

    def _new_gateway(self) -> "Gateway":
        config = self._config
        if config.server is not None:
            return self._jupyter_gateway(config.server)
        if config.known_engine is not None:
            return self._engine_gateway(config.known_engine)
        return self._local_gateway()

    def _engine_gateway(self, engine: "Engine") -> "EngineGateway":
        from ipybox.engine.gateway import EngineGateway, NodeConfig

        config = self._config
        node = NodeConfig(
            workspace=config.workspace,
            env=self._kernels_env(),
            sandbox=config.settings,
            limits=config.limits,
            default_memory=config.sandbox and config.memory_limit is None,
            log_level=config.log_level,
            preload=config.preload,
            spare_kernel=config.spare_kernel,
        )
        return EngineGateway(engine, node, config.queue_timeout, self._accept_kernel_connection)

    def _kernels_env(self) -> dict[str, str]:
        config = self._config
        env = {TOKEN_VARIABLE: self._first.token, **(config.kernel_env or {})}
        if config.display_data:
            env[DISPLAY_DATA_VARIABLE] = "1"
        if config.approve_shell_cmds:
            env[SHELL_VARIABLE] = REQUIRE_ESCAPE if config.require_shell_escape else APPROVE_COMMANDS
        return env

    def _local_gateway(self) -> KernelGateway:
        config = self._config
        return KernelGateway(
            config.kernel_gateway_host,
            config.kernel_gateway_port,
            sandbox=config.sandbox,
            sandbox_config=config.settings or config.sandbox_config,
            allowed_domains=config.allowed_domains,
            log_level=config.log_level,
            env=self._kernels_env(),
            working_dir=None if config.working_dir is None else Path(config.working_dir),
            on_tool_connection=self._accept_kernel_connection,
            limits=config.limits,
            prespawn=True,
            preload=config.preload,
            spare_kernel=config.spare_kernel,
        )

    def _jupyter_gateway(self, server: "Endpoint") -> "JupyterGateway":
        from ipybox.codeact.library import MCPTOOLS
        from ipybox.jupyter_engine.gateway import JupyterGateway

        config = self._config
        return JupyterGateway(
            server,
            kernel_name=config.kernel_name or "python3",
            kernel_id=config.kernel_id,
            kernel_env=config.kernel_env or {},
            packages=config.workspace / MCPTOOLS,
            init_timeout=config.kernel_init_timeout,
            on_tool_connection=self._accept_kernel_connection,
        )

    def _new_tool_server(self) -> "ToolServer":
        from ipybox.tool_exec.server import ToolServer

        config = self._config
        # Without a sandbox, pip may run code of packages on this machine. Code on another one must not cause that.
        unconfined_node = config.engine is not None and not config.sandbox
        return ToolServer(
            config.tool_server_host,
            config.tool_server_port,
            approval_required=True,
            approval_timeout=config.approval_timeout,
            connect_timeout=config.connect_timeout,
            sealed_workspace=config.untrusted_root,
            caller=self._first,
            install=None if config.server is not None or unconfined_node else self._install_package,
            places=config.writable_places,
            variables=config.placeholder_values,
            functions=config.functions,
            shell_commands=config.approve_shell_cmds,
        )

    async def _install_package(self, specifier: str) -> str:
        from ipybox.workspace.packages import PackageInstaller

        # The tool server records the installation.
        installer = PackageInstaller(self._config.workspace, self._config.settings)
        installed = await installer.install(specifier, by_code=True)
        return "\n".join([installed, *await self.gateway.send_files()])

    def _forget_tool_server(self) -> None:
        self._tool_server = None

    def _accept_kernel_connection(self, connection: socket.socket) -> None:
        if self._tool_server is None:
            connection.close()
        else:
            self._tool_server.accept_kernel_connection(connection)


def _write_package(functions: "FunctionTools", workspace: Path) -> None:
    """Writes the package of the application's functions. The generator is imported only for them."""
    from ipybox.code_exec.function_package import write_package

    write_package(functions, workspace)


def _load_components() -> None:
    """Imports the modules that a start needs after the gateway process; not the MCP SDK, which no start needs."""
    with gc_paused():
        for module in ("kernel_mgr.client", "tool_exec.server", "audit.redaction"):
            import_module(f"ipybox.{module}")
