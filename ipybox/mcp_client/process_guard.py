"""Runs one stdio MCP server and makes sure that none of its processes outlives the application.

    application ──stdin, stdout, stderr──► server    (its own process group; the pipes are the application's)
         └──────────── starts ──► guard ──┘          (polls its stdin for a hang-up, never reads it)

    python -I -S process_guard.py -- command args...

Whatever ends the application, SIGKILL included, closes the other end of stdin. The server then reads an end of file,
and has `EXIT_GRACE` seconds to exit. Then it gets SIGTERM and `TERM_GRACE` more; after that its whole process group is
killed. On Linux the guard is a subreaper: processes that left the group (a browser, a daemon) become its children when
their parent dies, and are killed with the rest.

The guard exits with the server's exit code, 128+n if a signal ended it, 127 if it could not be started. When a server
ends by itself, the last line on stderr, after `REPORT`, says how.

It uses only the standard library, because `-I -S` hides site-packages, and little of it: every start waits for imports.
"""

import os
import select
import sys
import time

# `signal` itself imports `enum`, which takes as long as the rest of the interpreter's start.
_signal = __import__("_signal")

#: Starts the line on stderr that tells the application how the server ended.
REPORT = "\x1eipybox-guard: "

#: Seconds that a server gets to exit by itself after its stdin was closed.
EXIT_GRACE = 0.5

#: Seconds that it gets after SIGTERM.
TERM_GRACE = 0.2

_PR_SET_CHILD_SUBREAPER = 36


def main(command: list[str]) -> int:
    """Runs `command` until it ends or the application is gone, and returns its exit code."""
    _adopt_orphans()
    wakeup = _wake_on_signals()
    try:
        pid = os.posix_spawnp(
            command[0],
            command,
            os.environ,
            setpgroup=0,
            setsigdef=_signal.valid_signals(),
        )
    except OSError as exc:
        _report(f"can't be started: {exc.strerror}")
        return 127
    # The server alone decides when its stdout ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    server = _Server(pid)
    ended_by_itself = _watch(server, wakeup)
    status = server.kill_all()
    if ended_by_itself:
        _report(f"was killed by signal {-status}" if status < 0 else f"exited with code {status}")
    return status if status >= 0 else 128 - status


def _watch(server: "_Server", wakeup: int) -> bool:
    """Returns True if the server has ended by itself, False if it must be stopped."""
    poll = select.poll()
    poll.register(wakeup, select.POLLIN)
    # POLLHUP is always reported. A socket also reports a half-close, like an end of file.
    poll.register(0, getattr(select, "POLLRDHUP", 0))
    deadline: float | None = None
    terminated = stopping = False
    while True:
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        events = poll.poll(timeout)
        # First, so that an exit counts as an exit even if a hang-up arrives with it.
        if server.has_exited():
            return not stopping
        for fd, _ in events:
            if fd == 0:
                poll.unregister(0)
                stopping = True
                deadline = deadline or time.monotonic() + EXIT_GRACE
            elif any(number != _signal.SIGCHLD for number in os.read(wakeup, 512)):
                stopping = True
                deadline = time.monotonic()
        if deadline is not None and time.monotonic() >= deadline:
            if terminated:
                return False
            terminated = True
            _kill(-server.pid, _signal.SIGTERM)
            deadline = time.monotonic() + TERM_GRACE


def _adopt_orphans() -> None:
    """Becomes the parent of every descendant whose own parent dies (Linux, prctl(2))."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _wake(*_: object) -> None:
    """Does nothing: the signal only writes a byte to the wake-up pipe."""


def _wake_on_signals() -> int:
    """Returns a descriptor from which the numbers of arriving signals can be read."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    _signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (_signal.SIGCHLD, _signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, _wake)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())  # the application may block some
    return read_end


class _Server:
    """The server's process, the leader of its own process group."""

    def __init__(self, pid: int):
        self.pid = pid
        self._status: int | None = None

    def has_exited(self) -> bool:
        """Returns whether the server has ended, without reaping it; reaps adopted orphans that have ended."""
        if sys.platform == "darwin":  # which has no waitid() before Python 3.13, but adopts no orphans
            if self._status is None and (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
                self._status = ended[1]
            return self._status is not None
        while (child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if child.si_pid == self.pid:
                return True
            os.waitpid(child.si_pid, 0)
        return False

    def kill_all(self) -> int:
        """Kills the server, its process group and all adopted processes; returns its exit code or -signal."""
        # Before the server is reaped: while it is a zombie, no other process can get its process group's id.
        if not _kill(-self.pid, _signal.SIGKILL):
            return 1  # it runs as another user
        if self._status is None:
            self._status = os.waitpid(self.pid, 0)[1]
        # The guard adopts the children of a killed process, until no processes are left.
        while any(_kill(child, _signal.SIGKILL) for child in _children()):
            os.waitpid(-1, 0)
        return os.waitstatus_to_exitcode(self._status)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []  # no /proc, or not Linux: killing the process group must do


def _kill(pid: int, number: int) -> bool:
    """Sends a signal to a process, or to a group if negative; False if that isn't permitted."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        # macOS reports the same if only zombies are left in a group.
        return sys.platform == "darwin"
    return True


def _report(text: str) -> None:
    try:  # noqa: SIM105 - importing contextlib takes longer than this whole module
        os.write(2, f"\n{REPORT}{text}\n".encode())
    except OSError:
        pass  # the reader is gone


if __name__ == "__main__":
    # Skips the interpreter's finalization; nothing is buffered.
    os._exit(main(sys.argv[sys.argv.index("--") + 1 :]))
