"""Decides which paths code in a kernel can write, and which programs the host runs; all trust depends on this.

Everything that reads configuration, looks up a program, imports lazily or starts a process uses `WritablePlaces`.

Standard library only: plugins run it from the sources.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from shutil import which
from typing import Protocol

from ipybox.support.state import data_dir
from ipybox.support.untrusted_paths import real_path

PACKAGE_DIR = Path(__file__).resolve().parents[1]


def _python_directories() -> tuple[Path, ...]:
    directories = [Path(sys.prefix), Path(sys.base_prefix), PACKAGE_DIR]
    # A plugin's packages are in a separate environment, whose Python the next start trusts.
    if os.path.isdir(shared := data_dir() / "environments"):
        directories.append(shared)
    return tuple(directory.resolve() for directory in directories)


#: The directories of this Python, its environment, ipybox, and the plugins' environments. Links are resolved at import
#: time, because code may replace them later. No sandbox can write these directories.
PYTHON_DIRECTORIES = _python_directories()

#: The directories of PATH that `host_path` dropped.
_dropped: dict[str, None] = {}


class WriteSettings(Protocol):
    """The part of `SandboxSettings` that defines where code can write."""

    @property
    def allow_write(self) -> tuple[str, ...]:
        """Paths that can be written."""
        ...

    @property
    def deny_write(self) -> tuple[str, ...]:
        """Paths that can't be written although they are below an entry of `allow_write`."""
        ...


class WritablePlaces:
    """The directories and files that code in one workspace's kernels can write.

    Args:
        workspace: The workspace. All of it is considered writable, with or without a sandbox, because a cloned
            repository may contain anything.
        settings: The sandbox settings, if there is a sandbox. They add paths in `allow_write`, and exclude paths in
            `deny_write`.
        remote: Whether code runs on another machine, and so can't write elsewhere on this one.
    """

    def __init__(self, workspace: Path, settings: WriteSettings | None = None, *, remote: bool = False):
        self.workspace = workspace
        #: Whether code is confined to these places. If not, a file in them that a person names is as safe as any other.
        self.confined = remote or settings is not None
        allowed = () if settings is None else settings.allow_write
        denied = () if settings is None else settings.deny_write
        self._python = tuple(map(_prefix, map(str, PYTHON_DIRECTORIES)))
        self._roots = self._spellings(["", *allowed])
        self._read_only = (*self._spellings(denied), *self._python)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WritablePlaces) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self._roots, self._read_only

    def covers(self, path: Path | str) -> bool:
        """Returns whether code can write, replace or redirect the file at a path.

        That includes paths through the workspace to a target elsewhere, because code can replace the link.
        """
        return self._writable(os.path.abspath(path)) or self._writable(real_path(path))

    def spells(self, path: Path | str) -> bool:
        """Returns whether a path, as spelled, is in a writable place. Doesn't access the file system."""
        return self._writable(os.path.abspath(path))

    def trusted(self, path: Path | str) -> str | None:
        """Returns the path with its links resolved, so code can't redirect it.

        Returns None if code can write the target or a link to it. This Python's own directories are trusted even
        through such a link.
        """
        real = real_path(path)
        if self._writable(real) or (self.covers(path) and not _prefix(real).startswith(self._python)):
            return None
        return real

    def _writable(self, path: str) -> bool:
        path = _prefix(path)
        return path.startswith(self._roots) and not path.startswith(self._read_only)

    def _spellings(self, entries: Iterable[str]) -> tuple[str, ...]:
        """Returns settings entries as path prefixes, both as spelled and with links resolved."""
        prefixes: dict[str, None] = {}
        for entry in entries:
            path = os.path.abspath(self.workspace / os.path.expanduser(entry.removesuffix("**")))
            prefixes |= {_prefix(path): None, _prefix(real_path(path)): None}
        return tuple(prefixes)


def is_below(path: str, directory: str) -> bool:
    """Returns whether an absolute path, as spelled, is a directory or inside it."""
    return _prefix(path).startswith(_prefix(directory))


def _prefix(directory: str) -> str:
    """Returns the directory with a trailing slash, the prefix of all paths below it."""
    return f"{directory.rstrip('/')}/"


def host_path(places: WritablePlaces) -> str:
    """Returns a PATH for the host's programs, without directories that code can write.

    PATH may contain workspace directories: direnv adds `node_modules/.bin`, and a virtual environment adds its `bin`.
    Code can write a program there, or create the directory if it doesn't exist.

    Its directories exist, and their paths contain no links. This Python's own directory is kept, even if PATH refers
    to it by a link in the workspace.
    """
    kept: dict[str, None] = {}
    for entry in os.environ.get("PATH", os.defpath).split(os.pathsep):
        trusted = places.trusted(entry) if os.path.isabs(entry) and os.path.isdir(entry) else None
        if trusted is not None:
            kept[trusted] = None
        elif os.path.isabs(entry):
            _dropped[entry] = None
    return os.pathsep.join(kept)


def dropped_directories() -> list[str]:
    """Returns the directories that `host_path` dropped, which people may still have on their own PATH."""
    return list(_dropped)


def dropped_program(name: str) -> str | None:
    """Returns the path of a program that `host_path` dropped because code can write it, for messages."""
    return which(name, path=os.pathsep.join(_dropped)) if _dropped else None


def interpreter() -> Path:
    """Returns this Python's path in its resolved environment, because code may replace links."""
    executable, prefix = Path(sys.executable), Path(sys.prefix)
    return PYTHON_DIRECTORIES[0] / executable.relative_to(prefix) if executable.is_relative_to(prefix) else executable
