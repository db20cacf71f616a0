"""Runs the command of an engine so that it ends with the application, also if that is killed.

    python -I -S tied.py PID /path/of/command args...

A command such as `srun` does not read its input while its job waits in a queue, so it would not notice that the
application was killed, and the job would keep its place. On Linux, the operating system sends the command SIGTERM then
(prctl(2), PR_SET_PDEATHSIG), at which `srun` withdraws the job.

This process becomes the command. It imports few modules, because each start waits for it.
"""

import ctypes
import os
import sys

# `signal` itself imports `enum`, which takes as long as the rest of the interpreter's start.
_signal = __import__("_signal")

_PR_SET_PDEATHSIG = 1


def main(application: int, command: list[str]) -> None:
    """Becomes the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _signal.SIGTERM, 0, 0, 0)
        if os.getppid() != application:  # it ended before the call above
            sys.exit(1)
    # Python ignores two, and the application perhaps others. What `nohup` has set stays.
    for number in _signal.valid_signals() - {_signal.SIGHUP, _signal.SIGKILL, _signal.SIGSTOP}:
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    try:
        os.execv(command[0], command)
    except OSError as exc:
        sys.exit(f"it can't be started: {exc.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
