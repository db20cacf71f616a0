"""`ipybox clean`: shows what ipybox keeps on this machine, and removes it.

`places` names every place. What a running ipybox uses is left: it holds locks, which the operating system releases
however it ends. Files that people and agents save, such as `mcptools/` and `gentools/`, are removed only if named.
"""

import fcntl
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jupyter_core.paths import jupyter_runtime_dir

from ipybox.sandbox.launch import free_names
from ipybox.support.printable import printable
from ipybox.support.safe_directory import open_directory
from ipybox.support.sizes import format_bytes
from ipybox.support.state import data_dir, scratch_root, state_dir
from ipybox.workspace.names import STATE_DIR

#: The plugins, by the names that their directories in Claude Code's begin with.
_PLUGINS = "codeact-*"


@dataclass(frozen=True)
class RemovablePlace:
    """Something that can be removed.

    Attributes:
        path: Where it is.
        what: What it holds, for people.
        kind: `running` is what only a running ipybox needs; what is its own while it runs is `state`. `environment` is
            what a plugin runs from, in use as long as its lock is held. `workspace` is in the workspace.
    """

    path: Path
    what: str
    kind: Literal["running", "state", "environment", "workspace"]


def places(workspace: Path, saved: Sequence[str] = ()) -> list[RemovablePlace]:
    """Returns every place in which ipybox keeps something, as far as there is anything.

    Args:
        workspace: The workspace.
        saved: Names of directories in it that are to be removed, too.
    """
    claude = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    environments = [
        *_entries(data_dir() / "environments"),
        *(each for plugin in claude.glob(f"plugins/data/{_PLUGINS}") for each in _entries(plugin / "envs")),
    ]
    tokens = Path(jupyter_runtime_dir()).glob("ipybox-*.json")
    found = [
        RemovablePlace(workspace / STATE_DIR, "packages, outputs and audit log of the workspace", "workspace"),
        *(RemovablePlace(workspace / name, "saved by code and people", "workspace") for name in saved),
        *(RemovablePlace(path, "what a session needs while it runs", "running") for path in _scratch()),
        *(RemovablePlace(path, "token of a port", "state") for path in sorted(tokens)),
        RemovablePlace(data_dir() / "environments" / "ipybox", "command of the plugins", "state"),
        RemovablePlace(state_dir(), "keys, sign-ins, trust and registrations of all workspaces", "state"),
        *(RemovablePlace(path, "environment of the plugins", "environment") for path in environments if path.is_dir()),
    ]
    return [place for place in found if os.path.lexists(place.path)]


def clean(workspace: Path, saved: Sequence[str], *, yes: bool) -> int:
    """Shows what would be removed with its size, asks, and removes it. Returns the exit status.

    Args:
        workspace: The workspace.
        saved: Directories of it that are to be removed, too.
        yes: Whether to remove without a question.
    """
    found = places(workspace, saved)
    # In which workspaces sessions run is not known.
    held = ("state", "workspace") if _is_locked(scratch_root()) else ()
    used = [place for place in found if place.kind in held or _is_used(place)]
    removable = [place for place in found if place not in used]
    for place in removable:
        _say(f"{format_bytes(_size(place.path)):>10}  {place.path}: {place.what}")
    for place in used:
        _say(f"{'in use':>10}  {place.path}: {place.what}")
    if used:
        _say("An ipybox runs, and keeps what it may use: end it, and clean again to remove the rest.")
    if not removable:
        _say("nothing to remove")
        return 1 if used else 0
    if not yes and not _agrees():
        return 1
    failed = [place for place in removable if not _remove(place, workspace)]
    with suppress(OSError):  # not empty
        scratch_root().rmdir()
    for place in failed:
        _say(f"{place.path} could not be removed whole: remove it yourself")
    return 1 if failed or used else 0


def _remove(place: RemovablePlace, workspace: Path) -> bool:
    """Removes a place, and returns whether nothing of it is left."""
    if place.kind == "workspace":
        free_names(workspace)  # they are known only as long as there is the state
        with open_directory(workspace) as directory:  # in which code may have made links
            directory.remove(place.path.name)
    elif place.path.is_dir() and not place.path.is_symlink():
        shutil.rmtree(place.path, ignore_errors=True)
    else:
        with suppress(OSError):
            place.path.unlink()
    if place.kind == "environment":
        for suffix in (".log", ".lock"):
            with suppress(OSError):
                place.path.with_name(f"{place.path.name}{suffix}").unlink()
    return not os.path.lexists(place.path)


def _is_used(place: RemovablePlace) -> bool:
    """Whether a process holds the lock of a place."""
    match place.kind:
        case "running":
            return _is_locked(place.path)
        case "environment":
            return _is_locked(place.path.with_name(f"{place.path.name}.lock"))
        case _:
            return False


def _is_locked(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _scratch() -> Iterator[Path]:
    """Yields the directories of sessions; where the state's path is too long for sockets, they are in /tmp."""
    yield from _entries(scratch_root())
    for path in Path("/tmp").glob(f"ipybox-{'[0-9a-f]' * 8}"):  # as `ScratchDirectory` names them
        with suppress(OSError):
            is_ours = path.lstat().st_uid == os.getuid() and path.is_dir()
            if is_ours and not _is_locked(path):  # in use, it may belong to another state directory
                yield path


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _size(path: Path) -> int:
    """Returns the bytes of a file, or of all files below a directory, each counted once; links are not followed."""
    seen: dict[tuple[int, int], int] = {}

    def add(paths: Iterable[str]) -> None:
        for each in paths:
            with suppress(OSError):
                state = os.lstat(each)
                seen[(state.st_dev, state.st_ino)] = state.st_size

    if not path.is_dir() or path.is_symlink():
        add([str(path)])
    else:
        for directory, _, files in os.walk(path):
            add(os.path.join(directory, name) for name in files)
    return sum(seen.values())


def _agrees() -> bool:
    if not sys.stdin.isatty():
        _say("nothing was removed: run this in a terminal to be asked, or add --yes")
        return False
    if input("Remove all of this? [y/N] ").strip().lower() in ("y", "yes"):
        return True
    _say("nothing was removed")
    return False


def _say(text: str) -> None:
    print(printable(text))
