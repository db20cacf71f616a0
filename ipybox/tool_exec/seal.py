"""Seals on the launch parameters of MCP servers.

A generated package carries its server's parameters, and kernel code can change them. The seal is an HMAC of the
server's name, its parameters and the directory that they were registered in, under a key that stays on the host. So
the tool server can tell the parameters that were registered from those that were not, and those of its own workspace
from those that kernel code has read in another one.

    <directory, relative to that in which it was made>:<HMAC-SHA256, hexadecimal>
"""

import hashlib
import hmac
import json
from pathlib import Path, PurePosixPath
from typing import Any

from ipybox.keys import lasting_key
from ipybox.state import state_dir

#: Directories in a seal's place, at most.
MAX_DEPTH = 16


def key_path() -> Path:
    """Returns the path of the key: `ipybox/seal.key` in the user's state directory (XDG), mode 0600."""
    return state_dir() / "seal.key"


def seal(server_name: str, server_params: dict[str, Any], root_dir: Path) -> str:
    """Returns the seal of a server's name and parameters; placeholders are sealed unresolved.

    Args:
        server_name: The server's name.
        server_params: Its parameters.
        root_dir: The directory of its package's parent, for whose workspace the seal is good.
    """
    root = root_dir.resolve()
    here = Path.cwd().resolve()
    place = root.relative_to(here) if root.is_relative_to(here) else root.name
    return f"{place}:{_mac(server_name, server_params, root)}"


def is_sealed(server_name: str, server_params: dict[str, Any], candidate: str | None, workspace: Path) -> bool:
    """Tells whether `candidate` seals these parameters under this name, for a directory of the workspace."""
    place, _, mac = (candidate or "").rpartition(":")
    parts = PurePosixPath(place).parts
    if PurePosixPath(place).is_absolute() or ".." in parts or len(parts) > MAX_DEPTH:
        return False
    # It may have been made in a directory above the workspace.
    roots = [workspace.resolve().joinpath(*parts[start:]) for start in range(len(parts) + 1)]
    return any(
        hmac.compare_digest(_mac(server_name, server_params, root).encode(), mac.encode(errors="replace"))
        for root in roots
    )


def _mac(server_name: str, server_params: dict[str, Any], root: Path) -> str:
    canonical = json.dumps([str(root), server_name, server_params], sort_keys=True, separators=(",", ":"))
    return hmac.new(lasting_key(key_path()), canonical.encode(), hashlib.sha256).hexdigest()
