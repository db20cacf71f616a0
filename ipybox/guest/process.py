"""Process functions that gateway, template and kernel share."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def close_input() -> None:
    """Gives this process a standard input of its own, which is at its end."""
    read_end, write_end = os.pipe()
    os.close(write_end)
    os.dup2(read_end, 0)
    os.close(read_end)


def die_with_parent(parent_pid: int) -> None:
    """Makes the kernel (the operating system's) kill this process when its parent process ends.

    Only Linux can do this; elsewhere ipykernel notices a missing parent by polling, within a second.
    See prctl(2), PR_SET_PDEATHSIG.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl(PR_SET_PDEATHSIG): {os.strerror(error)}")
    if os.getppid() != parent_pid:  # the parent ended before the call above
        os._exit(1)
