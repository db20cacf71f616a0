"""Unix sockets in private directories, also where the path of the directory is too long for a socket's address."""

import os
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


def bind_private(path: Path) -> socket.socket:
    """Returns a non-blocking socket that listens at a path, in place of one that a killed process left there.

    Raises:
        OSError: If it can't be created.
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        path.unlink(missing_ok=True)
        with _address(path) as address:
            listener.bind(address)
        path.chmod(0o600)
        listener.listen()
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def connect_private(path: Path) -> socket.socket:
    """Returns a non-blocking socket that is connected to the one at a path.

    Raises:
        OSError: If nothing listens there.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _address(path) as address:
            connection.connect(address)
        connection.setblocking(False)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _address(path: Path) -> Generator[str]:
    """Yields an address of about 30 bytes; an address can have 103 or more, by system."""
    if sys.platform != "linux":
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
