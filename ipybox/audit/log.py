"""The file of the audit log: lines are appended, and full files are rotated.

Sandboxed code can't write its directory. Without a sandbox, code can, so no link is followed, and only a file with a
single hard link is accepted. Processes in the same workspace share the file: each line is one `write` at its end, under
a lock. The lock is in the state directory, because any process that can read a file can lock it. Another process may
hold it for a long time, so only the thread of `writer` waits for it.
"""

import errno
import fcntl
import os
import stat
from collections import deque
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ipybox.support.errors import AuditError
from ipybox.support.names import STATE_DIR
from ipybox.support.safe_directory import Directory, open_directory
from ipybox.support.state import make_ipybox_dir, workspace_state_dir
from ipybox.support.way_in import setting

#: Bytes at which a file is rotated, and the number of full files that are kept.
MAX_BYTES = 10 << 20
MAX_FULL = 9

LOG_NAME = "audit.jsonl"

# Non-blocking: opening a planted pipe without a reader fails instead of waiting.
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class AuditLogFile:
    """The log of one workspace. Its file is opened on demand, even after `close`.

    A file may exceed `MAX_BYTES` only if it contains a single line. The newest `MAX_FULL` full files are kept.
    """

    def __init__(self, workspace: Path):
        self._workspace = workspace
        #: The file with the newest lines.
        self.path = workspace / STATE_DIR / LOG_NAME
        self._file: int | None = None
        self._lock: int | None = None

    def check(self) -> None:
        """Raises an AuditError if the file can't be written. Creates nothing in a workspace new to ipybox."""
        if not os.path.lexists(self.path.parent) and os.access(self._workspace, os.W_OK | os.X_OK):
            return
        try:
            self._open()
        except OSError as exc:
            raise not_written(exc) from exc
        finally:
            self.close()

    @property
    def lock_path(self) -> Path:
        """The file that a process locks while it writes. Its directory, which belongs to the user, is created."""
        return workspace_state_dir(self._workspace) / "audit.lock"

    def append(self, lines: deque[bytes]) -> None:
        """Appends lines, which include their line breaks, and removes written ones from the queue.

        Waits for the lock as long as another process holds it. Raises an OSError if a line can't be written; the file
        then ends with the previous line.
        """
        if self._lock is None:
            self._lock = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            while lines:
                file = self._current()
                size = os.fstat(file).st_size
                if lines[0] and size and size + len(lines[0]) > MAX_BYTES:
                    file, size = self._rotate(), 0
                if os.write(file, lines[0]) < len(lines[0]):
                    os.ftruncate(file, size)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
                lines.popleft()
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closes the files; `append` opens them again."""
        self._close_file()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _current(self) -> int:
        """Returns the open file, or a new one if it was moved or removed."""
        if self._file is not None:
            with suppress(OSError):
                if os.path.samestat(os.fstat(self._file), os.lstat(self.path)):
                    return self._file
        return self._open()

    def _open(self) -> int:
        self._close_file()
        make_ipybox_dir(self._workspace)
        with self._directory() as directory:
            self._file = _open_in(directory)
        return self._file

    def _rotate(self) -> int:
        with self._directory() as directory:
            directory.remove(_rotated(MAX_FULL))
            for number in range(MAX_FULL - 1, 0, -1):
                with suppress(FileNotFoundError):
                    directory.rename(_rotated(number), directory, _rotated(number + 1))
            directory.rename(LOG_NAME, directory, _rotated(1))
        return self._open()

    def _directory(self) -> AbstractContextManager[Directory]:
        return open_directory(self.path.parent, untrusted_root=self._workspace, create=False)

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


@contextmanager
def open_logs(workspace: Path) -> Generator[list[BinaryIO]]:
    """Opens the files of a workspace's log for reading, oldest first. Their content is untrusted.

    Raises:
        FileNotFoundError: If there is no log.
        OSError: If a file can't be read or is not a regular file.
    """
    newest = workspace / STATE_DIR / LOG_NAME
    with ExitStack() as stack:
        files: dict[int, BinaryIO] = {}
        directory = stack.enter_context(open_directory(newest.parent, untrusted_root=workspace, create=False))
        # Newest first: a file that is rotated meanwhile is opened twice, not missed.
        for name in (LOG_NAME, *map(_rotated, range(1, MAX_FULL + 1))):
            with suppress(FileNotFoundError):
                file = stack.enter_context(directory.open_file(name))
                files.setdefault(os.fstat(file.fileno()).st_ino, file)
        if not files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(newest))
        yield [*reversed(files.values())]


def not_written(reason: object) -> AuditError:
    """Returns the error for a log that can't be written."""
    off = f"set {setting('audit')} to off"
    return AuditError(f"can't write the audit log: {reason}; free up space, make it writable, or {off}")


def _rotated(number: int) -> str:
    return f"audit.{number}.jsonl"


def _open_in(directory: Directory) -> int:
    """Opens the file, or creates it for this user only; raises an OSError if it is a link, a pipe or the like."""
    path = directory.path / LOG_NAME
    try:
        file = os.open(LOG_NAME, _APPEND | os.O_CREAT, 0o600, dir_fd=directory.fd)
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, str(path)) from exc
    state = os.fstat(file)
    if not stat.S_ISREG(state.st_mode) or state.st_nlink != 1:
        os.close(file)
        raise OSError(f"{path} is a pipe, a device or a file with more than one hard link: remove it")
    if stat.S_IMODE(state.st_mode) != 0o600:
        os.fchmod(file, 0o600)
    return file
