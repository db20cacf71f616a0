"""A file that people may change at any time, and what its content means."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path


class FollowedFile:
    """Values that are read from a file again when it changes; the file may not exist."""

    def __init__(self, path: Path, read: Callable[[], Mapping[str, str]]):
        self._path = path
        self._read = read
        self._status: tuple[int, ...] | None = None
        self._values: Mapping[str, str] = {}

    def read(self) -> Mapping[str, str]:
        """Returns the values, as the same object until the file changes."""
        status = None
        with suppress(OSError):
            found = os.lstat(self._path)
            status = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        if status != self._status:
            self._values = self._read()
            self._status = status
        return self._values
