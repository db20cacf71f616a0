"""Unix sockets in private directories, even if the directory's path is too long for a socket address."""

import os
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


def bind_private(path: Path) -> socket.socket:
    """Returns a non-blocking socket that listens at a path; replaces one that a killed process left there."""
    path.unlink(missing_ok=True)
    with _unfinished() as listener, _address(path) as address:
        listener.bind(address)
        path.chmod(0o600)
        listener.listen()
    return listener


def connect_private(path: Path) -> socket.socket:
    """Returns a non-blocking socket that is connected to the one at a path."""
    with _unfinished() as connection, _address(path) as address:
        connection.connect(address)
    return connection


@contextmanager
def _unfinished() -> Generator[socket.socket]:
    """Yields a new non-blocking socket, and closes it after an error."""
    new = socket.socket(socket.AF_UNIX)
    try:
        new.setblocking(False)  # connecting fails at once if a stopped process accepts no more connections
        yield new
    except BaseException:
        new.close()
        raise


@contextmanager
def _address(path: Path) -> Generator[str]:
    """Yields an address of about 30 bytes; the limit is 103 on some systems."""
    if sys.platform != "linux":
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
