"""The file of the audit log: lines are appended, and a full file makes room for a new one.

It is in the directory of the workspace that code in the sandbox can't write. Without a sandbox code can, so no link is
followed, and nothing but a file of one name is taken. Processes of the same workspace share it: each line is one
`write` at the end of the file, under a lock that is elsewhere, as who can read a file can lock it.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from ipybox.beneath import Directory, open_directory
from ipybox.errors import AuditError
from ipybox.state import make_state_dir_in, workspace_state_dir
from ipybox.workspace.names import STATE_DIR

#: Bytes of a file after which a new one is begun, and how many full ones are kept.
MAX_BYTES = 10 << 20
MAX_FULL = 9

LOG_NAME = "audit.jsonl"

_REMEDY = "make room or let it be written, or switch the audit log off (--audit off)"

# A pipe that was planted does not block, as nobody reads it.
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LogFile:
    """The log of one workspace. A file is opened when it is needed, also after `close`.

    Args:
        workspace: The workspace.
        max_bytes: Bytes of a file, which a single line may exceed.
        max_full: How many full files are kept; the oldest one is removed for a new one.
    """

    def __init__(self, workspace: Path, *, max_bytes: int = MAX_BYTES, max_full: int = MAX_FULL):
        self._workspace = workspace
        #: Where the newest lines are.
        self.path = workspace / STATE_DIR / LOG_NAME
        self._max_bytes = max_bytes
        self._max_full = max_full
        self._file: int | None = None
        self._lock: int | None = None

    def full(self, number: int) -> Path:
        """Returns where a full file is: 1 is the newest one, before the one at `path`."""
        return self.path.with_name(_full(number))

    def check(self) -> None:
        """Makes sure that the file can be written, and closes it.

        Raises:
            AuditError: If it can't.
        """
        try:
            self.append(b"")
        finally:
            self.close()

    def append(self, line: bytes) -> None:
        """Appends a line, which ends with a line break.

        Raises:
            AuditError: If it can't be written; nothing of it is left in the file then.
        """
        try:
            self._append(line)
        except OSError as exc:
            raise AuditError(f"the audit log can't be written: {exc}; {_REMEDY}") from exc

    def _append(self, line: bytes) -> None:
        with self._locked():
            file = self._current()
            size = os.fstat(file).st_size
            if line and size and size + len(line) > self._max_bytes:
                file = self._begin_anew()
                size = 0
            if os.write(file, line) < len(line):
                os.ftruncate(file, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def close(self) -> None:
        """Closes what is open. It is opened again for a later line."""
        self._close_file()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def _locked(self) -> Generator[None]:
        if self._lock is None:
            place = workspace_state_dir(self._workspace) / "audit.lock"
            self._lock = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _current(self) -> int:
        """Returns the open file, another one if somebody has moved or removed it."""
        if self._file is not None:
            with suppress(OSError):
                if os.path.samestat(os.fstat(self._file), os.lstat(self.path)):
                    return self._file
        return self._open()

    def _open(self) -> int:
        self._close_file()
        make_state_dir_in(self._workspace)
        with self._directory() as directory:
            self._file = _open_in(directory)
        return self._file

    def _begin_anew(self) -> int:
        with self._directory() as directory:
            directory.remove(_full(self._max_full))
            for number in range(self._max_full - 1, 0, -1):
                with suppress(FileNotFoundError):
                    directory.rename(_full(number), directory, _full(number + 1))
            directory.rename(LOG_NAME, directory, _full(1))
        return self._open()

    @contextmanager
    def _directory(self) -> Generator[Directory]:
        with open_directory(self.path.parent, beneath=self._workspace, create=False) as directory:
            yield directory

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _full(number: int) -> str:
    return f"audit.{number}.jsonl"


def _open_in(directory: Directory) -> int:
    """Opens the file, which is made if it is not there, for this user only.

    Raises:
        OSError: If something else is there, such as a link: what is appended would go elsewhere.
    """
    path = directory.path / LOG_NAME
    try:
        file = os.open(LOG_NAME, _APPEND | os.O_CREAT, 0o600, dir_fd=directory.fd)
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, str(path)) from exc
    state = os.fstat(file)
    if not stat.S_ISREG(state.st_mode) or state.st_nlink != 1:
        os.close(file)
        raise OSError(f"{path} is no file of its own, but a pipe, a device or has another name, too: remove it")
    if stat.S_IMODE(state.st_mode) != 0o600:
        os.fchmod(file, 0o600)
    return file
