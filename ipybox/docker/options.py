"""Options for running the container."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ipybox.support.errors import IpyboxError

#: Path of the workspace in the container.
WORKSPACE = "/app/workspace"

#: Bytes of memory for ipybox and the MCP servers, in addition to the code's limit.
MEMORY_BESIDE_CODE = 1 << 30


class DockerError(IpyboxError):
    """ipybox can't be run in a container; the message says why, and what to do."""


def default_image() -> str:
    """Returns the image's default name; docker-build.sh reads the same variable."""
    return os.environ.get("IPYBOX_IMAGE") or "ipybox"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options for running the container."""

    #: The host directory to mount as the workspace.
    workspace: Path
    image: str
    #: A Docker network, such as `none`; by default, Docker's default network.
    network: str | None = None
    #: Names of environment variables to pass to the container and its MCP servers.
    env: Sequence[str] = ()
    #: Memory limit for code in bytes; 0 for no limit, None for half of the machine's memory.
    memory_limit: int | None = None
    #: Whether to isolate code from the MCP servers and their secrets in the container.
    sandbox: bool = False
    #: Arguments for ipybox in the container.
    passed_on: Sequence[str] = ()
