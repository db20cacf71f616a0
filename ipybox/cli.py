"""The command line: the only place that reads arguments, environment, .env files and signals, and sets up logging."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ipybox.docker import options as docker_options
from ipybox.errors import AuditError, IpyboxError, PolicyError, SandboxError
from ipybox.kernel_mgr.limits import Limits, parse_bytes
from ipybox.printable import PrintableFormatter, printable
from ipybox.sandbox.preflight import require_sandbox
from ipybox.sandbox.settings import PROFILES
from ipybox.workspace.imports import guard_imports
from ipybox.workspace.programs import host_path
from ipybox.workspace.trust import TrustStore
from ipybox.workspace.writable import WritablePlaces

if TYPE_CHECKING:
    from ipybox.docker.options import Approval
    from ipybox.mcp_http import Listening
    from ipybox.mcp_server import MCPServer
    from ipybox.sandbox.settings import SandboxSettings
    from ipybox.tool_exec.approval.policy import Policy

logger = logging.getLogger(__name__)

#: A variable KERNEL_ENV_X becomes X in the kernel.
KERNEL_PREFIX = "KERNEL_ENV_"

#: Options that would be good for nothing before the command `docker`.
NOT_IN_DOCKER = ("tool_server_port", "kernel_gateway_port", "transport", "host", "port", "trusted")

#: The variable with the token for HTTP, if not any is good enough.
TOKEN_VARIABLE = "IPYBOX_TOKEN"


def kernel_env(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables for the kernel: those with the prefix, without it."""
    return {
        name.removeprefix(KERNEL_PREFIX): value
        for name, value in environment.items()
        if name.startswith(KERNEL_PREFIX) and name != KERNEL_PREFIX
    }


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    arguments = argparse.ArgumentParser(
        prog="ipybox",
        description="Local code-action engine. Without a command, serves code execution over MCP.",
    )
    arguments.add_argument("--version", action="version", version=version("ipybox"))
    arguments.add_argument("--workspace", type=Path, default=Path(), help="working directory of the code (default: .)")
    arguments.add_argument(
        "--allowed-dir",
        action="append",
        metavar="DIR",
        help="offer tools that upload and download files in DIR, absolute or in the workspace; repeatable",
    )
    docker_options.add_shared_options(arguments)
    arguments.add_argument(
        "--approve",
        type=docker_options.approval,
        default="auto",
        metavar="HOW",
        help="tool calls of code: auto accepts them, ask asks the client's user, a file has rules (default: auto)",
    )
    arguments.add_argument(
        "--transport", choices=("stdio", "http"), help="how clients connect: http is Streamable HTTP (default: stdio)"
    )
    arguments.add_argument("--host", help="where --transport http listens (default: 127.0.0.1)")
    arguments.add_argument("--port", type=int, help="port of --transport http; 0 for any free one (default: 8910)")
    arguments.add_argument("--tool-server-host", default="localhost", help="host of the tool server's port")
    arguments.add_argument("--tool-server-port", type=int, help="port of the tool server (default: none)")
    arguments.add_argument("--kernel-gateway-host", default="localhost", help="host of the kernel gateway's port")
    arguments.add_argument("--kernel-gateway-port", type=int, help="port of the kernel gateway (default: none)")
    sandbox = arguments.add_argument_group("sandbox")
    sandbox.add_argument("--sandbox", action="store_true", help="run code inside Anthropic's sandbox-runtime (srt)")
    docker_options.add_sandbox_settings(sandbox)
    sandbox.add_argument(
        "--allow-domain",
        action="extend",
        type=_items,
        default=[],
        metavar="DOMAIN",
        help="host that can be reached besides those of the settings; repeatable, or a list with commas",
    )
    sandbox.add_argument(
        "--late-checks",
        action="store_true",
        help="serve even if the sandbox can't start now, the rules of --approve are wrong, or the audit log can't be "
        "written: calls say why, run nothing, and try again",
    )
    sandbox.add_argument(
        "--trusted",
        action="append",
        metavar="SHA256",
        help="hash of a file of the workspace to trust, which `ipybox docker` passes to its container; repeatable",
    )
    limits = arguments.add_argument_group("limits", "what the code may use, with all that it starts")
    limits.add_argument(
        "--memory-limit",
        type=_memory,
        metavar="SIZE",
        help="memory, such as 4G (default: none; in the sandbox, half of the machine's; 0 for none)",
    )
    limits.add_argument("--cpu-seconds", type=float, metavar="N", help="CPU time of one cell (default: no limit)")
    limits.add_argument("--process-limit", type=int, metavar="N", help="number of processes (default: no limit)")
    arguments.add_argument("--max-sessions", type=int, metavar="N", help="number of kernels at once (default: 8)")
    arguments.add_argument(
        "--log-level", choices=docker_options.LOG_LEVELS, default="WARNING", help="level of the log on stderr"
    )
    commands = arguments.add_subparsers(dest="command", metavar="[command]")
    demo = commands.add_parser("demo", help="show a code action that calls the tools of real MCP servers")
    demo.add_argument("--directory", type=Path, help="where to make the demo's workspace (default: a temporary one)")
    doctor = commands.add_parser("doctor", help="show what is installed, and what a mode still needs")
    doctor.add_argument("--sandbox", action="store_true", help="fail if the sandbox can't work")
    doctor.add_argument("--docker", action="store_true", help="fail if Docker can't be used")
    tools = commands.add_parser("tools", help="list or search a workspace's tools, or show the interface of one")
    tools.add_argument("query", nargs="*", help="words to search for, a category, or a tool, as github.list_commits")
    commands.add_parser("check", help="verify a workspace's saved code actions and output parsers, in a kernel")
    trust = commands.add_parser(
        "trust",
        help="show what files of a workspace open beyond your own settings, and trust them",
        argument_default=argparse.SUPPRESS,
    )
    trust.add_argument("file", nargs="*", type=Path, help="files (default: sandbox-config.json and ipybox.yaml)")
    trust.add_argument("--workspace", type=Path, help="the workspace (default: .)")
    trust.add_argument("--sandbox-profile", choices=sorted(PROFILES), help="your own profile (default: default)")
    trust.add_argument("--yes", action="store_true", help="trust without a question")
    trust.add_argument("--list", action="store_true", help="list what is trusted")
    trust.add_argument("--revoke", action="store_true", help="no longer trust the files, or all files")
    commands.add_parser(
        "docker",
        help="serve from a container that sees nothing of this machine but the workspace",
        parents=[docker_options.parser(add_help=False)],
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    return arguments


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _memory(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line and exits."""
    arguments = parser().parse_args(argv)
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=arguments.log_level, handlers=[handler])
    # These say at INFO and ERROR what ipybox reports itself, URLs with their secrets included.
    for library in ("httpx2", "mcp"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    path = os.environ.get("PATH", os.defpath)
    if arguments.command != "demo":  # which has a workspace of its own
        _distrust(arguments.workspace)
    if arguments.command == "doctor":
        from ipybox.doctor import doctor

        sys.exit(doctor(sandbox=arguments.sandbox, docker=arguments.docker))
    if arguments.command == "docker":
        _docker(arguments)
    workspace: Path = arguments.workspace.resolve()
    if not workspace.is_dir():
        sys.exit(f"ipybox: the workspace {workspace} is not a directory")
    if arguments.command == "trust":
        sys.exit(_trust(arguments, workspace))
    store = TrustStore(workspace, arguments.trusted or ())
    try:
        confinement = _confinement(arguments, store)
    except (SandboxError, ValueError) as exc:
        sys.exit(f"ipybox: {exc}")
    if arguments.command == "demo":
        from ipybox.demo import demo

        sys.exit(asyncio.run(_until_signal(demo(arguments.directory, confinement))))

    if arguments.command == "tools":
        from ipybox.codeact import tools

        print(tools(" ".join(arguments.query), workspace=workspace))
        return
    if arguments.command == "check":
        sys.exit(asyncio.run(_check(workspace, confinement)))
    if arguments.transport != "http" and (arguments.host, arguments.port) != (None, None):
        sys.exit("ipybox: --host and --port say where HTTP is served, but it is not asked for: add --transport http")
    try:
        approve = _approval(arguments, store)
        os.chdir(workspace)
        _check_audit(arguments, workspace)
    except (AuditError, PolicyError) as exc:
        sys.exit(f"ipybox: {exc}")
    asyncio.run(_serve(arguments, workspace, path, confinement | {"approve": approve}))


def _distrust(workspace: Path) -> None:
    """Has this process, and all that it starts, take no module or program from the workspace."""
    places = WritablePlaces(workspace.resolve())
    guard_imports(places)
    os.environ["PATH"] = host_path(places)


def _docker(arguments: argparse.Namespace) -> NoReturn:
    """Serves from a container in place of this process, or exits with a message if that is impossible."""
    from ipybox.docker.command import run

    for name in NOT_IN_DOCKER:
        if getattr(arguments, name) is not None:
            sys.exit(f"ipybox: --{name.replace('_', '-')} is no option of `ipybox docker`: see `ipybox docker --help`")
    run(arguments)


def _trust(arguments: argparse.Namespace, workspace: Path) -> int:
    """Lists, adds or removes what a person trusts in a workspace, and returns the exit status."""
    from ipybox.workspace import trust_command

    files: list[Path] = arguments.file if "file" in arguments else []
    if "list" in arguments:
        return trust_command.show(workspace)
    if "revoke" in arguments:
        return trust_command.revoke(workspace, files)
    profile = arguments.sandbox_profile or "default"
    return trust_command.trust(workspace, files, profile=profile, yes="yes" in arguments)


def _confinement(arguments: argparse.Namespace, store: TrustStore) -> dict[str, Any]:
    """Returns sandbox and limits as `CodeExecutor` takes them, after a look at whether they are possible.

    A client of the server would learn only at the first cell that they are not, as with --late-checks. Those are
    for Claude Code, which leaves a plugin's server alone for 15 minutes when it did not start once.

    Raises:
        SandboxError: If the settings are wrong, or what the sandbox needs is missing.
        ValueError: If a limit is too low.
    """
    sandbox: bool = arguments.sandbox
    given = (arguments.sandbox_config, arguments.sandbox_profile, arguments.workspace_config, arguments.allow_domain)
    if any(given) and not sandbox:
        raise SandboxError("there are settings for the sandbox, but no sandbox is asked for: add --sandbox")
    settings = cache(partial(_sandbox_settings, arguments, store))
    if sandbox and not arguments.late_checks:
        settings()
        require_sandbox()
    memory, cpu_seconds, processes = arguments.memory_limit, arguments.cpu_seconds, arguments.process_limit
    Limits(memory=memory or None, cpu_seconds=cpu_seconds, processes=processes)
    return {
        "sandbox": sandbox,
        "sandbox_config": settings if sandbox else None,
        "memory_limit": memory,
        "cpu_seconds": cpu_seconds,
        "process_limit": processes,
    }


def _sandbox_settings(arguments: argparse.Namespace, store: TrustStore) -> "SandboxSettings":
    from ipybox.workspace.config import sandbox_settings

    return sandbox_settings(
        store,
        profile=arguments.sandbox_profile or "default",
        allowed_domains=arguments.allow_domain,
        file=arguments.sandbox_config,
        discover=arguments.workspace_config,
    )


def _approval(arguments: argparse.Namespace, store: TrustStore) -> "Approval | Callable[[], Policy]":
    """Returns how tool calls are approved, after a look at the rules if they are in a file.

    Raises:
        PolicyError: If they are wrong, and not only calls are to say so.
    """
    approve: Approval = arguments.approve
    if not isinstance(approve, Path):
        return approve
    policy = cache(partial(_policy, Path(os.path.abspath(approve.expanduser())), store))
    if not arguments.late_checks:
        policy()
    return policy


def _policy(file: Path, store: TrustStore) -> "Policy":
    from ipybox.workspace.config import approval_policy

    policy = approval_policy(store, file)
    if policy.untrusted is not None:
        logger.warning("%s", policy.untrusted)
    return policy


def _check_audit(arguments: argparse.Namespace, workspace: Path) -> None:
    """Makes sure that the audit log can be written, if there is to be one and not only calls are to say so.

    Raises:
        AuditError: If it can't.
    """
    if arguments.audit != "off" and not arguments.late_checks:
        from ipybox.audit.log import LogFile

        LogFile(workspace).check()


async def _serve(arguments: argparse.Namespace, workspace: Path, path: str, options: dict[str, Any]) -> None:
    from ipybox.mcp_server import MCPServer
    from ipybox.sessions import MAX_SESSIONS
    from ipybox.workspace.env_file import read_env_file

    variables = read_env_file(workspace)
    try:
        server = MCPServer(
            workspace,
            tool_server_host=arguments.tool_server_host,
            tool_server_port=arguments.tool_server_port,
            kernel_gateway_host=arguments.kernel_gateway_host,
            kernel_gateway_port=arguments.kernel_gateway_port,
            kernel_env={"PATH": path} | kernel_env({**variables, **os.environ}),
            variables=variables,
            log_level=arguments.log_level,
            allowed_dirs=arguments.allowed_dir or (),
            images=arguments.images or "both",
            resources=arguments.resources == "always",
            instructions=arguments.instructions or "full",
            audit=arguments.audit or "full",
            max_sessions=MAX_SESSIONS if arguments.max_sessions is None else arguments.max_sessions,
            **options,
        )
    except ValueError as exc:
        sys.exit(f"ipybox: {exc}")
    if arguments.transport == "http":
        sys.exit(await _serve_http(server, arguments))
    stopped = _stop_signal()
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
    # MCP servers and packages that are built have the environment, too.
    token = os.environ.pop(TOKEN_VARIABLE, None)
    where = {name: value for name in ("host", "port") if (value := getattr(arguments, name)) is not None}
    try:
        return await _until_signal(server.run_http(**where, token=token, on_listening=_tell))
    except ValueError as exc:
        return f"ipybox: {TOKEN_VARIABLE}: {exc}"
    except OSError as exc:
        return f"ipybox: {exc.strerror or exc}"


def _tell(listener: "Listening") -> None:
    print(f"ipybox: serving on {listener.url}, its token is in {listener.token_file}", file=sys.stderr, flush=True)
    if listener.beyond_machine:
        told = "other machines can connect, and nothing is encrypted: who reads the token on its way can use it"
        print(f"ipybox: {told}", file=sys.stderr, flush=True)


async def _check(workspace: Path, confinement: dict[str, Any]) -> int:
    """Prints what the check says, and returns the exit status."""
    from ipybox.codeact.host import check_in_kernel

    try:
        said = await check_in_kernel(workspace, **confinement)
    except (IpyboxError, OSError) as exc:
        said = f"ipybox: the check could not be ended: {exc}"
    print(printable(said, lines=True))
    return 0 if said.startswith("ok:") else 1


async def _until_signal(work: Coroutine[object, object, None]) -> int:
    """Returns the exit status when the work is done, or a signal has cancelled it."""
    stopped = _stop_signal()
    working = asyncio.ensure_future(work)
    stopped.add_done_callback(lambda _: working.cancel())
    try:
        await working
    except asyncio.CancelledError:
        if not stopped.done():
            raise
    return 128 + stopped.result() if stopped.done() else 0


def _stop_signal() -> asyncio.Future[int]:
    """Returns a future that gets the number of the first SIGINT or SIGTERM."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(number: int) -> None:
        if not stopped.done():
            stopped.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    return stopped
