"""Process setup of the gateway, the template and kernels.

The application recognizes kernels by their command lines (`ipybox.kernel_mgr.limits.kernel_processes`), and the gateway
recognizes kernels' children by the id in their environments (`ipybox.guest.descendants`). /proc shows both from memory
that is set up when a program starts, so the template reserves space for a longer command line, and for an id.
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

#: Bytes by which a kernel's command line may exceed the length of its program and directory together.
COMMAND_SPACE = 256

#: The kernel id in the template's environment, as long as real kernel ids.
PLACEHOLDER = "0" * 36

#: RLIMIT_NPROC counts threads as processes, so it must leave room for programs with many of them.
THREADS_PER_PROCESS = 8
SPARE_THREADS = 1024

#: Fields of /proc/self/stat, counted after the program name, with the start and end of arguments and environment.
ARGUMENTS, ENVIRONMENT = slice(45, 47), slice(47, 49)


def close_input() -> None:
    """Replaces this process's standard input with an empty one."""
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
    """Exits this process, which code forked from the kernel, when its code has ended; Python has printed the error.

    Otherwise it would return to the kernel's event loop. `atexit` handlers are the parent's, and don't run.
    """
    status = exit_status(error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):  # code may have replaced it
            stream.flush()
    os._exit(status)


def exit_status(error: BaseException | None) -> int:
    """Returns the exit status of a program that ends with this error; prints a status that is text."""
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
    """Limits this process and each child permanently; an allocation beyond the limit raises a MemoryError in the cell.

    The application monitors what a kernel and its children use together (`ipybox.kernel_mgr.limits`).

    Args:
        memory: Bytes of private memory, counted once allocated, used or not, including thread stacks (8 MiB each).
            Reserved address space and shared memory don't count. macOS does not enforce the limit.
        processes: Processes that the monitor allows: a coarse second defense against a fork bomb that outruns the
            monitor. Use it only in a sandbox: elsewhere it would count all of the user's processes.
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
    """Returns whether RLIMIT_NPROC counts only this user namespace's processes, as Linux does since 5.14."""
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
    """Applies the changes between two environments to this process, and to what /proc shows.

    Keeps variables that this process has set since `before`. /proc shows no value that it lacks room for.
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
    """Returns the start and end addresses."""
    start, end = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[fields]
    return int(start), int(end)


def do_nothing(*_: object) -> None:
    """Does nothing; used as a handler or callback."""
