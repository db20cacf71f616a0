"""Where the host keeps what code in a kernel must neither read nor write: outside of every workspace."""

import hashlib
import os
from pathlib import Path


def state_dir() -> Path:
    """Returns ipybox's directory in the user's state directory (XDG); it may not exist yet."""
    state_home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state_home) / "ipybox"


def workspace_state_dir(workspace: Path) -> Path:
    """Returns the directory for what concerns one workspace, which is made if it is not there."""
    name = hashlib.sha256(os.fsencode(workspace.resolve())).hexdigest()[:32]
    directory = state_dir() / "workspaces" / name
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory
