"""How to run the container, from the options of `ipybox docker`."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipybox.support.errors import IpyboxError
from ipybox.workspace.trust import SANDBOX_CONFIG, TrustStore, read_untrusted

#: Path of the workspace in the container, whatever its path on the host.
WORKSPACE = "/app/workspace"

#: Memory that the container has in addition to the limit of the code: for ipybox itself and the MCP servers.
MEMORY_BESIDE_CODE = 1 << 30


class DockerError(IpyboxError):
    """ipybox can't be run in a container; the message says why, and what to do."""


def default_image() -> str:
    """Returns the default name of the image; docker-build.sh reads the same variable."""
    return os.environ.get("IPYBOX_IMAGE") or "ipybox"


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to run the container.

    Attributes:
        workspace: The directory that the container sees as its workspace, and its only directory of the host.
        image: Name of the image.
        network: A network of Docker's, such as `none`; by default Docker's own.
        env: Names of variables of this process that the container and its MCP servers get.
        memory_limit: Bytes of memory that the code may use; 0 for no limit, None for half of the machine's.
        sandbox: Whether code runs in a sandbox in the container, isolated from the MCP servers and their secrets.
        passed_on: Arguments for the ipybox in the container.
    """

    workspace: Path
    image: str
    network: str | None = None
    env: Sequence[str] = ()
    memory_limit: int | None = None
    sandbox: bool = False
    passed_on: Sequence[str] = ()


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
    """Returns the arguments for the ipybox in the container that have another value there.

    Content of the workspace that a person trusts is named by its hash: the trust store is on the host, and code may
    have written the container's own one.
    """
    translated = [f"--allowed-dir={directory}" for directory in given.get("allowed_dir", ["."])]
    profile = given.get("sandbox_profile", "default")
    files: list[tuple[Path, str]] = []
    if (config := given.get("sandbox_config")) is not None:
        translated.append(f"--sandbox-config={_inside(config, workspace, 'the sandbox settings')}")
        files.append((config, profile))
    if given.get("workspace_config"):
        files.append((workspace / SANDBOX_CONFIG, profile))
    approve: str | Path = given.get("approve", "auto")
    if isinstance(approve, Path):
        # Without --late-checks, ipybox in the container would exit at startup, and the MCP client would not learn why.
        translated += [f"--approve={_inside(approve, workspace, 'the approval rules')}", "--late-checks"]
        files.append((approve, ""))
    elif approve != "auto":
        translated.append(f"--approve={approve}")
    return [*translated, *_trusted(files, TrustStore(workspace))]


def _inside(file: Path, workspace: Path, content: str) -> str:
    """Returns the path of a workspace's file in the container."""
    file = file.expanduser().resolve()
    if not file.is_relative_to(workspace):
        raise DockerError(f"the container can't see {file}: move {content} into {workspace}")
    return f"{WORKSPACE}/{file.relative_to(workspace)}"


def _trusted(files: Sequence[tuple[Path, str]], store: TrustStore) -> list[str]:
    """Returns the arguments for those files that are trusted, each as compared with the profile."""
    arguments: list[str] = []
    for file, compared_with in files:
        place = file.expanduser().resolve()
        with suppress(OSError):  # the container says what is wrong
            data = read_untrusted(place, store.workspace)
            if store.trusts(place, data, compared_with):
                arguments.append(f"--trusted={hashlib.sha256(data).hexdigest()}")
    return arguments
