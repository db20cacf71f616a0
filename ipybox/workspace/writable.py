"""Which paths code in a kernel can write: the one question on which all trust of the host rests.

What lies in a place that code can write is input. It never configures, names, or is imported or executed by the host.
Everything that reads configuration, resolves a program, imports lazily or starts a process asks `WritablePlaces`.

Standard library only: plugins run it from the sources.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipybox.sandbox.settings import SandboxSettings

PACKAGE_DIR = Path(__file__).resolve().parents[1]

#: The directories of this Python, its environment and ipybox, without links, as they were when this was imported: code
#: can replace a link that leads there. No sandbox can write them.
PYTHON_DIRECTORIES = (Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), PACKAGE_DIR)


class WritablePlaces:
    """The places that code in the kernels of one workspace can write.

    Args:
        workspace: The workspace. All of it counts, whether code was confined to it or not: a repository that was
            cloned into it is written by strangers, too.
        settings: The settings of the sandbox, if there is one: what `allow_write` names counts as well, what
            `deny_write` names does not.
    """

    def __init__(self, workspace: Path, settings: "SandboxSettings | None" = None):
        self.workspace = workspace
        #: Whether code is kept to these places. Without, what a person names in them is as good as anything else.
        self.confined = settings is not None
        allowed = () if settings is None else settings.allow_write
        denied = () if settings is None else settings.deny_write
        self._python = tuple(map(str, PYTHON_DIRECTORIES))
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
        """Returns whether code can write, replace or redirect what a path leads to.

        A path that leads through the workspace counts although its target is elsewhere, as code can replace the link.
        """
        return self.spells(path) or self._writable(os.path.realpath(path))

    def spells(self, path: Path | str) -> bool:
        """Returns whether a path leads through such a place as it is spelled. Looks at no file."""
        return self._writable(os.path.abspath(path))

    def trusted(self, path: Path | str) -> str | None:
        """Returns a path without links that leads where this one leads now, whatever code does from now on.

        None if code can write what is there, or if a link of the workspace leads there: only the directories of this
        Python are believed in spite of that.
        """
        real = os.path.realpath(path)
        if self._writable(real) or (self.covers(path) and not _is_below_any(real, self._python)):
            return None
        return real

    def _writable(self, path: str) -> bool:
        return _is_below_any(path, self._roots) and not _is_below_any(path, self._read_only)

    def _spellings(self, entries: Iterable[str]) -> tuple[str, ...]:
        """Returns entries of the settings as absolute paths, as they are spelled and without links."""
        paths = (os.path.abspath(self.workspace / os.path.expanduser(entry.removesuffix("**"))) for entry in entries)
        return tuple(dict.fromkeys(form for path in paths for form in (path, os.path.realpath(path))))


def is_below(path: str, directory: str) -> bool:
    """Returns whether an absolute path is a directory, or lies in it, as both are spelled."""
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")


def _is_below_any(path: str, directories: Iterable[str]) -> bool:
    return any(is_below(path, directory) for directory in directories)
