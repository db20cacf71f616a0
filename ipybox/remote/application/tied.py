"""Runs an engine's command that exits with the application, even if the application is killed.

    python -I -S tied.py PID /path/of/command args...

A command such as `srun` doesn't read its input while its job is queued, so it wouldn't notice that the application was
killed, and the job would stay in the queue. On Linux, the operating system then sends the command SIGTERM
(prctl(2), PR_SET_PDEATHSIG), and `srun` cancels the job.

This process becomes the command. It imports few modules to start fast.
"""

import ctypes
import os
import sys

# `signal` would import `enum`, which takes as long as the rest of the interpreter's startup.
_signal = __import__("_signal")

_PR_SET_PDEATHSIG = 1


def main(application: int, command: list[str]) -> None:
    """Replaces this process with the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _signal.SIGTERM, 0, 0, 0)
        if os.getppid() != application:  # it died before the call above
            sys.exit(1)
    # Python ignores two signals, and the application may ignore others. Keeps what `nohup` set.
    for number in _signal.valid_signals() - {_signal.SIGHUP, _signal.SIGKILL, _signal.SIGSTOP}:
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    try:
        os.execv(command[0], command)
    except OSError as exc:
        sys.exit(f"it can't be started: {exc.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
