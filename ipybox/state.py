"""Where the host keeps its state: what code in a kernel must neither read nor write is outside of every workspace."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from ipybox.beneath import open_directory
from ipybox.sandbox.guard import STATE_DIR


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


def make_state_dir_in(workspace: Path) -> None:
    """Makes the directory of a workspace that only the host writes, and keeps it out of repositories.

    Raises:
        OSError: If it can't be made, or something else is there, such as a link.
    """
    with open_directory(workspace / STATE_DIR, beneath=workspace) as state, suppress(FileExistsError):
        state.write_new(".gitignore", b"*\n")
