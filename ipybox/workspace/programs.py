"""Finds programs for the host in places that code can't write, whatever PATH contains.

PATH may name directories of the workspace: direnv adds `node_modules/.bin`, a virtual environment its `bin`. Code can
put a program there, or create the directory if it does not exist yet.
"""

import os
import sys
from pathlib import Path
from shutil import which

from ipybox.workspace.writable import PYTHON_DIRECTORIES, WritablePlaces

_dropped: dict[str, None] = {}


def host_path(places: WritablePlaces, path: str | None = None) -> str:
    """Returns a PATH for programs of the host, without directories in which code could put programs.

    Its directories exist, and are spelled without links. This Python's own directory stays, even if a link in the
    workspace leads there. `path` is the PATH to start from, by default that of this process.
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
    """Returns the directories that `host_path` has dropped: people may still have them on their own PATH."""
    return list(_dropped)


def dropped_program(name: str) -> str | None:
    """Returns the path of a program that `host_path` excludes because code can write it, for messages."""
    return which(name, path=os.pathsep.join(_dropped)) if _dropped else None


def interpreter() -> Path:
    """Returns this Python by the real path of its environment, because code may replace links."""
    executable, prefix = Path(sys.executable), Path(sys.prefix)
    return PYTHON_DIRECTORIES[0] / executable.relative_to(prefix) if executable.is_relative_to(prefix) else executable
