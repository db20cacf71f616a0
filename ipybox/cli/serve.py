"""Serves code execution over MCP until the client disconnects or a signal arrives."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipybox.cli.command import PATH, allow_descriptors, command
from ipybox.cli.option_table import command_options, given_parameters
from ipybox.cli.output import tell
from ipybox.cli.parsing import Failure, Mistake, mistakes
from ipybox.cli.running import Signals, checked, executor_options, until_signal
from ipybox.code_exec.config import ExecutorConfig
from ipybox.mcp_server.server import MCPServer
from ipybox.support.gc_pause import mark_own_process, skip_collection_at_exit
from ipybox.support.way_in import use_model
from ipybox.workspace.env_file import kernel_variables, read_env_file
from ipybox.workspace.trust import TrustStore

if TYPE_CHECKING:
    from ipybox.mcp_server.http import HTTPServerInfo

logger = logging.getLogger(__name__)

#: The variable that contains the HTTP token; without it, one is generated.
TOKEN_VARIABLE = "IPYBOX_TOKEN"

#: Time limit for calls in progress to finish after SIGTERM, over HTTP, in seconds.
DRAIN_TIMEOUT = 25.0

#: Open files and sockets of the server, and of each session: engine pipes, connections to and from the kernel, and MCP
#: servers.
OWN_DESCRIPTORS = 256
SESSION_DESCRIPTORS = 24


@command("serve", "MCP clients start this command.", options=command_options("serve"))
def serve(workspace: Path, given: Mapping[str, Any]) -> int:
    """Serves until the client disconnects or a signal arrives; returns the exit status."""
    if given.get("transport") != "http" and {"host", "port", "allowed_host"} & given.keys():
        raise Mistake("--host, --port and --allowed-host apply to HTTP only", "add --transport http")
    use_model()
    store = TrustStore(workspace, given.get("trusted", ()))
    options = executor_options(given, store)
    approve: Any = given.get("approve", "auto")
    if isinstance(approve, Path):
        from ipybox.tool_exec.approval.policy import ApprovalPolicy

        approve = checked(given, partial(ApprovalPolicy.load, approve, workspace, store))
    os.chdir(workspace)
    if given.get("audit") != "off":
        from ipybox.audit.log import AuditLogFile

        checked(given, AuditLogFile(workspace).check)
    mark_own_process()
    if "max_sessions" in given:
        allow_descriptors(OWN_DESCRIPTORS + SESSION_DESCRIPTORS * given["max_sessions"])
    path = {} if "engine" in options else {"PATH": PATH}
    variables = path | kernel_variables(read_env_file(workspace), trusted=False) | kernel_variables(os.environ)
    with mistakes():
        server = MCPServer(
            ExecutorConfig(working_dir=workspace, kernel_env=variables, **options),
            approve=approve,
            resources=given.get("resources") == "always",
            **given_parameters(given, MCPServer),
        )
    try:
        return asyncio.run(_serve_http(server, given) if given.get("transport") == "http" else _serve_stdio(server))
    finally:
        skip_collection_at_exit()


async def _serve_stdio(server: MCPServer) -> int:
    """Serves until stdin ends; exits the process on a signal."""
    if sys.stdin.isatty():
        tell("serving MCP on stdin and stdout for an MCP client; press Ctrl-C to stop")

    async def stop(number: int, _: Signals) -> None:
        await server.stop()
        # Clients don't wait for long, and the results of running cells would not be used.
        os._exit(128 + number)

    try:
        return await until_signal(server.run(), stop)
    except OSError as exc:
        tell(str(exc))
        os._exit(1)  # everything has stopped; Python 3.13 and later would complain that it can't flush


async def _serve_http(server: MCPServer, given: Mapping[str, Any]) -> int:
    """Serves until a signal arrives, and returns the exit status."""
    # MCP servers and package builds inherit the environment.
    token = os.environ.pop(TOKEN_VARIABLE, None)
    listening: list[HTTPServerInfo] = []

    def on_listening(listener: "HTTPServerInfo") -> None:
        listening.append(listener)
        tell(listener)

    async def drain(number: int, signals: Signals) -> None:
        # Calls may finish after SIGTERM, unless another signal arrives.
        if number == signal.SIGTERM and listening:
            waits = [asyncio.ensure_future(wait) for wait in (listening[0].drain(), signals.get())]
            await asyncio.wait(waits, timeout=DRAIN_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

    work = server.run_http(token=token, on_listening=on_listening, **given_parameters(given, MCPServer.run_http))
    try:
        with mistakes(f"{TOKEN_VARIABLE}: "):
            return await until_signal(work, drain)
    except OSError as exc:
        raise Failure(str(exc.strerror or exc)) from exc
