"""Private directories for the host's temporary files, out of reach of code in a sandbox.

They are next to the state directory, because sandbox settings may let code write `/tmp`, and `TMPDIR` may be in the
workspace. The sandbox hides all of them, except for the part that belongs to its code. A process locks each of its
directories; the next process that creates one removes those without a lock.
"""

import fcntl
import math
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

from ipybox.support.errors import SandboxError
from ipybox.support.safe_directory import open_directory
from ipybox.support.state import make_directory, scratch_root

#: Maximum bytes of the path of a socket: `sockaddr_un` without its final null.
MAX_SOCKET_PATH = 103 if sys.platform == "darwin" else 107
#: The longest name, with its slash, of a socket that srt or a kernel creates in a scratch directory.
SOCKET_NAME = len("/srt/claude-socks-0123456789abcdef.sock")

#: Where directories for sockets are created if the path of the state directory is too long.
_SHORT = Path("/tmp")


class ScratchDirectory:
    """A new directory with mode 0700, which exists until `remove` or the end of the context.

    Its path has no links and, with `sockets`, is short enough for them. Raises a SandboxError if only a place that
    sandboxed code can write (`writable`) is short enough.
    """

    path: Path

    def __init__(self, *, sockets: bool = False, writable: Iterable[Path] = ()):
        root = scratch_root()
        make_directory(root)
        root = root.resolve()
        name = os.urandom(4).hex()
        if sockets and len(os.fsencode(root / name)) + SOCKET_NAME > MAX_SOCKET_PATH:
            self.path = _short_root(root, writable) / f"ipybox-{name}"
        else:
            remove_unused(root)
            self.path = root / name
        self._lock = create_locked(self.path)
        # Held while any session runs, even if its directory is elsewhere (`ipybox clean`).
        self._root_lock = _open_locked(root)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Removes the directory with its content."""
        remove_tree(self.path)
        os.close(self._lock)
        os.close(self._root_lock)


def _short_root(root: Path, writable: Iterable[Path]) -> Path:
    short = _SHORT.resolve()
    for place in writable:
        if short.is_relative_to(place.resolve()):
            raise SandboxError(
                f"the sandbox needs a private directory for sockets: {root} is too long, and code can write to "
                f"{_SHORT}: set XDG_STATE_HOME to a shorter path, or remove {str(place)!r} from 'filesystem.allowWrite'"
            )
    return short


def create_locked(path: Path) -> int:
    """Creates a directory and returns a lock on it."""
    while True:
        path.mkdir(mode=0o700)
        with suppress(FileNotFoundError):  # another process has removed the directory before it had a lock
            lock = _open_locked(path)
            if path.is_dir():
                return lock
            os.close(lock)


def _open_locked(path: Path) -> int:
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def remove_unused(root: Path) -> None:
    """Removes the directories in `root` whose processes were killed: those without a lock."""
    with os.scandir(root) as entries:
        for entry in entries:
            with suppress(OSError):  # in use, or already removed
                directory = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_tree(Path(entry.path))
                finally:
                    os.close(directory)


def remove_tree(path: Path) -> None:
    """Removes a directory with its content as far as possible, including directories that their owner can't write."""
    with suppress(OSError), open_directory(path.parent, create=False) as parent:
        parent.remove(path.name, closed=True, seconds=math.inf)
