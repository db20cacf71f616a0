"""Runs the command line: looks at what was asked for before anything starts, and sets up logging."""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ipybox.cli.option import Command, Receiver
from ipybox.cli.option_table import OPTIONS
from ipybox.cli.option_use import given_parameters, needless_sandbox_options
from ipybox.cli.options import SAVED, parser
from ipybox.cli.serve import serve, until_signal
from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits
from ipybox.sandbox.preflight import require_sandbox
from ipybox.support.errors import AuditError, IpyboxError, PolicyError, SandboxError
from ipybox.support.printable import PrintableFormatter, printable
from ipybox.support.way_in import use_command_line
from ipybox.workspace.imports import guard_imports
from ipybox.workspace.programs import host_path
from ipybox.workspace.trust import TrustStore
from ipybox.workspace.writable import WritablePlaces

if TYPE_CHECKING:
    from ipybox.mcp_server.choices import Approval
    from ipybox.sandbox.settings import SandboxSettings
    from ipybox.tool_exec.approval.policy import ApprovalPolicy

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line and exits."""
    use_command_line()
    arguments = parser().parse_args(argv)
    _configure_logging(arguments.log_level or "WARNING")
    path = os.environ.get("PATH", os.defpath)
    if arguments.command != "demo":  # which has a workspace of its own
        _distrust(arguments.workspace)
    if arguments.command == "doctor":
        from ipybox.cli.doctor import doctor

        sys.exit(doctor(sandbox=arguments.sandbox, docker=arguments.docker))
    if arguments.command == "docker":
        _docker(arguments)
    workspace: Path = arguments.workspace.resolve()
    if not workspace.is_dir():
        sys.exit(f"ipybox: the workspace {workspace} is not a directory")
    if (command := _WORKSPACE_COMMANDS.get(arguments.command)) is not None:
        sys.exit(command(arguments, workspace))
    store = TrustStore(workspace, arguments.trusted or ())
    try:
        options = _executor_options(arguments, store)
    except (SandboxError, ValueError) as exc:
        sys.exit(f"ipybox: {exc}")
    if arguments.command == "demo":
        from ipybox.cli.demo import demo

        sys.exit(asyncio.run(until_signal(demo(arguments.directory, options))))

    if arguments.command == "tools":
        from ipybox.codeact import tools

        print(tools(" ".join(arguments.query), workspace=workspace))
        return
    if arguments.command == "check":
        sys.exit(asyncio.run(_check(workspace, options)))
    if arguments.transport != "http" and (arguments.host, arguments.port, arguments.allowed_host) != (None, None, None):
        sys.exit(
            "ipybox: --host, --port and --allowed-host say where HTTP is served, but it is not asked for: add "
            "--transport http"
        )
    try:
        approve = _approval(arguments, store)
        os.chdir(workspace)
        _check_audit(arguments, workspace)
    except (AuditError, PolicyError) as exc:
        sys.exit(f"ipybox: {exc}")
    asyncio.run(serve(arguments, workspace, path, options, approve))


def _configure_logging(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    # These say at INFO and ERROR what ipybox reports itself, URLs with their secrets included.
    for library in ("httpx2", "mcp"):
        logging.getLogger(library).setLevel(logging.CRITICAL)


def _distrust(workspace: Path) -> None:
    """Has this process, and all that it starts, take no module or program from the workspace."""
    places = WritablePlaces(workspace.resolve())
    guard_imports(places)
    os.environ["PATH"] = host_path(places)


def _docker(arguments: argparse.Namespace) -> NoReturn:
    """Serves from a container in place of this process, or exits with a message if that is impossible."""
    from ipybox.cli.docker_command import run

    for option in OPTIONS:
        if Command.DOCKER not in option.commands and option.arguments(getattr(arguments, option.name)):
            sys.exit(f"ipybox: {option.flag} is not an option of `ipybox docker`: see `ipybox docker --help`")
    run(arguments)


def _trust(arguments: argparse.Namespace, workspace: Path) -> int:
    """Lists, adds or removes what a person trusts in a workspace, and returns the exit status."""
    from ipybox.cli import trust_command

    files: list[Path] = arguments.file if "file" in arguments else []
    if "list" in arguments:
        return trust_command.show(workspace)
    if "revoke" in arguments:
        return trust_command.revoke(workspace, files)
    profile = arguments.sandbox_profile or "default"
    return trust_command.trust(workspace, files, profile=profile, yes="yes" in arguments)


def _attach(arguments: argparse.Namespace, workspace: Path) -> int:
    """Lets a person use a session until it ends or a signal comes, and returns the exit status."""
    from ipybox.cli.attach import attach

    target: str = arguments.target if "target" in arguments else "default"
    server: int | None = arguments.server if "server" in arguments else None
    return asyncio.run(until_signal(attach(workspace, target, server)))


def _notebook(arguments: argparse.Namespace, workspace: Path) -> int:
    """Writes a session as a notebook, or lists the sessions, and returns the exit status."""
    from ipybox.cli.notebook import notebook

    given = vars(arguments)
    return notebook(workspace, given.get("session"), given.get("output"))


def _clean(arguments: argparse.Namespace, workspace: Path) -> int:
    """Removes what ipybox keeps, and returns the exit status."""
    from ipybox.cli.clean import clean

    saved: list[str] = arguments.saved if "saved" in arguments else []
    if wrong := [name for name in saved if name not in SAVED]:
        sys.exit(f"ipybox: {wrong[0]} is not a directory that `ipybox clean` removes: give any of {', '.join(SAVED)}")
    return clean(workspace, saved, yes="yes" in arguments)


#: The commands that only need a workspace. Each returns the exit status.
_WORKSPACE_COMMANDS: dict[str | None, Callable[[argparse.Namespace, Path], int]] = {
    "attach": _attach,
    "clean": _clean,
    "notebook": _notebook,
    "trust": _trust,
}


def _executor_options(arguments: argparse.Namespace, store: TrustStore) -> dict[str, Any]:
    """Returns fields of `ExecutorConfig`, after a check of the sandbox and the limits.

    With --late-checks, a client learns only from its first cell what is wrong. Claude Code needs that: if the server of
    a plugin fails to start, Claude Code does not start it again for 15 minutes.

    Raises:
        SandboxError: If the settings are wrong, or a requirement of the sandbox is missing.
        ValueError: If a limit is too low, an option needs another one, or the engine is not known.
    """
    if needless := needless_sandbox_options(arguments):
        raise SandboxError(needless)
    options = given_parameters(arguments, Receiver.EXECUTOR)
    if options.get("require_shell_escape") and not options.get("approve_shell_cmds"):
        raise ValueError("--require-shell-escape requires --approve-shell-cmds")
    if arguments.sandbox:
        options["sandbox_config"] = settings = cache(partial(_sandbox_settings, arguments, store))
        if not arguments.late_checks:
            settings()
            require_sandbox()
    if arguments.engine is not None and not arguments.late_checks:
        from ipybox.engine.settings import find_engine

        find_engine(arguments.engine, WritablePlaces(store.workspace))
    memory, cpu_seconds, processes = arguments.memory_limit, arguments.cpu_seconds, arguments.process_limit
    ResourceLimits(memory=memory or None, cpu_seconds=cpu_seconds, processes=processes)
    return options


def _sandbox_settings(arguments: argparse.Namespace, store: TrustStore) -> "SandboxSettings":
    from ipybox.sandbox.workspace_settings import sandbox_settings

    return sandbox_settings(
        store,
        profile=arguments.sandbox_profile or "default",
        allowed_domains=arguments.allow_domain or (),
        file=arguments.sandbox_config,
        discover=arguments.workspace_config,
    )


def _approval(arguments: argparse.Namespace, store: TrustStore) -> "Approval | Callable[[], ApprovalPolicy]":
    """Returns how tool calls are approved, after a check of the rules if they are in a file.

    Raises:
        PolicyError: If the rules are wrong. With --late-checks, each call reports that instead.
    """
    approve: Approval = arguments.approve or "auto"
    if not isinstance(approve, Path):
        return approve
    policy = cache(partial(_policy, Path(os.path.abspath(approve.expanduser())), store))
    if not arguments.late_checks:
        policy()
    return policy


def _policy(file: Path, store: TrustStore) -> "ApprovalPolicy":
    from ipybox.tool_exec.approval.policy import ApprovalPolicy

    policy = ApprovalPolicy.load(file, store.workspace, store)
    if policy.untrusted is not None:
        logger.warning("%s", policy.untrusted)
    return policy


def _check_audit(arguments: argparse.Namespace, workspace: Path) -> None:
    """Checks that the audit log can be written, unless it is off.

    Raises:
        AuditError: If it can't be written. With --late-checks, each call reports that instead.
    """
    if arguments.audit != "off" and not arguments.late_checks:
        from ipybox.audit.log import AuditLogFile

        AuditLogFile(workspace).check()


async def _check(workspace: Path, options: dict[str, Any]) -> int:
    """Prints what the check says, and returns the exit status."""
    from ipybox.code_exec.kernel_check import check_in_kernel

    try:
        said = await check_in_kernel(workspace, **options)
    except (IpyboxError, OSError) as exc:
        said = f"ipybox: the check could not be ended: {exc}"
    print(printable(said, lines=True))
    return 0 if said.startswith("ok:") else 1
