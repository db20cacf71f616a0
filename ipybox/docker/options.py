"""The options of `ipybox docker`: some are Docker's, the others are those of the ipybox in the container."""

import argparse
import hashlib
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ipybox.docker.errors import DockerError
from ipybox.instructions import Instructions
from ipybox.kernel_mgr.limits import MIN_MEMORY, format_bytes, parse_bytes
from ipybox.sandbox.settings import PROFILES
from ipybox.workspace.trust import SANDBOX_CONFIG, TrustStore, read_untrusted

#: Name of the image, unless the variable IPYBOX_IMAGE has another one; docker-build.sh reads it, too.
IMAGE = "ipybox"
IMAGE_VARIABLE = "IPYBOX_IMAGE"

#: Where the workspace is in the container, whatever it is called outside.
WORKSPACE = "/app/workspace"

#: Memory that the container has on top of what the code may use: for ipybox itself and the MCP servers.
MEMORY_BESIDE_CODE = 1 << 30

#: How images are returned, to whom resources are announced, and how much an agent is told.
IMAGES = ("link", "inline", "both")
RESOURCES = ("auto", "always")
INSTRUCTIONS: tuple[Instructions, ...] = get_args(Instructions)

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


#: How tool calls are approved: all of them, by asking, or by the rules of a file.
Approval = Literal["auto", "ask"] | Path

#: What is written to the audit log.
AuditOption = Literal["full", "hash", "off"]
AUDIT_OPTIONS: tuple[AuditOption, ...] = get_args(AuditOption)


def default_image() -> str:
    """Returns the name of the image that is used if none is given."""
    return os.environ.get(IMAGE_VARIABLE) or IMAGE


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to run the container.

    Attributes:
        workspace: The directory that the container sees as its workspace, and the only one of the host's.
        image: Name of the image.
        network: A network of Docker's, such as `none`; by default the one that Docker has for containers.
        env: Names of variables of this process that the container gets, and with them the MCP servers.
        memory_limit: Bytes of memory that the code may use; 0 for no limit, None for half of the machine's.
        sandbox: Whether code runs in a sandbox in the container, apart from the MCP servers and what they know.
        passed_on: Arguments for the ipybox in the container.
    """

    workspace: Path
    image: str
    network: str | None = None
    env: Sequence[str] = ()
    memory_limit: int | None = None
    sandbox: bool = False
    passed_on: Sequence[str] = ()


def parser(*, add_help: bool = True) -> argparse.ArgumentParser:
    """Returns the parser of `ipybox docker`. What is not given is not in the namespace that it makes."""
    arguments = argparse.ArgumentParser(
        prog="ipybox docker",
        description="Serves code execution over MCP on stdin and stdout, from a container that ends with this process.",
        argument_default=argparse.SUPPRESS,
        add_help=add_help,
        allow_abbrev=False,
    )
    arguments.add_argument("--workspace", type=Path, help="working directory of the code (default: .)")
    arguments.add_argument(
        "--allowed-dir",
        action="append",
        metavar="DIR",
        help="have tools that upload and download files there; repeatable (default: the workspace)",
    )
    add_shared_options(arguments)
    arguments.add_argument(
        "--approve",
        type=approval,
        metavar="HOW",
        help="tool calls of code: auto accepts them, ask asks the client's user, a file in the workspace has rules",
    )
    arguments.add_argument("--image", metavar="NAME", help=f"the image (default: ${IMAGE_VARIABLE}, or {IMAGE})")
    arguments.add_argument("--network", metavar="NAME", help="a network of Docker's, such as none (default: its own)")
    arguments.add_argument(
        "-e",
        "--env",
        action="append",
        type=_variable,
        metavar="NAME",
        help="variable that the container gets from here, for MCP servers; the workspace's .env is read there anyway",
    )
    arguments.add_argument(
        "--memory-limit",
        type=_memory,
        metavar="SIZE",
        help="memory that code may use, such as 4G (default: half of the machine's; 0 for none)",
    )
    arguments.add_argument(
        "--sandbox", action="store_true", help="run code inside srt there, apart from the MCP servers and their secrets"
    )
    add_sandbox_settings(arguments)
    arguments.add_argument(
        "--allow-domain",
        action="append",
        metavar="DOMAIN",
        help="host that can be reached from the sandbox; repeatable, or a list with commas",
    )
    arguments.add_argument("--cpu-seconds", type=float, metavar="N", help="CPU time of one cell (default: no limit)")
    arguments.add_argument("--process-limit", type=int, metavar="N", help="number of processes (default: no limit)")
    arguments.add_argument("--max-sessions", type=int, metavar="N", help="number of kernels at once (default: 8)")
    arguments.add_argument("--log-level", choices=LOG_LEVELS, help="level of the log on stderr")
    return arguments


def add_shared_options(arguments: argparse.ArgumentParser) -> None:
    """Adds the options for what the agent gets and what is recorded, which are the same with and without Docker."""
    arguments.add_argument(
        "--audit",
        choices=AUDIT_OPTIONS,
        help="what .ipybox/audit.jsonl has of cells and tool calls: code and arguments without secrets (full, the "
        "default), only their hashes (hash), or nothing (off)",
    )
    arguments.add_argument(
        "--images",
        choices=IMAGES,
        help="return images as links to their files, as pictures for the model, or as both (default: both)",
    )
    arguments.add_argument(
        "--resources",
        choices=RESOURCES,
        help="announce long outputs as MCP resources to each client (always), or to those that don't offer the model "
        "further tools for them, as Claude Code does (auto, the default)",
    )
    arguments.add_argument(
        "--instructions",
        choices=INSTRUCTIONS,
        help="tell the agent all of how ipybox is used, or brief where it has the codeact skill (default: full)",
    )


def add_sandbox_settings(arguments: argparse._ActionsContainer) -> None:  # pyright: ignore[reportPrivateUsage] a parser or a group
    """Adds the options for the settings of the sandbox, which are the same with and without Docker."""
    arguments.add_argument(
        "--sandbox-profile", choices=sorted(PROFILES), help="built-in settings of the sandbox (default: default)"
    )
    files = arguments.add_mutually_exclusive_group()
    files.add_argument(
        "--sandbox-config",
        type=Path,
        metavar="FILE",
        help="settings in the format of srt, in place of those of the profile; a file in the workspace can only "
        "restrict the profile until you trust it (ipybox trust)",
    )
    files.add_argument(
        "--workspace-config",
        action="store_true",
        help="use sandbox-config.json in the workspace, if it exists, as --sandbox-config",
    )


def options(namespace: argparse.Namespace) -> Options:
    """Returns what a parsed command line asks for.

    Raises:
        DockerError: If it is impossible.
    """
    given: dict[str, Any] = vars(namespace)
    workspace: Path = given.get("workspace", Path()).resolve()
    if not workspace.is_dir():
        raise DockerError(f"the workspace {workspace} is not a directory")
    env: list[str] = given.get("env", [])
    if unset := [name for name in env if name not in os.environ]:
        raise DockerError(f"-e {unset[0]}: there is no variable {unset[0]} here; set it, or put it in {workspace}/.env")
    sandbox: bool = given.get("sandbox", False)
    passed_on = _sandbox_settings(given, workspace)
    if passed_on and not sandbox:
        raise DockerError("there are settings for the sandbox, but no sandbox is asked for: add --sandbox")
    allowed: list[str] | None = given.get("allowed_dir")
    passed_on += [f"--allowed-dir={directory}" for directory in (["."] if allowed is None else allowed)]
    passed_on += [*_approval(given, workspace), *_trusted(given, workspace)]
    passed_on += [
        f"--{name.replace('_', '-')}={given[name]}"
        for name in (
            *("images", "resources", "instructions", "audit"),
            *("cpu_seconds", "process_limit", "max_sessions", "log_level"),
        )
        if given.get(name) is not None
    ]
    return Options(
        workspace=workspace,
        image=given.get("image") or default_image(),
        network=given.get("network"),
        env=env,
        memory_limit=given.get("memory_limit"),
        sandbox=sandbox,
        passed_on=passed_on,
    )


def approval(text: str) -> Approval:
    """Returns how tool calls are approved, as the option --approve says it."""
    return text if text in ("auto", "ask") else Path(text)


def _approval(given: dict[str, Any], workspace: Path) -> list[str]:
    """Returns the arguments that say in the container how tool calls are approved."""
    approve: Approval = given.get("approve", "auto")
    if not isinstance(approve, Path):
        return [] if approve == "auto" else [f"--approve={approve}"]
    file = approve.expanduser().resolve()
    if not file.is_relative_to(workspace):
        raise DockerError(f"the container does not see {file}: have the rules for tool calls in {workspace}")
    # Who starts the container would not get to know what is wrong in the file.
    return [f"--approve={WORKSPACE}/{file.relative_to(workspace)}", "--late-checks"]


def _trusted(given: dict[str, Any], workspace: Path) -> list[str]:
    """Returns the arguments that say in the container which content of the workspace a person trusts.

    The trust store is on the host; the container has one in the workspace only, which anybody may have written.
    """
    store = TrustStore(workspace)
    profile = given.get("sandbox_profile") or "default"
    files: list[tuple[Path, str]] = []
    if given.get("sandbox_config") is not None:
        files.append((Path(given["sandbox_config"]), profile))
    if given.get("workspace_config"):
        files.append((workspace / SANDBOX_CONFIG, profile))
    if isinstance(approve := given.get("approve"), Path):
        files.append((approve, ""))
    arguments: list[str] = []
    for file, compared_with in files:
        place = file.expanduser().resolve()
        with suppress(OSError):  # the container says what is wrong
            data = read_untrusted(place, workspace)
            if store.trusts(place, data, compared_with):
                arguments.append(f"--trusted={hashlib.sha256(data).hexdigest()}")
    return arguments


def _sandbox_settings(given: dict[str, Any], workspace: Path) -> list[str]:
    """Returns the arguments that say in the container what the sandbox's settings are."""
    arguments: list[str] = []
    if (config := given.get("sandbox_config")) is not None:
        file = Path(config).resolve()
        if not file.is_relative_to(workspace):
            raise DockerError(f"the container does not see {file}: have the sandbox's settings in {workspace}")
        arguments.append(f"--sandbox-config={WORKSPACE}/{file.relative_to(workspace)}")
    if given.get("workspace_config"):
        arguments.append("--workspace-config")
    if (profile := given.get("sandbox_profile")) is not None:
        arguments.append(f"--sandbox-profile={profile}")
    if domains := given.get("allow_domain"):
        arguments.append(f"--allow-domain={','.join(domains)}")
    return arguments


def _variable(text: str) -> str:
    # The value would be on a command line, which everybody on the machine can read.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        name = text.partition("=")[0]
        raise argparse.ArgumentTypeError(f"give the name of a variable, whose value stays in the environment: {name!r}")
    return text


def _memory(text: str) -> int:
    try:
        memory = parse_bytes(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None
    if 0 < memory < MIN_MEMORY:
        raise argparse.ArgumentTypeError(f"{text} is too low: a kernel needs {format_bytes(MIN_MEMORY)} at least")
    return memory
