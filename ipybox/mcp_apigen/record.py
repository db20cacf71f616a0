"""What the host itself remembers of a package: hashes of the manifest that it wrote there last, and of the origin.

Code in a kernel can change the package, its manifest included, but not the user's state directory. The file is also
the lock of whoever generates the package.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ipybox.mcp_apigen.manifest import digest
from ipybox.state import state_dir

_MAX_BYTES = 1024


class Record:
    """The record of one package, while its lock is held."""

    def __init__(self, fd: int):
        self._fd = fd
        self._manifest, _, self._origin = os.pread(fd, _MAX_BYTES, 0).decode(errors="replace").partition(" ")

    def is_of(self, manifest: bytes) -> bool:
        """Whether this is the manifest that was written last."""
        return self._manifest == digest(manifest)

    def has_origin(self, origin: str | None) -> bool:
        """Whether the package was generated from this."""
        return origin is not None and self._origin == origin

    def write(self, manifest: bytes, origin: str | None) -> None:
        """Notes what was written, and from what it was generated."""
        os.truncate(self._fd, 0)
        os.pwrite(self._fd, f"{digest(manifest)} {origin or ''}".encode(), 0)


@contextmanager
def locked_record(place: Path) -> Generator[Record]:
    """Opens the record of the package at a place, when nobody else has it.

    Args:
        place: Its path without links.
    """
    directory = state_dir() / "packages"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(directory / digest(os.fsencode(place)), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield Record(fd)
    finally:
        os.close(fd)
