"""Runs a sandboxed command in a workspace, and reserves protected names in the workspace while it runs.

    python -I -S placeholders.py WORKSPACE STATE_DIR PRIVATE_DIR NAME/ NAME=CONTENT ... -- command args...

bubblewrap can deny a name only by mounting over it, so a missing file or directory must be created first. srt does
that, but removes what it created when its command exits, and so opens the names to the workspace's other sandboxes.
Here, all sandboxes of a workspace share placeholders (`ipybox.support.names.PLACEHOLDERS`). Each sandbox holds a shared
lock. The last one removes the placeholders; if it is killed, the next one does. git ignores them (`git_exclude`). The
command's private directory is removed when the command exits.

If srt is killed, its sandbox keeps running. The sandbox's processes are killed before the placeholders are removed:
removing a placeholder also removes the mount over it, and code in that sandbox could then write the name.

Standard library only, because `-I -S` hides site-packages, and few of its modules, to start fast.
"""

import fcntl
import os
import signal
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

if __name__ == "__main__":  # -I hides even this file's package
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))

from ipybox.sandbox import git_exclude
from ipybox.support.signals import reset_signals

PR_SET_CHILD_SUBREAPER = 36


def main(
    workspace: str, state_dir: str, private_dir: str, placeholders: dict[str, bytes | None], command: list[str]
) -> int:
    """Runs the command and returns its exit code, or 128+n if it was killed by signal n."""
    shared = _SharedPlaceholders(workspace, state_dir, placeholders)
    shared.create()
    try:
        return _run(command)
    finally:
        shared.release()
        # Imported late, because the import takes longer than everything before it.
        __import__("shutil").rmtree(private_dir, ignore_errors=True)


def clean_up(workspace: str, state_dir: str, placeholders: dict[str, bytes | None]) -> None:
    """Removes placeholders left behind by a killed process, unless a sandbox is running in the workspace."""
    shared = _SharedPlaceholders(workspace, state_dir, placeholders)
    try:
        shared.release()
    finally:
        shared.close()


class _SharedPlaceholders:
    """The placeholders shared by all sandboxes of a workspace: name and file content, or None for a directory."""

    def __init__(self, workspace: str, state_dir: str, placeholders: dict[str, bytes | None]):
        self._workspace = workspace
        self._placeholders = placeholders
        self._key = os.path.basename(state_dir)
        self._root = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
        # Outside the workspace, because any process that can read a file can lock it.
        self._users = _open_lock(f"{state_dir}/sandboxes.lock")
        self._mutex = _open_lock(f"{state_dir}/placeholders.lock")
        # Shared by all workspaces, because one repository can contain several.
        self._excludes = _open_lock(f"{state_dir}/../git-exclude.lock")

    def create(self) -> None:
        """Creates the missing placeholders."""
        root, placeholders = self._root, self._placeholders
        fcntl.flock(self._mutex, fcntl.LOCK_EX)
        fcntl.flock(self._users, fcntl.LOCK_SH)
        # If people replaced a placeholder with their own file, it is no longer a placeholder, and git must show it.
        names = {name for name in _read(self._mutex, placeholders) if _is_unchanged(root, name, placeholders[name])}
        names |= {name for name in placeholders if not _is_there(root, name)}
        _make_missing(root, {name: None for name in names if placeholders[name] is None})  # git ignores empty ones
        with _reported():
            git_exclude.update(self._workspace, names, placeholders, self._key, self._excludes)
        _make_missing(root, {name: placeholders[name] for name in names})
        _write(self._mutex, names)
        fcntl.flock(self._mutex, fcntl.LOCK_UN)

    def release(self) -> None:
        """Removes the placeholders if this is the last sandbox."""
        fcntl.flock(self._mutex, fcntl.LOCK_EX)
        fcntl.flock(self._users, fcntl.LOCK_UN)
        try:
            fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # other sandboxes are running; the last one removes the placeholders
        names = _read(self._mutex, self._placeholders)
        _remove(self._root, self._placeholders, names)
        with _reported():
            git_exclude.update(self._workspace, None, self._placeholders, self._key, self._excludes)
        _remove(self._root, self._placeholders, names & {git_exclude.DOT_GIT})  # it contained the exclude file
        _write(self._mutex, set())

    def close(self) -> None:
        """Closes the open descriptors."""
        for descriptor in (self._root, self._users, self._mutex, self._excludes):
            os.close(descriptor)


def _run(command: list[str]) -> int:
    def forward(number: int, _: FrameType | None) -> None:
        os.kill(pid, number)

    _adopt_orphans()
    reset_signals()
    orders = (signal.SIGINT, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, orders)  # until the child that receives them exists
    defaults = [signal.SIGPIPE, signal.SIGXFSZ]  # Python ignores these
    pid = os.posix_spawnp(command[0], command, os.environ, setsigmask=[], setsigdef=defaults)
    for number in orders:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, orders)
    # The pipe must close when the command exits, so this process must not hold it open.
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    while (ended := os.wait())[0] != pid:
        pass  # an orphan
    signal.pthread_sigmask(signal.SIG_BLOCK, orders)  # another process may reuse the id now
    _kill_children()
    status = os.waitstatus_to_exitcode(ended[1])
    return status if status >= 0 else 128 - status


def _adopt_orphans() -> None:
    """Makes this process the parent of orphaned descendants (Linux, prctl(2))."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _kill_children() -> None:
    """Kills the processes that the command left behind, and waits for them.

    When bubblewrap's first process dies, so do all processes in its namespace.
    """
    while children := _children():
        for child in children:
            os.kill(child, signal.SIGKILL)  # not reaped yet, so the id can't have been reused
        for child in children:
            os.waitpid(child, 0)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []  # no /proc, or not Linux: the application kills the process group


@contextmanager
def _reported() -> Generator[None]:
    """Reports a failure to make git ignore placeholders, but doesn't raise it: code can run anyway."""
    try:
        yield
    except git_exclude.ExcludeError as exc:
        print(f"git shows the sandbox's placeholder files: {exc}", file=sys.stderr)


def _make_missing(root: int, placeholders: dict[str, bytes | None]) -> None:
    for name, content in placeholders.items():
        try:
            if content is None:
                os.mkdir(name, 0o755, dir_fd=root)
            else:
                # Writable, because srt removes empty read-only files as its own leftovers.
                file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=root)
                os.write(file, content)
                os.close(file)
        except FileExistsError:
            continue


def _remove(root: int, placeholders: dict[str, bytes | None], names: set[str]) -> None:
    for name in names:
        try:
            if placeholders[name] is None:
                os.rmdir(name, dir_fd=root)
            elif _is_unchanged(root, name, placeholders[name]):
                os.unlink(name, dir_fd=root)
        except OSError:
            pass  # it was removed, is in use, or was replaced


def _is_there(root: int, name: str) -> bool:
    try:
        return bool(os.stat(name, dir_fd=root, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _is_unchanged(root: int, name: str, content: bytes | None) -> bool:
    try:
        entry = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=root)
    except OSError:
        return False
    try:
        mode = os.fstat(entry).st_mode
        if content is None:
            own = {git_exclude.INFO} if name == git_exclude.DOT_GIT else set[str]()
            return stat.S_ISDIR(mode) and own.issuperset(os.listdir(entry))
        return stat.S_ISREG(mode) and os.read(entry, len(content) + 1) in (b"", content)
    finally:
        os.close(entry)


def _open_lock(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _read(file: int, placeholders: dict[str, bytes | None]) -> set[str]:
    names = set(os.pread(file, 4096, 0).decode(errors="replace").split("\n"))
    return names & placeholders.keys()


def _write(file: int, names: set[str]) -> None:
    os.truncate(file, 0)
    os.pwrite(file, "\n".join(sorted(names)).encode(), 0)


def _parsed(arguments: list[str]) -> dict[str, bytes | None]:
    parts = (argument.partition("=") for argument in arguments)
    return {name.rstrip("/"): content.encode() if equals else None for name, equals, content in parts}


if __name__ == "__main__":
    end = sys.argv.index("--")
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], _parsed(sys.argv[4:end]), sys.argv[end + 1 :]))
