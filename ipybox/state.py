"""Where the host keeps its state: what code in a kernel must neither read nor write is outside of every workspace."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from ipybox.beneath import open_directory
from ipybox.workspace.names import STATE_DIR, account_home


def state_dir() -> Path:
    """Returns ipybox's directory in the user's state directory (XDG); it may not exist yet."""
    # The specification has relative paths ignored; they would mean the workspace, and so would a relative HOME.
    state_home = Path(os.environ.get("XDG_STATE_HOME", ""))
    home = Path(os.environ.get("HOME", ""))
    if not home.is_absolute():
        home = Path(account_home() or "/")
    return (state_home if state_home.is_absolute() else home / ".local" / "state") / "ipybox"


def make_directory(directory: Path, mode: int = 0o700) -> None:
    """Makes a directory in which the host keeps something, with its parents, if it is not there.

    Raises:
        OSError: If it can't be made; the message says what to set.
    """
    try:
        directory.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as exc:
        variable = "XDG_STATE_HOME" if directory.is_relative_to(state_dir().parent) else "JUPYTER_RUNTIME_DIR"
        raise OSError(
            f"ipybox can't keep its state in {directory} ({exc.strerror}): set {variable} to a directory that you can "
            "write and code can't"
        ) from exc


def empty_directory() -> Path:
    """Returns a directory that holds nothing, for programs that believe what is in their working directory.

    It is emptied again before each use; only root could write it meanwhile.
    """
    directory = state_dir() / "empty"
    make_directory(directory, 0o500)
    with open_directory(directory) as empty:
        for name in empty.names():
            os.fchmod(empty.fd, 0o700)
            empty.remove(name)
        os.fchmod(empty.fd, 0o500)
    return directory


def scratch_root() -> Path:
    """Returns the directory of the host's scratch directories (`ipybox.workspace.scratch`); it may not exist yet.

    It is not in the state directory, as the sandbox opens parts of it, which nothing may do in that one.
    """
    return state_dir().with_name("ipybox-scratch")


def workspace_state_dir(workspace: Path) -> Path:
    """Returns the directory for what concerns one workspace, which is made if it is not there."""
    name = hashlib.sha256(os.fsencode(workspace.resolve())).hexdigest()[:32]
    directory = state_dir() / "workspaces" / name
    make_directory(directory)
    return directory


def make_state_dir_in(workspace: Path) -> None:
    """Makes the directory of a workspace that only the host writes, and keeps it out of repositories.

    Raises:
        OSError: If it can't be made, or something else is there, such as a link.
    """
    with open_directory(workspace / STATE_DIR, beneath=workspace) as state, suppress(FileExistsError):
        state.write_new(".gitignore", b"*\n")
