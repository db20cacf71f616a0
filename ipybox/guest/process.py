"""What the gateway, the template and kernels do to their own processes.

The application recognizes kernels by their command lines (`ipybox.kernel_mgr.limits.kernel_processes`), the gateway
their children by the id in their environments (`ipybox.guest.strays`). /proc shows the memory in which a program found
both, so the template has space for a longer command line, and an id that kernels replace.
"""

import ctypes
import os
import re
import resource
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from ipybox.guest.confine import prctl

PR_SET_PDEATHSIG = 1

#: The exit status of an interrupted program, as shells report it.
INTERRUPTED = 130

#: Bytes by which a kernel's command line may be longer than its program and its directory together.
COMMAND_SPACE = 256

#: The kernel id in the environment of the template; each kernel id is as long as this one.
PLACEHOLDER = "0" * 36

#: Threads count as processes for RLIMIT_NPROC: it must permit programs with many of them.
THREADS_PER_PROCESS = 8
SPARE_THREADS = 1024

#: Where /proc/self/stat has the start and the end of arguments and environment, counted after the name of the program.
ARGUMENTS, ENVIRONMENT = slice(45, 47), slice(47, 49)


def close_input() -> None:
    """Gives this process a standard input of its own, which is at its end."""
    read_end, write_end = os.pipe()
    os.close(write_end)
    os.dup2(read_end, 0)
    os.close(read_end)


def die_with_parent(parent_pid: int) -> None:
    """Makes the operating system kill this process when its parent process ends.

    Only Linux can do this; elsewhere ipykernel notices a missing parent by polling, within a second.
    """
    if sys.platform != "linux":
        return
    prctl("end with the parent process", PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # the parent ended before the call above
        os._exit(1)


def end_child(error: BaseException | None) -> NoReturn:
    """Ends this process, which code forked off the kernel, at the end of the code; Python has printed the error.

    Otherwise it would return into the kernel's event loop. Handlers of `atexit` are the parent's.
    """
    status = status_of(error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):  # code may have replaced it
            stream.flush()
    os._exit(status)


def status_of(error: BaseException | None) -> int:
    """Returns the exit status of a program that ends with this error; a text as the status is printed."""
    match error:
        case None | SystemExit(code=None):
            return 0
        case KeyboardInterrupt():
            return INTERRUPTED
        case SystemExit(code=int(code)):
            return code & 0xFF
        case SystemExit(code=code):
            with suppress(BaseException):
                print(code, file=sys.stderr)
        case _:
            pass
    return 1


def limit_process(*, memory: int | None = None, processes: int | None = None) -> None:
    """Limits this process and each of its children permanently: one allocation too many is a MemoryError in the cell.

    The application monitors what a kernel and its children use together (`ipybox.kernel_mgr.limits`).

    Args:
        memory: Bytes of private memory. It counts from the allocation on, used or not, thread stacks (8 MiB each)
            included; reserved address space and shared memory don't count. macOS does not enforce it.
        processes: Processes that the monitor allows: a coarse second defense against a fork bomb that outruns it. Use
            it in a sandbox only: elsewhere it would count all processes of the user.
    """
    _lower(resource.RLIMIT_CORE, 0)
    if memory is not None:
        # Not RLIMIT_AS, which counts what numpy, Node and others only reserve.
        _lower(resource.RLIMIT_DATA, memory)
    if processes is not None and _counts_per_namespace():
        _lower(resource.RLIMIT_NPROC, processes * THREADS_PER_PROCESS + SPARE_THREADS)


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _counts_per_namespace() -> bool:
    """Tells whether RLIMIT_NPROC counts the processes of this user namespace only, as Linux does since 5.14."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return sys.platform == "linux" and release is not None and (int(release[1]), int(release[2])) >= (5, 14)


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
    """Makes the changes from one environment to another in this process, and in /proc.

    Variables that this process has set since `before` stay. Where /proc has no room for a value, it shows none.
    """
    for name in before.keys() - after.keys():
        os.environ.pop(name, None)
    os.environ.update({name: value for name, value in after.items() if before.get(name) != value})
    start, end = _place(ENVIRONMENT)
    for shown in ctypes.string_at(start, end - start).split(b"\0"):
        name, _, value = shown.partition(b"=")
        if (current := os.environb.get(name)) != value:  # the C library uses another copy
            entry = b"" if current is None or len(current) != len(value) else name + b"=" + current
            ctypes.memmove(start, entry.ljust(len(shown), b"\0"), len(shown))
        start += len(shown) + 1


def _place(fields: slice) -> tuple[int, int]:
    """Returns the addresses of the start and the end."""
    start, end = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[fields]
    return int(start), int(end)
