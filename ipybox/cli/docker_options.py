"""The command line of `ipybox docker`: some options are Docker's, the others belong to the ipybox in the container."""

import argparse
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ipybox.cli.option import Command
from ipybox.cli.option_use import add_options, needless_sandbox_options, options_of
from ipybox.docker.errors import DockerError
from ipybox.docker.options import WORKSPACE, Options, default_image
from ipybox.mcp_server.choices import Approval
from ipybox.workspace.trust import SANDBOX_CONFIG, TrustStore, read_untrusted

#: What errors call the files that the container must see.
SETTINGS, RULES = "the sandbox's settings", "the rules for tool calls"


def docker_parser(*, add_help: bool = True) -> argparse.ArgumentParser:
    """Returns the parser of `ipybox docker`. Its namespace does not contain options that are not given."""
    arguments = argparse.ArgumentParser(
        prog="ipybox docker",
        description="Serves code execution over MCP on stdin and stdout, from a container that ends with this process.",
        argument_default=argparse.SUPPRESS,
        add_help=add_help,
        allow_abbrev=False,
    )
    add_options(arguments, Command.DOCKER)
    return arguments


def container_options(namespace: argparse.Namespace) -> Options:
    """Returns how to run the container, from a parsed command line.

    Raises:
        DockerError: If the options are contradictory or invalid.
    """
    given: dict[str, Any] = vars(namespace)
    workspace: Path = given.get("workspace", Path()).resolve()
    if not workspace.is_dir():
        raise DockerError(f"the workspace {workspace} is not a directory")
    env: list[str] = given.get("env", [])
    if unset := [name for name in env if name not in os.environ]:
        raise DockerError(
            f"-e {unset[0]}: environment variable {unset[0]} is not set; set it, or add it to {workspace}/.env"
        )
    if needless := needless_sandbox_options(namespace):
        raise DockerError(needless)
    return Options(
        workspace=workspace,
        image=given.get("image") or default_image(),
        network=given.get("network"),
        env=env,
        memory_limit=given.get("memory_limit"),
        sandbox=given.get("sandbox", False),
        passed_on=_passed_on(given, workspace),
    )


def _passed_on(given: dict[str, Any], workspace: Path) -> list[str]:
    """Returns the arguments for the ipybox in the container."""
    allowed: list[str] | None = given.get("allowed_dir")
    passed_on = [f"--allowed-dir={directory}" for directory in (["."] if allowed is None else allowed)]
    if (config := given.get("sandbox_config")) is not None:
        passed_on.append(f"--sandbox-config={_inside(config, workspace, SETTINGS)}")
    passed_on += [*_approval(given, workspace), *_trusted(given, workspace)]
    for option in options_of(Command.DOCKER):
        if option.passed_on:
            passed_on += option.arguments(given.get(option.name))
    return passed_on


def _approval(given: dict[str, Any], workspace: Path) -> list[str]:
    """Returns the container's arguments for the approval of tool calls."""
    approve: Approval = given.get("approve") or "auto"
    if not isinstance(approve, Path):
        return [] if approve == "auto" else [f"--approve={approve}"]
    # Without --late-checks, ipybox in the container would exit at startup, and the MCP client would not learn why.
    return [f"--approve={_inside(approve, workspace, RULES)}", "--late-checks"]


def _inside(file: Path, workspace: Path, content: str) -> str:
    """Returns the path of a workspace's file in the container."""
    file = file.expanduser().resolve()
    if not file.is_relative_to(workspace):
        raise DockerError(f"the container does not see {file}: put {content} in {workspace}")
    return f"{WORKSPACE}/{file.relative_to(workspace)}"


def _trusted(given: dict[str, Any], workspace: Path) -> list[str]:
    """Returns the container's arguments for content of the workspace that a person trusts.

    The trust store is on the host; the container only has one in the workspace, which code may have written.
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
