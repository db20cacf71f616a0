"""Processes that a kernel has started and that must not outlive it, including daemons and processes of other sessions.

The gateway adopts all orphans among its descendants. A process belongs to the kernel that it descends from, or that its
environment names; others end with the gateway. This needs Linux; elsewhere, kernels end with their group.

In a sandbox, process ids in /proc may differ from those in system calls, because srt's `apply-seccomp` creates a PID
namespace without mounting a /proc for it. Ids here are those of /proc until a system call needs the other ones.
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from ipybox.guest.confine import prctl

#: The environment variables with a kernel's id and its gateway's id.
KERNEL_ID = "IPYBOX_KERNEL_ID"
GATEWAY_ID = "IPYBOX_GATEWAY_ID"

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans(loop: asyncio.AbstractEventLoop, own: Container[int]) -> None:
    """Makes this process adopt orphans among its descendants, including daemons; does nothing except on Linux.

    Args:
        loop: The event loop of the main thread. It takes over SIGCHLD, and reaps orphans when they end.
        own: The ids of the children that are reaped elsewhere, as they are at each moment.
    """
    if sys.platform != "linux":
        return
    prctl("adopt orphans", PR_SET_CHILD_SUBREAPER, 1)
    loop.add_signal_handler(signal.SIGCHLD, _reap, own)


def has_children() -> bool:
    """Returns whether this process may have children."""
    return sys.platform != "linux" or bool(_children(_this()))


def below_child(pid: int) -> set[int]:
    """Returns the descendants of a child of this process; `pid` is the child's id in system calls."""
    child = next((child for child in _children(_this()) if _id_here(child) == pid), None)
    return set() if child is None else _below(child)


def kill_kernel(kernel_id: str, kernels: Collection[int], seen: Collection[int]) -> None:
    """Kills the processes that a kernel has started, until none are left.

    Args:
        kernel_id: The id that the environment of its processes contains.
        kernels: The process ids of all kernels. Their descendants are not examined: there may be thousands.
        seen: Processes that were descendants of the kernel.
    """
    marker = f"{KERNEL_ID}={kernel_id}".encode()

    def left() -> Iterator[int]:
        for child in _children(_this()):
            if _id_here(child) in kernels:
                continue
            for process in (child, *_below(child)):
                if process in seen or marker in _environment(process):
                    yield process
                    yield from _below(process)

    _kill_all(left)


def kill_descendants() -> None:
    """Kills all descendants of this process, until none are left."""
    _kill_all(lambda: _below(_this()))


def _kill_all(find: Callable[[], Iterable[int]]) -> None:
    killed: set[int] = set()
    # A killed process may start another one before it ends.
    while processes := {*find()} - killed:
        killed |= processes
        for process in processes:
            if (pid := _id_here(process)) is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


def _reap(own: Container[int]) -> None:
    for child in _children(_this()):
        if (pid := _id_here(child)) is not None and pid not in own:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _this() -> int:
    """Returns the id that this process has in /proc; 0 without a /proc."""
    with suppress(OSError):
        return int(os.readlink("/proc/self"))
    return 0


def _id_here(process: int) -> int | None:
    """Returns the id of a process for system calls of this one, or None if it has no such id."""
    if (depth := _depth()) == 1:
        return process
    # Ordered from /proc's own namespace inwards; the process may be nested more deeply than this one.
    ids = _namespace_ids(process)
    return ids[depth - 1] if len(ids) >= depth > 0 else None


@cache
def _depth() -> int:
    """Returns how many PID namespaces this process is in, counted from /proc's own; 0 without a /proc."""
    return len(_namespace_ids(_this()))


def _namespace_ids(process: int) -> list[int]:
    with suppress(OSError):
        found = re.search(r"^NSpid:(.*)", Path(f"/proc/{process}/status").read_text(errors="replace"), re.MULTILINE)
        return [*map(int, found[1].split())] if found else []
    return []


def _below(process: int) -> set[int]:
    found: set[int] = set()
    waiting = [process]
    while waiting:
        children = {*_children(waiting.pop())} - found
        found |= children
        waiting += children
    return found


def _children(process: int) -> list[int]:
    found: list[int] = []
    tasks = f"/proc/{process}/task"
    with suppress(OSError):  # the process or its thread may end at any moment
        for task in os.listdir(tasks):
            with suppress(OSError):
                found += map(int, Path(tasks, task, "children").read_text().split())
    return found


def _environment(process: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return []
