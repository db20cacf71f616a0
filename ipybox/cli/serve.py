"""Serves code execution over MCP until the client goes or a signal comes."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipybox.cli.option import Receiver
from ipybox.cli.option_use import given_parameters
from ipybox.support.descriptors import allow_descriptors
from ipybox.support.gc_pause import mark_own_process, skip_collection_at_exit
from ipybox.support.printable import printable

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
                "%s%s in the workspace's .env is not used, as it could run code before you do: set it in the "
                "environment of ipybox",
                KERNEL_PREFIX,
                printable(name),
            )
    return kept


async def serve(
    arguments: argparse.Namespace,
    workspace: Path,
    path: str,
    options: dict[str, Any],
    approve: "Approval | Callable[[], ApprovalPolicy]",
) -> None:
    """Serves as the options say; exits the process if that can't be, or a signal ends it.

    Args:
        arguments: The command line.
        workspace: The workspace.
        path: The PATH that kernels have.
        options: Fields of `ExecutorConfig`.
        approve: How tool calls are approved.
    """
    from ipybox.code_exec.config import ExecutorConfig
    from ipybox.mcp_server.server import MCPServer
    from ipybox.workspace.env_file import read_env_file

    mark_own_process()
    if arguments.max_sessions is not None:
        allow_descriptors(OWN_DESCRIPTORS + SESSION_DESCRIPTORS * arguments.max_sessions)
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
            resources=arguments.resources == "always",
            **given_parameters(arguments, Receiver.SERVER),
        )
    except (OSError, ValueError) as exc:
        sys.exit(f"ipybox: {exc}")
    try:
        if arguments.transport == "http":
            sys.exit(await _serve_http(server, arguments))
        await _serve_stdio(server)
    finally:
        skip_collection_at_exit()


async def _serve_stdio(server: "MCPServer") -> None:
    """Serves until stdin ends; exits the process at a signal."""
    stopped = asyncio.create_task(_signals().get())
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


async def _serve_http(server: "MCPServer", arguments: argparse.Namespace) -> int | str:
    """Serves until a signal comes, and returns the exit status, or what prevents it."""
    from ipybox.mcp_server.http import check_host

    # MCP servers and packages that are built have the environment, too.
    token = os.environ.pop(TOKEN_VARIABLE, None)
    where = {name: value for name in ("host", "port") if (value := getattr(arguments, name)) is not None}
    listening: list[HTTPServerInfo] = []

    def tell(listener: "HTTPServerInfo") -> None:
        listening.append(listener)
        _tell(listener)

    async def drain() -> None:
        async with asyncio.timeout(DRAIN_TIMEOUT):
            for listener in listening:
                await listener.drain()

    allowed_hosts = arguments.allowed_host or ()
    try:
        for name in allowed_hosts:
            check_host(name)
    except ValueError as exc:
        return f"ipybox: --allowed-host: {exc}"
    work = server.run_http(**where, token=token, allowed_hosts=allowed_hosts, on_listening=tell)
    try:
        return await until_signal(work, drain)
    except ValueError as exc:
        return f"ipybox: {TOKEN_VARIABLE}: {exc}"
    except OSError as exc:
        return f"ipybox: {exc.strerror or exc}"


def _tell(listener: "HTTPServerInfo") -> None:
    print(f"ipybox: serving on {listener.url}, its token is in {listener.token_file}", file=sys.stderr, flush=True)
    if listener.beyond_machine:
        told = (
            "other machines can connect, and nothing is encrypted: a program that reads the token on its way can use it"
        )
        print(f"ipybox: {told}", file=sys.stderr, flush=True)


async def until_signal(
    work: Coroutine[object, object, None], drain: Callable[[], Coroutine[object, object, None]] | None = None
) -> int:
    """Returns the exit status when the work is done, or a signal has cancelled it.

    Args:
        work: The work.
        drain: Runs between SIGTERM and the cancellation, until it ends or another signal comes.
    """
    signals = _signals()
    working = asyncio.ensure_future(work)

    async def stop() -> int:
        number = await signals.get()
        if number == signal.SIGTERM and drain is not None:
            waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(drain()), asyncio.ensure_future(signals.get())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        working.cancel()
        return 128 + number

    stopping = asyncio.create_task(stop())
    try:
        await working
    except asyncio.CancelledError:
        if not stopping.done():
            raise
        return stopping.result()
    finally:
        stopping.cancel()
    return 0


def _signals() -> asyncio.Queue[int]:
    """Returns a queue of the signals that end this process. A SIGHUP that is ignored, as by `nohup`, stays so."""
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[int] = asyncio.Queue()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, signals.put_nowait, number)
    return signals
