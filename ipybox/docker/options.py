"""How to run the container."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ipybox.support.errors import IpyboxError

#: Path of the workspace in the container, whatever its path on the host.
WORKSPACE = "/app/workspace"

#: Memory that the container gets beyond the code's limit, for ipybox itself and the MCP servers.
MEMORY_BESIDE_CODE = 1 << 30


class DockerError(IpyboxError):
    """ipybox can't be run in a container; the message says why, and what to do."""


def default_image() -> str:
    """Returns the default name of the image; docker-build.sh reads the same variable."""
    return os.environ.get("IPYBOX_IMAGE") or "ipybox"


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to run the container."""

    #: The only directory of the host that the container sees, as its workspace.
    workspace: Path
    image: str
    #: A Docker network, such as `none`; by default Docker's own.
    network: str | None = None
    #: Names of this process's variables that are passed to the container and its MCP servers.
    env: Sequence[str] = ()
    #: Bytes of memory that the code may use; 0 for no limit, None for half of the machine's.
    memory_limit: int | None = None
    #: Whether code is isolated from the MCP servers and their secrets in the container.
    sandbox: bool = False
    #: Arguments for the ipybox in the container.
    passed_on: Sequence[str] = ()
