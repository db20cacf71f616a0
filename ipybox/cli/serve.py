"""Serves code execution over MCP until the client goes or a signal comes."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipybox.cli.option import Receiver
from ipybox.cli.option_table import given_parameters
from ipybox.cli.parsing import Failure, Mistake
from ipybox.cli.running import ending_signals, executor_options, until_signal
from ipybox.support.descriptors import allow_descriptors
from ipybox.support.errors import AuditError, PolicyError, SandboxError
from ipybox.support.gc_pause import mark_own_process, skip_collection_at_exit
from ipybox.support.printable import printable
from ipybox.support.way_in import use_model
from ipybox.workspace.trust import TrustStore

if TYPE_CHECKING:
    from ipybox.mcp_server.choices import Approval
    from ipybox.mcp_server.http import HTTPServerInfo
    from ipybox.mcp_server.server import MCPServer
    from ipybox.tool_exec.approval.policy import ApprovalPolicy

logger = logging.getLogger(__name__)

#: A variable KERNEL_ENV_X becomes X in the kernel.
KERNEL_PREFIX = "KERNEL_ENV_"

#: The beginnings of variables by which a process, Python, IPython and libraries choose code or configuration to load.
READ_BEFORE_CELLS = (
    *("LD_", "DYLD_", "GLIBC_", "GCONV_", "LOCPATH", "NLSPATH", "OPENSSL_", "HOME", "XDG_"),
    *("PYTHON", "IPYTHON", "JUPYTER", "JPY", "IPYBOX_", "MPL", "PYDEV", "DEBUGPY"),
)

#: The variable with the token for HTTP, if not any is good enough.
TOKEN_VARIABLE = "IPYBOX_TOKEN"

#: Seconds until calls in progress are ended after SIGTERM, with HTTP.
DRAIN_TIMEOUT = 25.0

#: Open files and sockets of the server, and of each session: the pipes of an engine, connections to the kernel and from
#: it, and MCP servers.
OWN_DESCRIPTORS = 256
SESSION_DESCRIPTORS = 24


def kernel_env(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables for the kernel: those with the prefix, without it."""
    return {
        name.removeprefix(KERNEL_PREFIX): value
        for name, value in environment.items()
        if name.startswith(KERNEL_PREFIX) and name != KERNEL_PREFIX
    }


def harmless(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the kernel's variables of a workspace's `.env`, without those that run code before the first cell does.

    Those are ignored with a warning in the log. A client that only connects starts a kernel, whose process, Python,
    IPython and libraries read them.
    """
    kept: dict[str, str] = {}
    for name, value in variables.items():
        if not name.upper().startswith(READ_BEFORE_CELLS):
            kept[name] = value
        else:
            logger.warning(
                "ignoring %s%s from the workspace's .env, because it could run code before the first cell: set it in "
                "ipybox's own environment",
                KERNEL_PREFIX,
                printable(name),
            )
    return kept


def _approval(given: Mapping[str, Any], store: TrustStore) -> "Approval | Callable[[], ApprovalPolicy]":
    """Returns how tool calls are approved, after a check of the rules if they are in a file.

    Raises:
        PolicyError: If the rules are wrong. With --late-checks, each call reports that instead.
    """
    approve: Approval = given.get("approve", "auto")
    if not isinstance(approve, Path):
        return approve
    policy = cache(partial(_policy, Path(os.path.abspath(approve.expanduser())), store))
    if "late_checks" not in given:
        policy()
    return policy


def _policy(file: Path, store: TrustStore) -> "ApprovalPolicy":
    from ipybox.tool_exec.approval.policy import ApprovalPolicy

    policy = ApprovalPolicy.load(file, store.workspace, store)
    if policy.untrusted is not None:
        logger.warning("%s", policy.untrusted)
    return policy


def _check_audit(given: Mapping[str, Any], workspace: Path) -> None:
    """Checks that the audit log can be written, unless it is off.

    Raises:
        AuditError: If it can't be written. With --late-checks, each call reports that instead.
    """
    if given.get("audit") != "off" and "late_checks" not in given:
        from ipybox.audit.log import AuditLogFile

        AuditLogFile(workspace).check()


def serve(given: Mapping[str, Any], workspace: Path, path: str) -> int:
    """Serves until the client goes or a signal comes; returns the exit status.

    Args:
        given: The options that were given, by their names.
        workspace: The workspace.
        path: The PATH that kernels have.

    Raises:
        Failure: If the sandbox, the rules or the audit log can't be used.
        Mistake: If options are wrong.
    """
    if given.get("transport") != "http" and {"host", "port", "allowed_host"} & given.keys():
        raise Mistake("--host, --port and --allowed-host apply to HTTP only", "add --transport http")
    use_model()
    store = TrustStore(workspace, given.get("trusted", ()))
    try:
        options = executor_options(given, store)
        approve = _approval(given, store)
        os.chdir(workspace)
        _check_audit(given, workspace)
    except (AuditError, PolicyError, SandboxError) as exc:
        raise Failure(str(exc)) from exc
    except ValueError as exc:
        raise Mistake(str(exc)) from exc
    return asyncio.run(_serve(given, workspace, path, options, approve))


async def _serve(
    given: Mapping[str, Any],
    workspace: Path,
    path: str,
    options: dict[str, Any],
    approve: "Approval | Callable[[], ApprovalPolicy]",
) -> int:
    from ipybox.code_exec.config import ExecutorConfig
    from ipybox.mcp_server.server import MCPServer
    from ipybox.workspace.env_file import read_env_file

    mark_own_process()
    if "max_sessions" in given:
        allow_descriptors(OWN_DESCRIPTORS + SESSION_DESCRIPTORS * given["max_sessions"])
    from_file = harmless(kernel_env(read_env_file(workspace)))
    try:
        config = ExecutorConfig(
            working_dir=workspace,
            kernel_env=({} if "engine" in options else {"PATH": path}) | from_file | kernel_env(os.environ),
            **options,
        )
        server = MCPServer(
            config,
            approve=approve,
            resources=given.get("resources") == "always",
            **given_parameters(given, Receiver.SERVER),
        )
    except (OSError, ValueError) as exc:
        raise Mistake(str(exc)) from exc
    try:
        if given.get("transport") == "http":
            return await _serve_http(server, given)
        await _serve_stdio(server)
    finally:
        skip_collection_at_exit()
    return 0


async def _serve_stdio(server: "MCPServer") -> None:
    """Serves until stdin ends; exits the process at a signal."""
    if sys.stdin.isatty():
        told = "serving MCP on stdin and stdout for an MCP client; press Ctrl-C to stop"
        print(f"ipybox: {told}", file=sys.stderr, flush=True)
    stopped = asyncio.create_task(ending_signals().get())
    serving = asyncio.create_task(server.run())
    await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
    if stopped.done():
        await server.stop()
        # Clients are impatient, and nothing of what still runs is of use.
        os._exit(128 + stopped.result())
    try:
        await serving
    except OSError as exc:
        print(f"ipybox: {exc}", file=sys.stderr, flush=True)
        os._exit(1)  # everything has ended; from 3.13 on, Python would complain about what it can't flush


async def _serve_http(server: "MCPServer", given: Mapping[str, Any]) -> int:
    """Serves until a signal comes, and returns the exit status."""
    from ipybox.mcp_server.http import check_host

    # MCP servers and packages that are built have the environment, too.
    token = os.environ.pop(TOKEN_VARIABLE, None)
    listening: list[HTTPServerInfo] = []

    def tell(listener: "HTTPServerInfo") -> None:
        listening.append(listener)
        _tell(listener)

    async def drain() -> None:
        async with asyncio.timeout(DRAIN_TIMEOUT):
            for listener in listening:
                await listener.drain()

    try:
        for name in given.get("allowed_host", ()):
            check_host(name)
    except ValueError as exc:
        raise Mistake(f"--allowed-host: {exc}") from exc
    work = server.run_http(token=token, on_listening=tell, **given_parameters(given, Receiver.HTTP))
    try:
        return await until_signal(work, drain)
    except ValueError as exc:
        raise Mistake(f"{TOKEN_VARIABLE}: {exc}") from exc
    except OSError as exc:
        raise Failure(str(exc.strerror or exc)) from exc


def _tell(listener: "HTTPServerInfo") -> None:
    print(f"ipybox: serving on {listener.url}; the token is in {listener.token_file}", file=sys.stderr, flush=True)
    if listener.beyond_machine:
        told = (
            "other machines can connect, and connections are not encrypted: anyone who intercepts the token can use it"
        )
        print(f"ipybox: {told}", file=sys.stderr, flush=True)
