"""The application's own record of a registered server and its package: hashes of both, and the seal.

Code in a kernel can change the package, and restore one that was registered before; it can't change the user's state
directory. So only the last registration in one place under one name is trusted. The file is also the lock for
generating the package.
"""

import fcntl
import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ipybox.support.state import make_directory, state_dir

_MAX_BYTES = 1024


class Registration:
    """The record of one package, while its lock is held."""

    def __init__(self, fd: int):
        self._fd = fd
        self._manifest, self._origin, self.seal = _fields(fd)

    def is_of(self, manifest: bytes) -> bool:
        """Returns whether this is the manifest that was written last."""
        return self._manifest == hashlib.sha256(manifest).hexdigest()

    def has_origin(self, origin: str | None) -> bool:
        """Returns whether the package was generated from these inputs."""
        return origin is not None and self._origin == origin

    def write(self, manifest: bytes, origin: str | None, seal: str) -> None:
        """Records the manifest, the inputs of the package, and the only seal that is valid from now on."""
        line = f"{hashlib.sha256(manifest).hexdigest()} {origin or ''} {seal}".encode()
        os.pwrite(self._fd, line, 0)  # first, so that no reader finds it empty
        os.truncate(self._fd, len(line))


@contextmanager
def locked_registration(place: Path) -> Generator[Registration]:
    """Opens the record of the package at a place, and waits for its lock.

    Args:
        place: Its path without links.
    """
    file = _file(place)
    make_directory(file.parent)
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield Registration(fd)
    finally:
        os.close(fd)


def current_seal(place: Path) -> str:
    """Returns the seal of the last registration at a place, without waiting; empty if there was no registration.

    Args:
        place: The path of the package without links.
    """
    try:
        fd = os.open(_file(place), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        return _fields(fd)[2]
    finally:
        os.close(fd)


def _file(place: Path) -> Path:
    return state_dir() / "packages" / hashlib.sha256(os.fsencode(place)).hexdigest()


def _fields(fd: int) -> tuple[str, str, str]:
    manifest, _, rest = os.pread(fd, _MAX_BYTES, 0).decode(errors="replace").partition(" ")
    origin, _, seal = rest.partition(" ")
    return manifest, origin, seal
