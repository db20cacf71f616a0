"""Checks the options of executors whose kernels run on a Jupyter server, which is no process of this application."""

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipybox.code_exec.config import ExecutorConfig
    from ipybox.support.endpoint import Endpoint

#: Options for kernels of a Jupyter server.
SERVER_OPTIONS = ("gateway_token", "gateway_ca", "kernel_name", "kernel_id")

#: Options that confine, limit, change or move the process that otherwise runs the kernels.
LOCAL_OPTIONS = (
    "sandbox",
    "sandbox_config",
    "allowed_domains",
    "memory_limit",
    "cpu_seconds",
    "process_limit",
    "approve_shell_cmds",
    "display_data",
    "kernel_gateway_port",
    "preload",
    "engine",
    "queue_timeout",
)


def server_of(config: "ExecutorConfig") -> "Endpoint | None":
    """Returns the Jupyter server that runs the kernels; None if a process of this machine does.

    Raises:
        OSError: If the certificates can't be read.
        ValueError: If its URL or token is not possible, or an option does not apply to its kernels.
    """
    if config.gateway_url is None:
        if given := _given(config, SERVER_OPTIONS):
            raise ValueError(f"{given} is for kernels of a Jupyter server: pass its gateway_url, too")
        return None
    if given := _given(config, LOCAL_OPTIONS):
        raise ValueError(
            f"{given} does not apply to kernels of a Jupyter server, which are confined and limited there: omit "
            "it, or gateway_url"
        )
    from ipybox.jupyter_engine.address import server_endpoint
    from ipybox.kernel_mgr.remote_kernel import KERNEL_ID

    if config.kernel_id is not None and not KERNEL_ID.fullmatch(config.kernel_id):
        raise ValueError(f"kernel_id={config.kernel_id!r} can't be the id of a kernel")
    return server_endpoint(config.gateway_url, config.gateway_token, config.gateway_ca)


def _given(config: "ExecutorConfig", names: Iterable[str]) -> str | None:
    """Returns the first of the options that has a value other than its default."""
    defaults = {each.name: each.default for each in fields(config)}
    return next((name for name in names if getattr(config, name) not in (defaults[name], None, 0, [])), None)
