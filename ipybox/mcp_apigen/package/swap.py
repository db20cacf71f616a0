"""Replaces a package with another one: atomically, and keeping everything that was not generated.

A package is written next to its place and then renamed: no process ever sees half a package, and an error before that
leaves the old one unchanged. Generated files are removed; everything else moves from the old directory into the new
one, unread, without following links. If a process dies between the two renames, the old package remains in a hidden
directory, from which the next process restores it.
"""

import errno
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path, PurePath

from ipybox.mcp_apigen.package.manifest import MANIFEST
from ipybox.mcp_apigen.package.merge import ExistingPackage, MergedPackage
from ipybox.support.safe_directory import Directory

#: Seconds after which a directory that another generation left behind can't be in use any more.
STALE_AFTER = 600
# Each concurrent generation of the same package, on another machine or in a container, costs one attempt; more than
# this is no accident.
_ATTEMPTS = 100
_OLD, _NEW = "old", "new"
_BYTECODE = "__pycache__"


def swap_in(parent: Directory, place: Path, renewal: MergedPackage, previous: ExistingPackage) -> dict[str, str]:
    """Puts the new package in its place, and returns the new names of renamed old files, by their old names."""
    # Hidden, and not an identifier: it can't be imported.
    with parent.scratch(f".{place.name}") as scratch, scratch.open(_NEW, create=True) as new:
        for name, data in renewal.files.items():
            new.write_new(name, data)
        move = _Move(new, renewal, previous)
        _swap(scratch, parent, place, move)
    return move.renamed


def check_generated(parent: Directory, place: Path) -> None:
    """Raises a FileExistsError if anything but a generated package is at `place`."""
    for _ in range(_ATTEMPTS):  # another generation may be replacing it
        if not _exists(parent, place.name) or _has_manifest(parent, place.name):
            return
    raise FileExistsError(
        f"not replacing {place}, which ipybox did not generate, or only a version before 1.0: move it or choose another"
        " name"
    )


def clean_up(parent: Directory, place: Path) -> None:
    """Removes leftovers of other processes, and restores the package of a process that died while replacing it."""
    for name in parent.names():
        if not (name.startswith(f".{place.name}.") and name.endswith(".tmp")):
            continue
        with suppress(FileNotFoundError, NotADirectoryError):
            with parent.open(name) as scratch:
                _put_back_abandoned(scratch, parent, place)
            state = parent.stat(name)
            if stat.S_ISDIR(state.st_mode) and time.time() - state.st_mtime > STALE_AFTER:
                parent.remove(name)


@dataclass
class _Move:
    """Moves kept files of old packages into the new one, and back if needed."""

    new: Directory
    renewal: MergedPackage
    previous: ExistingPackage
    #: The new names of files, by their old ones: of all files, and of those whose name changed.
    moved: dict[str, str] = field(default_factory=dict[str, str])
    renamed: dict[str, str] = field(default_factory=dict[str, str])

    def keep(self, old: Directory) -> None:
        names = old.names()
        for name in names:
            with suppress(FileNotFoundError):  # removed meanwhile
                # Files that were written after they were read are kept.
                discardable = name in self.renewal.discardable and self.previous.is_unchanged(old, name)
                if not discardable and name != _BYTECODE:
                    target = self._target(name, names)
                    old.rename(name, self.new, target)
                    self.moved[name] = target
                    if target != name:
                        self.renamed[name] = target

    def undo(self, old: Directory) -> None:
        while self.moved:
            name, target = self.moved.popitem()
            self.new.rename(target, old, name)

    def _target(self, name: str, names: list[str]) -> str:
        if name not in self.renewal.generated and not _exists(self.new, name):
            return name
        path = PurePath(name.lstrip("."))
        # Neither imported nor listed.
        hidden = (f".{path.stem}.old{number if number > 1 else ''}{path.suffix}" for number in count(1))
        return next(each for each in hidden if each not in names and not _exists(self.new, each))


def _swap(scratch: Directory, parent: Directory, place: Path, move: _Move) -> None:
    for attempt in range(_ATTEMPTS):
        check_generated(parent, place)
        old = f"{_OLD}{attempt}"
        try:
            parent.rename(place.name, scratch, old)
            with scratch.open(old) as directory:
                move.keep(directory)
        except FileNotFoundError:
            pass  # no old package, or another generation is between its two renames
        except OSError:
            _put_back(scratch, old, parent, place, move)
            raise
        try:
            scratch.rename(_NEW, parent, place.name)
        except OSError as exc:
            if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                _put_back(scratch, old, parent, place, move)
                raise
            # Another generation was faster, and may have been replaced since; this one is newer.
        else:
            return
    raise FileExistsError(f"can't replace {place}: other processes keep replacing it")


def _put_back(scratch: Directory, old: str, parent: Directory, place: Path, move: _Move) -> None:
    with suppress(FileNotFoundError, NotADirectoryError), scratch.open(old) as directory:
        move.undo(directory)
    with suppress(FileNotFoundError):
        scratch.rename(old, parent, place.name)


def _put_back_abandoned(scratch: Directory, parent: Directory, place: Path) -> None:
    for name in scratch.names():
        if name.startswith(_OLD) and _has_manifest(scratch, name) and not _exists(parent, place.name):
            scratch.rename(name, parent, place.name)


def _has_manifest(parent: Directory, name: str) -> bool:
    try:
        with parent.open(name) as package:
            return stat.S_ISREG(package.stat(MANIFEST).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _exists(directory: Directory, name: str) -> bool:
    try:
        directory.stat(name)
    except FileNotFoundError:
        return False
    return True
