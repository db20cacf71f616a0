"""The directories for ipybox's state on the host, outside of every workspace: code must neither read nor write them."""

import hashlib
import os
from pathlib import Path

from ipybox.support.names import STATE_DIR, account_home
from ipybox.support.safe_directory import open_directory
from ipybox.support.untrusted_paths import real_path

#: The file in a workspace's state that records that code ran confined to it.
_CONFINED = "confined"


def state_dir() -> Path:
    """Returns ipybox's directory in the user's state directory (XDG). Like those below, it may not exist."""
    return _user_directory("XDG_STATE_HOME", ".local/state") / "ipybox"


def data_dir() -> Path:
    """Returns ipybox's directory in the user's data directory (XDG), for data without secrets."""
    return _user_directory("XDG_DATA_HOME", ".local/share") / "ipybox"


def environment_locks(environment: str) -> Path:
    """Returns the directory for the locks of a plugin environment. Code can't read it, so it can't take the locks."""
    return state_dir() / "environments" / environment


def config_dir() -> Path:
    """Returns ipybox's directory in the user's configuration directory (XDG), which ipybox only reads."""
    return _user_directory("XDG_CONFIG_HOME", ".config") / "ipybox"


def _user_directory(variable: str, name: str) -> Path:
    # The specification ignores relative paths; they would lead to the workspace, and so would a relative HOME.
    for place in (os.environ.get(variable, ""), os.path.join(os.environ.get("HOME", ""), name)):
        if os.path.isabs(place):
            return Path(place)
    return Path(account_home() or "/", name)


def make_directory(directory: Path, mode: int = 0o700) -> None:
    """Creates a directory for state, with its parents, if needed; an OSError says which variable to set."""
    try:
        directory.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as exc:
        raise OSError(unwritable(directory, exc.strerror)) from exc


def unwritable(directory: Path, reason: str | None) -> str:
    """Returns the message for a directory that ipybox can't write: the reason, and which variable to set."""
    what, variable = "state", "JUPYTER_RUNTIME_DIR"
    if directory.is_relative_to(data_dir()):
        what, variable = "environment", "XDG_DATA_HOME"
    elif directory.is_relative_to(state_dir().parent):
        variable = "XDG_STATE_HOME"
    return (
        f"ipybox can't keep its {what} in {directory} ({reason}): set {variable} to a directory that you can write "
        "to and code can't"
    )


def empty_directory() -> Path:
    """Returns an empty directory, for programs that trust the files in their working directory.

    It is emptied before each use; between uses, only root can write it.
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
    """Returns the directory of ipybox's scratch directories (`ipybox.support.scratch`).

    The sandbox opens parts of it, but must not open the state directory.
    """
    return state_dir().with_name("ipybox-scratch")


def workspace_state_dir(workspace: Path) -> Path:
    """Returns the directory for the state of one workspace; creates it if it does not exist."""
    directory = workspace_state_path(workspace.resolve())
    make_directory(directory)
    return directory


def workspace_state_path(workspace: Path) -> Path:
    """Returns the same path without creating the directory; `workspace` is a path without links."""
    return state_dir() / "workspaces" / hashlib.sha256(os.fsencode(workspace)).hexdigest()[:32]


def record_confined_code(directory: Path) -> None:
    """Records that code runs confined to a directory: what is there from now on may be its work."""
    (workspace_state_dir(directory) / _CONFINED).touch()


def had_confined_code(path: Path) -> bool:
    """Returns whether code ever ran confined to a directory that a path lies in, or leads to."""
    paths = Path(os.path.abspath(path)), Path(real_path(path))
    places = {each for spelled in paths for each in (spelled, *spelled.parents)}
    return any((workspace_state_path(place) / _CONFINED).exists() for place in places)


def make_ipybox_dir(workspace: Path) -> None:
    """Creates the ipybox directory of a workspace, which only ipybox writes, and makes git ignore it."""
    with open_directory(workspace / STATE_DIR, untrusted_root=workspace) as state:
        state.keep_out_of_git()
