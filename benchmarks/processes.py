"""What a process and all its descendants use: memory, CPU time; and when they are idle, and gone."""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress

import psutil

from benchmarks.measurement import UnavailableError
from benchmarks.subject import SubjectError

#: Seconds between two looks at CPU time, what counts as no use of it in that time, and how long to wait for that.
IDLE_INTERVAL = 1.0
IDLE_SECONDS = 0.02
IDLE_LIMIT = 20.0

#: Seconds until processes must be gone, and between two looks.
GONE_LIMIT = 60.0
GONE_INTERVAL = 0.002


def tree(pid: int) -> list[psutil.Process]:
    """Returns a process and all its descendants."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def idle_memory(pid: int) -> float:
    """Returns the memory of an idle process and all its descendants, in MiB: the sum of their PSS.

    A page that several processes share counts once, divided among them.

    Raises:
        UnavailableError: If the system does not tell.
    """
    if sys.platform != "linux":
        raise UnavailableError("only Linux tells the PSS of processes")
    _await_idle(pid)
    total = 0
    for process in tree(pid):
        with suppress(psutil.NoSuchProcess):
            try:
                total += process.memory_full_info().pss
            except psutil.AccessDenied:
                raise UnavailableError("the PSS of protected processes needs root") from None
    return total / 2**20


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process and all its descendants, those included that have ended and been waited for.

    Raises:
        UnavailableError: If the system does not tell.
    """
    if sys.platform != "linux":
        raise UnavailableError("only Linux tells the CPU time of other processes exactly enough")
    total = 0.0
    for process in tree(pid):
        with suppress(psutil.NoSuchProcess, OSError):
            ended = process.cpu_times()
            total += _cpu_clock(process.pid) + ended.children_user + ended.children_system
    return total


def await_gone(processes: Sequence[psutil.Process]) -> None:
    """Returns when all of these processes are gone.

    Raises:
        SubjectError: If that takes longer than `GONE_LIMIT`.
    """
    limit = time.perf_counter() + GONE_LIMIT
    while left := [process for process in processes if _runs(process)]:
        if time.perf_counter() > limit:
            raise SubjectError(f"processes were still running {GONE_LIMIT:g} s after their end: {left}")
        time.sleep(GONE_INTERVAL)


def _await_idle(pid: int) -> None:
    before = cpu_seconds(pid)
    limit = time.perf_counter() + IDLE_LIMIT
    while time.perf_counter() < limit:
        time.sleep(IDLE_INTERVAL)
        now = cpu_seconds(pid)
        if abs(now - before) < IDLE_SECONDS:
            return
        before = now


def _cpu_clock(pid: int) -> float:
    # The clock of a process counts nanoseconds, /proc/PID/stat ticks of 10 ms. This is the clock's identifier, as by
    # clock_getcpuclockid(3), which Python does not have.
    return time.clock_gettime((~pid << 3) | 2)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
