"""Runs a sandboxed command in a workspace, and keeps names in the workspace taken meanwhile.

    python -I -S guard.py WORKSPACE STATE_DIR PRIVATE_DIR NAME/ NAME=CONTENT ... -- command args...

bubblewrap can deny a name only by mounting over it, so a name that does not exist has to be made first. srt does
that, but removes what it made when its command ends, and with that opens the name for every other sandbox of the same
workspace. Here the placeholders belong to all sandboxes of a workspace together: each holds a shared lock, and the
last one to leave removes them. What was left by a process that had no chance to, the next one removes. The command's
private directory is removed, too, also if the application that made it has not lived to see the end.

If srt is killed, the sandbox that it has started goes on. Its processes are killed before the names are free: removing
a name also removes the mount over it, so code in that sandbox could then write the name.

The names come as arguments (`ipybox.workspace.names.PLACEHOLDERS` is the list): an empty directory's ends with a slash,
a file's is followed by what the file holds.

Standard library only, because `-I -S` hides site-packages, and few modules of it: every start waits for it.
"""

import fcntl
import os
import signal
import stat
import sys
from types import FrameType

PR_SET_CHILD_SUBREAPER = 36


def main(
    workspace: str, state_dir: str, private_dir: str, placeholders: dict[str, bytes | None], command: list[str]
) -> int:
    """Runs the command and returns its exit code, 128+n if a signal ended it."""
    root = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    # Not in the workspace: who can read a file can lock it.
    users = _open_lock(f"{state_dir}/sandboxes.lock")
    mutex = _open_lock(f"{state_dir}/placeholders.lock")

    fcntl.flock(mutex, fcntl.LOCK_EX)
    fcntl.flock(users, fcntl.LOCK_SH)
    made = _make_missing(root, placeholders)
    _write(mutex, _read(mutex, placeholders) | made)
    fcntl.flock(mutex, fcntl.LOCK_UN)
    try:
        return _run(command)
    finally:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_UN)
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass  # others are there, and the last one removes them
        else:
            _remove(root, placeholders, _read(mutex, placeholders))
            _write(mutex, set())
        # Only now, as it takes longer to import than all of the above.
        __import__("shutil").rmtree(private_dir, ignore_errors=True)


def _run(command: list[str]) -> int:
    def forward(number: int, _: FrameType | None) -> None:
        os.kill(pid, number)

    _adopt_orphans()
    orders = (signal.SIGINT, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, orders)  # until it is known whom they go to
    pid = os.posix_spawnp(command[0], command, os.environ, setsigmask=[], setsigdef=[signal.SIGPIPE, signal.SIGXFSZ])
    for number in orders:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, orders)
    # The link must end with the command; this process has no part in it.
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    while (ended := os.wait())[0] != pid:
        pass  # an orphan
    signal.pthread_sigmask(signal.SIG_BLOCK, orders)  # the number may be another process's now
    _kill_children()
    status = os.waitstatus_to_exitcode(ended[1])
    return status if status >= 0 else 128 - status


def _adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent dies (Linux, prctl(2))."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _kill_children() -> None:
    """Kills what the command has left, and returns when it has ended.

    The end of bubblewrap's first process is the end of all processes in its namespace.
    """
    while children := _children():
        for child in children:
            os.kill(child, signal.SIGKILL)  # not waited for yet, so the number is still its own
        for child in children:
            os.waitpid(child, 0)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []  # no /proc, or not Linux: the application kills the process group


def _make_missing(root: int, placeholders: dict[str, bytes | None]) -> set[str]:
    """Makes the placeholders whose names are free, and returns these names."""
    made: set[str] = set()
    for name, content in placeholders.items():
        try:
            if content is None:
                os.mkdir(name, 0o755, dir_fd=root)
            else:
                # Writable: srt takes an empty file that is not for a leftover of its own, and removes it.
                file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=root)
                os.write(file, content)
                os.close(file)
        except FileExistsError:
            continue
        made.add(name)
    return made


def _remove(root: int, placeholders: dict[str, bytes | None], names: set[str]) -> None:
    """Removes those placeholders that are still as they were made."""
    for name in names:
        content = placeholders[name]
        try:
            if content is None:
                os.rmdir(name, dir_fd=root)
            elif _content(root, name, len(content) + 1) in (b"", content):
                os.unlink(name, dir_fd=root)
        except OSError:
            pass  # gone, in use, or something else


def _content(root: int, name: str, size: int) -> bytes | None:
    """Returns the beginning of a regular file."""
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=root)
    try:
        return os.read(file, size) if stat.S_ISREG(os.fstat(file).st_mode) else None
    finally:
        os.close(file)


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
