"""Finds programs for the host in directories that code can't write, whatever PATH contains.

PATH may contain workspace directories: direnv adds `node_modules/.bin`, and a virtual environment adds its `bin`. Code
can write a program there, or create the directory if it doesn't exist.
"""

import os
import sys
from pathlib import Path
from shutil import which

from ipybox.workspace.writable import PYTHON_DIRECTORIES, WritablePlaces

_dropped: dict[str, None] = {}


def host_path(places: WritablePlaces, path: str | None = None) -> str:
    """Returns a PATH for the host's programs, without directories that code can write.

    Its directories exist, and their paths contain no links. This Python's own directory is kept, even if PATH refers
    to it by a link in the workspace. `path` is the original PATH, by default this process's.
    """
    kept: dict[str, None] = {}
    for entry in (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep):
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
