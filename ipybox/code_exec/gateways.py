"""Creates kernel gateways: on this machine, or where an engine's command puts them."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ipybox.code_exec.config import ExecutorConfig
from ipybox.guest.protocol import APPROVE_COMMANDS, REQUIRE_ESCAPE, SHELL_VARIABLE
from ipybox.guest.tools.protocol import TOKEN_VARIABLE
from ipybox.kernel_mgr.server import KernelGateway
from ipybox.support.acceptor import AcceptedSocket
from ipybox.tool_exec.caller import ToolCaller

if TYPE_CHECKING:
    from ipybox.engine.gateway import EngineGateway
    from ipybox.engine.settings import Engine

#: A gateway on this machine, or where an engine runs it.
Gateway: TypeAlias = "KernelGateway | EngineGateway"


def new_gateway(config: ExecutorConfig, first: ToolCaller, on_tool_connection: AcceptedSocket) -> Gateway:
    """Returns a gateway that has not started.

    Args:
        config: The configuration of its executors.
        first: The kernel that the gateway starts before its executor asks.
        on_tool_connection: Receives each connection of code in a kernel to the tool server.

    Raises:
        SandboxError: If the settings of the sandbox can't be read or are wrong.
        TypeError, ValueError: If there is no such engine, there are sandbox settings without `sandbox`, or a limit is
            too low.
    """
    if config.known_engine is not None:
        return _engine_gateway(config, config.known_engine, first, on_tool_connection)
    return _local_gateway(config, first, on_tool_connection)


def _local_gateway(config: ExecutorConfig, first: ToolCaller, on_tool_connection: AcceptedSocket) -> KernelGateway:
    return KernelGateway(
        config.kernel_gateway_host,
        config.kernel_gateway_port,
        sandbox=config.sandbox,
        sandbox_config=config.settings or config.sandbox_config,
        allowed_domains=config.allowed_domains,
        log_level=config.log_level,
        env=_kernels_env(config, first),
        working_dir=None if config.working_dir is None else Path(config.working_dir),
        on_tool_connection=on_tool_connection,
        limits=config.limits,
        prespawn=True,
        preload=config.preload,
        spare_kernel=config.spare_kernel,
    )


def _engine_gateway(
    config: ExecutorConfig, engine: "Engine", first: ToolCaller, on_tool_connection: AcceptedSocket
) -> "EngineGateway":
    from ipybox.engine.gateway import EngineGateway
    from ipybox.node.protocol import Start

    start = Start(
        workspace=str(config.workspace),
        proof="",
        env=_kernels_env(config, first),
        sandbox=config.settings,
        limits=config.limits,
        default_memory=config.sandbox and config.memory_limit is None,
        log_level=config.log_level,
        preload=list(config.preload),
        spare_kernel=config.spare_kernel,
    )
    return EngineGateway(engine, start, config.queue_timeout, on_tool_connection, first.recorder.job)


def _kernels_env(config: ExecutorConfig, first: ToolCaller) -> dict[str, str]:
    env = {TOKEN_VARIABLE: first.token, **(config.kernel_env or {})}
    if config.approve_shell_cmds:
        env[SHELL_VARIABLE] = REQUIRE_ESCAPE if config.require_shell_escape else APPROVE_COMMANDS
    return env
