"""Resolves links and searches directories that untrusted code may have made, and limits what is read there."""

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress

#: Maximum bytes of a settings file in the workspace, such as `.env` or `sandbox-config.json`.
MAX_SETTINGS = 64 * 1024

#: Maximum bytes of a file that contains a path; longer paths lead nowhere.
MAX_PATH_FILE = 4096


def real_path(path: str | os.PathLike[str]) -> str:
    """Returns an absolute path without links. If the links form a loop or a long chain, returns it as spelled.

    `Path.resolve` raises a RuntimeError for a loop, and `os.path.realpath` a RecursionError for a chain, in some
    versions of Python. The system follows neither, so nothing can be opened by such a path.
    """
    try:
        return os.path.realpath(path)
    except RecursionError:
        return os.path.abspath(path)


def beginning(path: str, limit: int, flags: int = 0) -> bytes:
    """Returns the beginning of a regular file, opened with these flags and without blocking, or nothing."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags)
    except (OSError, ValueError):
        return b""
    try:
        return os.pread(file, limit, 0) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    finally:
        os.close(file)


def walk(directory: str, omitted: Collection[str] = ()) -> Iterator[tuple[str, list[str]]]:
    """Yields each directory of a tree with the names of its files and links, without following links.

    `os.walk` raises a RecursionError for deep trees in some versions of Python. `omitted` are names of directories.
    """
    pending = [directory]
    while pending:
        place = pending.pop()
        files: list[str] = []
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    files.append(entry.name)
                elif entry.name not in omitted:
                    pending.append(entry.path)
        yield place, files
