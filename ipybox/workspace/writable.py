"""Decides which paths code in a kernel can write: all trust of the host depends on this.

Everything that reads configuration, resolves a program, imports lazily or starts a process asks `WritablePlaces`.
Standard library only: plugins run it from the sources.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from ipybox.support.state import data_dir
from ipybox.support.untrusted_paths import real_path

PACKAGE_DIR = Path(__file__).resolve().parents[1]


def _python_directories() -> tuple[Path, ...]:
    directories = [Path(sys.prefix), Path(sys.base_prefix), PACKAGE_DIR]
    # A plugin has its packages in a separate environment, and the next start trusts the Python there.
    if (shared := data_dir() / "environments").is_dir():
        directories.append(shared)
    return tuple(directory.resolve() for directory in directories)


#: The directories of this Python, its environment and ipybox, and the environments of the plugins, without links, as
#: they were when this was imported: code can replace a link that leads there. No sandbox can write them.
PYTHON_DIRECTORIES = _python_directories()


class WriteSettings(Protocol):
    """The part of `SandboxSettings` that says where code can write."""

    @property
    def allow_write(self) -> tuple[str, ...]:
        """Paths that can be written."""
        ...

    @property
    def deny_write(self) -> tuple[str, ...]:
        """Paths that can't be written although they are below an entry of `allow_write`."""
        ...


class WritablePlaces:
    """The places that code in the kernels of one workspace can write.

    Args:
        workspace: The workspace. All of it counts, whether code was confined to it or not, because strangers also write
            repositories that are cloned into it.
        settings: The settings of the sandbox, if there is one: paths in `allow_write` count as well, paths in
            `deny_write` do not.
        remote: Whether code runs on another machine, which confines it, too, as far as this one is concerned.
    """

    def __init__(self, workspace: Path, settings: WriteSettings | None = None, *, remote: bool = False):
        self.workspace = workspace
        #: Whether code is confined to these places. Otherwise, files in them that a person names are as good as others.
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
        """Returns whether code can write, replace or redirect the file that a path leads to.

        A path through the workspace counts even if its target is elsewhere, because code can replace the link.
        """
        return self.spells(path) or self._writable(real_path(path))

    def spells(self, path: Path | str) -> bool:
        """Returns whether a path leads through such a place as it is spelled. Looks at no file."""
        return self._writable(os.path.abspath(path))

    def trusted(self, path: Path | str) -> str | None:
        """Returns a path without links to the current target, which code can't redirect.

        None if code can write the target, or if a link of the workspace leads there, except for the directories of this
        Python, which are trusted in spite of that.
        """
        real = real_path(path)
        if self._writable(real) or (self.covers(path) and not _prefix(real).startswith(self._python)):
            return None
        return real

    def _writable(self, path: str) -> bool:
        path = _prefix(path)
        return path.startswith(self._roots) and not path.startswith(self._read_only)

    def _spellings(self, entries: Iterable[str]) -> tuple[str, ...]:
        """Returns entries of the settings as prefixes of paths, both as they are spelled and without links."""
        prefixes: dict[str, None] = {}
        for entry in entries:
            path = os.path.abspath(self.workspace / os.path.expanduser(entry.removesuffix("**")))
            prefixes |= {_prefix(path): None, _prefix(real_path(path)): None}
        return tuple(prefixes)


def is_below(path: str, directory: str) -> bool:
    """Returns whether an absolute path equals a directory or lies in it, as both are spelled."""
    return _prefix(path).startswith(_prefix(directory))


def _prefix(directory: str) -> str:
    """Returns what the paths below a directory begin with, and its own with a slash at its end."""
    return f"{directory.rstrip('/')}/"
