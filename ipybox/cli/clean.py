"""`ipybox clean`: shows what ipybox keeps on this machine, and removes it.

Files that a running ipybox uses are kept: it holds locks, which the operating system releases even if it is killed.
What people and agents saved in the workspace, such as `mcptools/` and `gentools/`, is not ipybox's.
"""

import fcntl
import math
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jupyter_core.paths import jupyter_runtime_dir

from ipybox.cli.command import as_json, command, without_question
from ipybox.cli.output import agreed, say, say_json, say_table
from ipybox.sandbox.launch import free_names
from ipybox.support.names import STATE_DIR
from ipybox.support.safe_directory import open_directory
from ipybox.support.sizes import format_bytes
from ipybox.support.state import data_dir, environment_locks, scratch_root, state_dir
from ipybox.support.untrusted_paths import walk

#: Why a place was not removed after a person agreed.
_REASONS = {
    "in use": "kept {}, because ipybox was started after you were asked: stop it and run `ipybox clean` again",
    "failed": "could not remove {} completely: remove the rest yourself",
}

_MORE = """ipybox keeps a record of trusted files and registered servers in one place for all workspaces. If you
remove it, other workspaces keep their files, but you need to trust their settings and register their servers again."""

State = Literal["found", "in use", "removed", "failed"]


@dataclass(frozen=True)
class RemovablePlace:
    """A file or directory that can be removed."""

    path: Path
    what: str
    #: Files of a session, state for all workspaces, a plugin's environment, or the workspace's state. `_is_used`
    #: decides for each kind whether it is in use.
    kind: Literal["running", "state", "environment", "workspace"]


@command("clean", _MORE)
@without_question
@as_json
def clean(workspace: Path, *, yes: bool, as_json: bool) -> int:
    """Shows what would be removed and its size, asks for confirmation, and removes it; returns the exit status.

    With JSON, it doesn't ask, and removes something only with `yes`.
    """
    found = places(workspace)
    states = cleaned(found, None)
    sizes = {place: size(place.path) for place in found if states[place] == "found"}
    if not as_json:
        _show(found, sizes)
        if not sizes or not (yes or agreed("Remove all of this?", "nothing was removed")):
            return 1 if found else 0
    if yes or not as_json:
        states |= cleaned([*sizes], workspace)
    if as_json:
        rows = ((str(place.path), place.what, sizes.get(place, 0), states[place]) for place in found)
        say_json([dict(zip(("path", "content", "bytes", "state"), row, strict=True)) for row in rows])
    else:
        for place in sizes:
            if reason := _REASONS.get(states[place]):
                say(reason.format(place.path), fg="yellow")
        say(f"removed {format_bytes(sum(number for place, number in sizes.items() if states[place] == 'removed'))}")
    return 1 if {"in use", "failed"} & {*states.values()} else 0


def _show(found: list[RemovablePlace], sizes: dict[RemovablePlace, int]) -> None:
    rows = [(format_bytes(sizes[each]) if each in sizes else "in use", str(each.path), each.what) for each in found]
    if rows:
        say_table(["Size", "Place", "Content"], rows, ["" if each in sizes else "yellow" for each in found])
    if len(sizes) < len(found):
        say("ipybox is running and may be using some of this: stop it and run `ipybox clean` again to remove the rest.")
    if not sizes:
        say("nothing to remove")


def places(workspace: Path) -> list[RemovablePlace]:
    """Returns all existing files and directories of ipybox."""
    environments = data_dir() / "environments"
    tokens = Path(jupyter_runtime_dir()).glob("ipybox-*.json")
    found = [
        RemovablePlace(workspace / STATE_DIR, "the workspace's packages, outputs and audit log", "workspace"),
        *(RemovablePlace(path, "files of running sessions", "running") for path in _scratch()),
        *(RemovablePlace(path, "port token", "state") for path in sorted(tokens)),
        RemovablePlace(environments / "ipybox", "the plugins' command", "state"),
        RemovablePlace(state_dir(), "keys, sign-ins, trust and registrations for all workspaces", "state"),
        *(
            RemovablePlace(path, "the plugins' environment", "environment")
            for path in sorted(environments.glob("*"))
            if path.is_dir()
        ),
    ]
    return [place for place in found if os.path.lexists(place.path)]


def cleaned(places: list[RemovablePlace], workspace: Path | None) -> dict[RemovablePlace, State]:
    """Removes the places that no running ipybox uses or may use, if a workspace is given; returns their states."""
    states: dict[RemovablePlace, State] = {}
    with _locked(scratch_root()) as alone:  # new sessions wait
        # All are examined first: the state contains the locks of other places.
        for place in places:
            states[place] = "in use" if _is_used(place, alone=alone) else "found"
        if workspace is not None:
            for place in (each for each in places if states[each] == "found"):
                states[place] = "removed" if _remove(place, workspace) else "failed"
            with suppress(OSError):  # not empty
                scratch_root().rmdir()
    return states


@contextmanager
def _locked(path: Path) -> Generator[bool]:
    """Yields whether no process holds the lock of a file or directory. If so, others wait until this context exits."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # it doesn't exist
        yield True
        return
    free = False
    try:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        yield free
    finally:
        os.close(lock)


def _remove(place: RemovablePlace, workspace: Path) -> bool:
    if place.kind == "workspace":
        free_names(workspace)  # the workspace's state records them
        with open_directory(workspace) as directory:  # code may have made links in it
            directory.remove(place.path.name, seconds=math.inf)
    elif place.path.is_dir() and not place.path.is_symlink():
        shutil.rmtree(place.path, ignore_errors=True)
    else:
        with suppress(OSError):
            place.path.unlink()
    if place.kind == "environment":
        with suppress(OSError):
            place.path.with_name(f"{place.path.name}.log").unlink()
    return not os.path.lexists(place.path)


def _is_used(place: RemovablePlace, *, alone: bool) -> bool:
    """Whether a process uses a place, or may: it is unknown in which workspaces sessions are running."""
    match place.kind:
        case "running":
            return _is_locked(place.path)
        case "environment":
            return any(map(_is_locked, environment_locks(place.path.name).glob("*")))
        case "workspace":
            return not alone
        case "state":  # it contains the environments' locks
            return not alone or any(map(_is_locked, state_dir().glob("environments/*/*")))


def _is_locked(path: Path) -> bool:
    with _locked(path) as free:
        return not free


def _scratch() -> Iterator[Path]:
    """Yields the sessions' directories, which are in /tmp if the state's path is too long for sockets."""
    yield from sorted(scratch_root().glob("*"))
    for path in Path("/tmp").glob(f"ipybox-{'[0-9a-f]' * 8}"):  # as `ScratchDirectory` names them
        with suppress(OSError):
            is_ours = path.lstat().st_uid == os.getuid() and path.is_dir()
            if is_ours and not _is_locked(path):  # if locked, it may belong to another state directory
                yield path


def size(path: Path) -> int:
    """Returns the bytes in a file, or in all files below a directory. Counts each file once, and follows no links."""
    is_directory = path.is_dir() and not path.is_symlink()
    files = (os.path.join(each, name) for each, names in walk(str(path)) for name in names) if is_directory else [path]
    sizes: dict[tuple[int, int], int] = {}
    for file in files:
        with suppress(OSError):
            state = os.lstat(file)
            sizes[(state.st_dev, state.st_ino)] = state.st_size
    return sum(sizes.values())
