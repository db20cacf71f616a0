"""How to run the container, from the options of `ipybox docker`."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ipybox.docker.errors import DockerError
from ipybox.docker.options import WORKSPACE, Options, default_image
from ipybox.workspace.trust import SANDBOX_CONFIG, TrustStore, read_untrusted

#: What errors call the files that the container must see.
SETTINGS, RULES = "the sandbox settings", "the approval rules"


def container_options(given: Mapping[str, Any], passed_on: Sequence[str] = ()) -> Options:
    """Returns how to run the container.

    Args:
        given: The options of `ipybox docker` that were given, by their names.
        passed_on: The arguments that the ipybox in the container gets as they are.

    Raises:
        DockerError: If the options are contradictory or invalid.
    """
    workspace = Path(given.get("workspace", ".")).resolve()
    if not workspace.is_dir():
        raise DockerError(f"the workspace {workspace} is not a directory")
    env: list[str] = given.get("env", [])
    if unset := [name for name in env if name not in os.environ]:
        raise DockerError(
            f"-e {unset[0]}: environment variable {unset[0]} is not set; set it, or add it to {workspace}/.env"
        )
    return Options(
        workspace=workspace,
        image=given.get("image") or default_image(),
        network=given.get("network"),
        env=env,
        memory_limit=given.get("memory_limit"),
        sandbox=given.get("sandbox", False),
        passed_on=[*_translated(given, workspace), *passed_on],
    )


def _translated(given: Mapping[str, Any], workspace: Path) -> list[str]:
    """Returns the arguments for the ipybox in the container that have another value there."""
    translated = [f"--allowed-dir={directory}" for directory in given.get("allowed_dir", ["."])]
    if (config := given.get("sandbox_config")) is not None:
        translated.append(f"--sandbox-config={_inside(config, workspace, SETTINGS)}")
    return [*translated, *_approval(given, workspace), *_trusted(given, workspace)]


def _approval(given: Mapping[str, Any], workspace: Path) -> list[str]:
    """Returns the container's arguments for the approval of tool calls."""
    approve: str | Path = given.get("approve", "auto")
    if not isinstance(approve, Path):
        return [] if approve == "auto" else [f"--approve={approve}"]
    # Without --late-checks, ipybox in the container would exit at startup, and the MCP client would not learn why.
    return [f"--approve={_inside(approve, workspace, RULES)}", "--late-checks"]


def _inside(file: Path, workspace: Path, content: str) -> str:
    """Returns the path of a workspace's file in the container."""
    file = file.expanduser().resolve()
    if not file.is_relative_to(workspace):
        raise DockerError(f"the container can't see {file}: move {content} into {workspace}")
    return f"{WORKSPACE}/{file.relative_to(workspace)}"


def _trusted(given: Mapping[str, Any], workspace: Path) -> list[str]:
    """Returns the container's arguments for content of the workspace that a person trusts.

    The trust store is on the host; the container only has one in the workspace, which code may have written.
    """
    store = TrustStore(workspace)
    profile = given.get("sandbox_profile", "default")
    files: list[tuple[Path, str]] = []
    if (config := given.get("sandbox_config")) is not None:
        files.append((config, profile))
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
