"""`ipybox clean`: shows what ipybox keeps on this machine, and removes it.

Files that a running ipybox uses are kept: it holds locks, which the operating system releases even if it is killed.
Files that people and agents saved, such as `mcptools/` and `gentools/`, are removed only if named.
"""

import fcntl
import os
import shutil
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click
from jupyter_core.paths import jupyter_runtime_dir

from ipybox.cli.command import as_json, command, without_question
from ipybox.cli.output import agreed, say, say_json, say_table
from ipybox.sandbox.launch import free_names
from ipybox.support.names import STATE_DIR
from ipybox.support.safe_directory import open_directory
from ipybox.support.sizes import format_bytes
from ipybox.support.state import data_dir, environment_locks, scratch_root, state_dir
from ipybox.support.untrusted_paths import walk

#: Workspace directories that are removed only if named, because they contain your and the agent's work.
SAVED = ("mcptools", "mcpparse", "gentools", "images", "toolfiles")

#: Why a place was not removed.
_REASONS = {
    "started": "kept {}, because ipybox was started after you were asked: stop it and run `ipybox clean` again",
    "failed": "could not remove {} completely: remove the rest yourself",
}

_MORE = """DIR is a workspace directory to remove as well: mcptools, mcpparse, gentools, images or toolfiles.

ipybox keeps a record of trusted files and registered servers in one place for all workspaces. If you remove it, other
workspaces keep their files, but you need to trust their settings and register their servers again."""


@dataclass(frozen=True)
class RemovablePlace:
    """A file or directory that can be removed."""

    path: Path
    what: str
    #: Files of a session, state for all workspaces, a plugin's environment, or files in the workspace. `_is_used`
    #: decides for each kind whether it is in use.
    kind: Literal["running", "state", "environment", "workspace"]


@command("clean", _MORE)
@click.argument("directory", nargs=-1, type=click.Choice(SAVED), metavar="[DIR]...")
@without_question
@as_json
def clean(workspace: Path, directory: Sequence[str], yes: bool, as_json: bool) -> int:
    """Shows what would be removed and its size, asks for confirmation, and removes it; returns the exit status.

    With JSON, it doesn't ask, and removes something only with `yes`.
    """
    found = places(workspace, directory)
    kept = dict.fromkeys(used_places(found), "in use")
    sizes = {place: size(place.path) for place in found if place not in kept}
    if not as_json:
        _show(found, sizes)
        if not sizes or not (yes or agreed("Remove all of this?", "nothing was removed")):
            return 1 if found else 0
    removes = yes or not as_json
    if removes:
        kept |= remove([*sizes], workspace)
    if as_json:
        states = {place: kept.get(place, "removed" if removes else "found") for place in found}
        rows = ((str(place.path), place.what, sizes.get(place, 0), states[place]) for place in found)
        say_json([dict(zip(("path", "content", "bytes", "state"), row, strict=True)) for row in rows])
    else:
        for place in filter(kept.__contains__, sizes):
            say(_REASONS[kept[place]].format(place.path), fg="yellow")
        say(f"removed {format_bytes(sum(number for place, number in sizes.items() if place not in kept))}")
    return 1 if kept else 0


def _show(found: list[RemovablePlace], sizes: dict[RemovablePlace, int]) -> None:
    rows = [(format_bytes(sizes[each]) if each in sizes else "in use", str(each.path), each.what) for each in found]
    if rows:
        say_table(["Size", "Place", "Content"], rows, ["" if each in sizes else "yellow" for each in found])
    if len(sizes) < len(found):
        say("ipybox is running and may be using some of this: stop it and run `ipybox clean` again to remove the rest.")
    if not sizes:
        say("nothing to remove")


def places(workspace: Path, saved: Sequence[str] = ()) -> list[RemovablePlace]:
    """Returns all existing files and directories of ipybox, and the workspace directories named in `saved`."""
    environments = data_dir() / "environments"
    tokens = Path(jupyter_runtime_dir()).glob("ipybox-*.json")
    found = [
        RemovablePlace(workspace / STATE_DIR, "the workspace's packages, outputs and audit log", "workspace"),
        *(RemovablePlace(workspace / name, "saved by code and people", "workspace") for name in saved),
        *(RemovablePlace(path, "files of running sessions", "running") for path in _scratch()),
        *(RemovablePlace(path, "port token", "state") for path in sorted(tokens)),
        RemovablePlace(environments / "ipybox", "the plugins' command", "state"),
        RemovablePlace(state_dir(), "keys, sign-ins, trust and registrations for all workspaces", "state"),
        *(
            RemovablePlace(path, "the plugins' environment", "environment")
            for path in _entries(environments)
            if path.is_dir()
        ),
    ]
    return [place for place in found if os.path.lexists(place.path)]


def used_places(places: Collection[RemovablePlace]) -> list[RemovablePlace]:
    """Returns the places that a running ipybox uses or may use."""
    with _sessions_held_off() as alone:
        return [place for place in places if _is_used(place, alone=alone)]


def remove(removable: list[RemovablePlace], workspace: Path) -> dict[RemovablePlace, str]:
    """Removes these places. Returns the ones that remain: they are in use (`started`), or removal `failed`."""
    with _sessions_held_off() as alone:
        started = [place for place in removable if _is_used(place, alone=alone)]
        failed = [place for place in removable if place not in started and not _remove(place, workspace)]
        with suppress(OSError):  # not empty
            scratch_root().rmdir()
    return dict.fromkeys(started, "started") | dict.fromkeys(failed, "failed")


@contextmanager
def _sessions_held_off() -> Generator[bool]:
    """Yields whether no session is running. If so, new sessions wait until this context exits."""
    try:
        lock = os.open(scratch_root(), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # no session has run since the last time
        yield True
        return
    try:
        yield _taken(lock)
    finally:
        os.close(lock)


def _remove(place: RemovablePlace, workspace: Path) -> bool:
    if place.kind == "workspace":
        free_names(workspace)  # the workspace's state records them
        with open_directory(workspace) as directory:  # code may have made links in it
            directory.remove(place.path.name)
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
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return not _taken(lock)
    finally:
        os.close(lock)


def _taken(lock: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _scratch() -> Iterator[Path]:
    """Yields the sessions' directories, which are in /tmp if the state's path is too long for sockets."""
    yield from _entries(scratch_root())
    for path in Path("/tmp").glob(f"ipybox-{'[0-9a-f]' * 8}"):  # as `ScratchDirectory` names them
        with suppress(OSError):
            is_ours = path.lstat().st_uid == os.getuid() and path.is_dir()
            if is_ours and not _is_locked(path):  # if locked, it may belong to another state directory
                yield path


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def size(path: Path) -> int:
    """Returns the bytes in a file, or in all files below a directory. Counts each file once, and follows no links."""
    found = [path] if path.is_symlink() or not path.is_dir() else []
    for directory, files in walk(str(path)) if not found else ():
        found += [Path(directory, name) for name in files]
    sizes: dict[tuple[int, int], int] = {}
    for each in found:
        with suppress(OSError):
            state = each.lstat()
            sizes[(state.st_dev, state.st_ino)] = state.st_size
    return sum(sizes.values())
