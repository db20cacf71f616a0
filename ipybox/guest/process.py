"""What gateway, template and kernel do to their own processes.

/proc shows the memory in which a program found its arguments and environment. The application knows kernels by their
command lines (`ipybox.kernel_mgr.limits.kernel_processes`), and the gateway knows forked children of kernels by the id
in their environments (`ipybox.guest.strays`). So the template has space for a longer command line, and an id that
kernels replace: the operating system shows a forked kernel with its own ones. See proc(5).
"""

import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from ipybox.guest.strays import KERNEL_ID

PR_SET_PDEATHSIG = 1

#: The exit status of an interrupted program, as shells report it.
INTERRUPTED = 130

#: Bytes that the command line of a kernel may be longer than those of its program and its directory together.
COMMAND_SPACE = 256

#: The kernel id in the environment of the template; each kernel id is as long as this one.
PLACEHOLDER = "0" * 36

#: Where /proc/self/stat has the start and the end of arguments and environment, counted after the name of the program.
ARGUMENTS, ENVIRONMENT = slice(45, 47), slice(47, 49)


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


def end_child(error: BaseException | None) -> NoReturn:
    """Ends this process, which code forked off the kernel, at the end of the code, like a program.

    Otherwise it would return into the event loop of the kernel, and run a second one. Python has printed the error.
    A child of `multiprocessing` runs no handlers of `atexit`, because they are the parent's.
    """
    status = status_of(error)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # code may have replaced it
            continue
    os._exit(status)


def status_of(error: BaseException | None) -> int:
    """Returns the exit status of a program that ends with this error; a text as the status is printed, as by Python."""
    match error:
        case None:
            return 0
        case KeyboardInterrupt():
            return INTERRUPTED
        case SystemExit(code=None):
            return 0
        case SystemExit(code=int(code)):
            return code & 0xFF
        case SystemExit(code=code):
            try:
                print(code, file=sys.stderr)
            except BaseException:
                return 1
            return 1
        case _:
            return 1


def show_command(command: list[str]) -> None:
    """Replaces the command line of this process in /proc.

    Raises:
        ValueError: If it is longer than the one with which the process was started.
    """
    start, end = _place(ARGUMENTS)
    text = b"".join(os.fsencode(argument) + b"\0" for argument in command)
    if len(text) > end - start:
        raise ValueError(f"the command line has {len(text)} bytes; the template has room for {end - start}")
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def change_environment(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Makes the changes from one environment to another in this process, and erases in /proc what is not in `after`.

    Variables that this process has set since `before` stay.
    """
    changed = [name for name, value in before.items() if after.get(name) != value]
    outdated = [place for name in changed if (place := _outdated(name, after.get(name)))]
    for name in before.keys() - after.keys():
        os.environ.pop(name, None)
    os.environ.update({name: value for name, value in after.items() if before.get(name) != value})
    for address, size in outdated:  # now that the C library does not use them
        ctypes.memset(address, 0, size)


def show_kernel_id(kernel_id: str) -> None:
    """Replaces the id in the environment with which this process was started. Call it before that is changed.

    Raises:
        ValueError: If the environment has no id, or one of another length.
    """
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    address = libc.getenv(KERNEL_ID.encode())
    if not address or len(ctypes.string_at(address)) != len(kernel_id):
        raise ValueError(f"the environment of the template has no {KERNEL_ID} of {len(kernel_id)} bytes")
    ctypes.memmove(address, kernel_id.encode(), len(kernel_id))


def _place(fields: slice) -> tuple[int, int]:
    """Returns the addresses of the start and the end."""
    start, end = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[fields]
    return int(start), int(end)


def _outdated(name: str, value: str | None) -> tuple[int, int] | None:
    """Returns address and size of a variable with which this process was started, if /proc shows another value."""
    start, end = _place(ENVIRONMENT)
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    address = libc.getenv(os.fsencode(name))
    if not address or not start <= address < end:
        return None
    shown = ctypes.string_at(address)
    if value is not None and shown == os.fsencode(value):  # `show_kernel_id` has replaced it there
        return None
    before = len(os.fsencode(name)) + 1
    return address - before, before + len(shown)
