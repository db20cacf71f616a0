"""Enforces the resource limits of kernels and all processes that they start, from the host.

The monitor polls the process tree below the gateway, in its own thread, which a busy event loop does not delay. Each
poll computes a cheap upper bound of memory; only if it exceeds the limit is memory measured exactly, which is slow. The
limits in the guest (`ipybox.guest.process`) apply first: most programs get a MemoryError there and nothing is killed.
`KernelGateway` owns the monitor.

It can't see System V shared memory, data buffered in pipes and sockets, or files on disk. It stops accidents and simple
memory hogs within a tenth of a second; against programs designed to evade it, run ipybox in a control group.
"""

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass

from ipybox.kernel_mgr.limits.kernel_processes import KernelProcesses
from ipybox.kernel_mgr.limits.process_tree import Process, process_tree
from ipybox.kernel_mgr.limits.resource_limits import UNATTRIBUTED, ResourceLimits
from ipybox.support.sizes import format_bytes
from ipybox.support.tasks import start_daemon_thread
from ipybox.support.way_in import name_of

logger = logging.getLogger(__name__)

#: Minimum and maximum seconds between two polls.
MIN_PAUSE = 0.1
MAX_PAUSE = 0.5

#: Assumed maximum memory growth in bytes per second, to compute the length of a pause.
FILL_RATE = 4 << 30

#: A pause is at least this many times as long as the previous poll, up to MAX_PACED_PAUSE.
PACE = 5
MAX_PACED_PAUSE = 1.0

#: Seconds to find all processes of a fork bomb before killing those found so far.
STOP_TIMEOUT = 2.0

#: Seconds after which the gateway is also killed if some processes survive a kill.
KILL_TIMEOUT = 5.0

#: Seconds to wait for the root of the tree to end by itself.
TERMINATE_GRACE = 1.0


class LimitMonitor:
    """Monitors the processes below one process and kills them when they exceed a limit.

    The gateway and the sandbox around it don't count, except for the growth of their memory. Start the monitor once the
    gateway answers; kernels may already be running. Monitoring continues after a kill.

    The gateway's spare kernel does not count either. The guest's reports are not trusted, so the spare is identified as
    one kernel that has run no cell, with a single process and little memory.

    Kernels share the limits: the monitor kills the kernel that uses most. Processes that left their kernel unseen count
    as another kernel, so no other kernel is killed for what they use. CPU time is counted per kernel, without them.

    Args:
        pid: The gateway process, or the sandbox around it, a child of this process. It is killed only if usage is
            still too high without the kernels.
        limits: The resource limits.
        on_exceeded: Called in the event loop, with a message and the ids of the kernels to be killed, excluding unused
            kernels; the id is `UNATTRIBUTED` for processes that left their kernel unseen.
    """

    def __init__(self, pid: int, limits: ResourceLimits, on_exceeded: Callable[[str, Collection[str]], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._on_exceeded = on_exceeded
        #: The kernels that have run a cell.
        self._used: set[str] = set()
        self._tree = process_tree(pid)
        self._kernels = KernelProcesses(self._tree, self._used)
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._ended = asyncio.Event()
        self._cells: dict[str, _CellTime] = {}

    def start(self) -> None:
        """Starts monitoring.

        Raises:
            OSError: If its thread can't start.
        """
        self._tree.open_private_files(self._kernels.poll())
        try:
            self._thread = start_daemon_thread(self._run, "ipybox-limits")
        except OSError:
            self._tree.close()
            raise

    async def stop(self) -> None:
        """Stops monitoring. No callback is called afterwards."""
        self._stopping = True
        self._wake.set()
        assert self._thread is not None
        await self._ended.wait()
        self._thread.join()

    @contextlib.contextmanager
    def measure_cell(self, kernel: str, on_cpu_exceeded: Callable[[str], object]) -> Generator[None]:
        """Marks a kernel as used and measures its cell's CPU time.

        Args:
            kernel: The id of the kernel.
            on_cpu_exceeded: Called in the event loop with a message, once, if the cell exceeds its CPU time. Nothing is
                killed.
        """
        self._used.add(kernel)
        if self._limits.cpu_seconds is not None:
            self._cells[kernel] = _CellTime(on_cpu_exceeded)
            self._wake.set()
        try:
            yield
        finally:
            self._cells.pop(kernel, None)

    def _run(self) -> None:
        try:
            pause: float | None = 0.0
            while not self._stopping and pause is not None:
                self._wake.clear()
                started = time.monotonic()
                try:
                    pause = self._check()
                except OSError as exc:  # a resource shortage, such as too many open files
                    logger.warning("can't list the kernel's processes: %s", exc)
                    pause = MAX_PAUSE
                if pause is not None:
                    self._wake.wait(max(pause, min(PACE * (time.monotonic() - started), MAX_PACED_PAUSE)))
        finally:
            self._tree.close()
            self._call(self._ended.set)

    def _check(self) -> float | None:
        """Checks all limits, kills processes that exceed one, and returns the seconds until the next poll.

        Returns None if there is nothing left to monitor.
        """
        processes = self._kernels.poll()
        if not processes:
            return None
        pauses = [MAX_PAUSE]
        for kernel, cell in tuple(self._cells.items()):
            pauses.append(self._check_cpu(kernel, cell, processes))
        if (limit := self._limits.processes) is not None:
            count = len(self._kernels.owners)
            pauses.append(MIN_PAUSE if count > limit / 2 else 2 * MIN_PAUSE)
            if count > limit:
                used = f"children ran {count} processes, more than {name_of('process_limit')}={limit} allows"
                self._end_largest(used, len, lambda own: f"had {own} of them")
        if (limit := self._limits.memory) is not None:
            memory = self._kernels.bound
            if memory > limit:
                memory = self._exact()
            pauses.append((limit - memory) / FILL_RATE)
            if memory > limit:
                allowed = f"{name_of('memory_limit')}={format_bytes(limit)}"
                used = f"processes used {format_bytes(memory)} of memory, more than {allowed} allows"
                self._end_largest(used, self._tree.exact, lambda own: f"used {format_bytes(own)} of it")
        return max(min(pauses), MIN_PAUSE)

    def _end_largest(self, used: str, size: Callable[[list[int]], int], share: Callable[[int], str]) -> None:
        """Kills the kernel that uses most, or all if there is only one; reports what they `used`, and its share."""
        owners = set(self._kernels.owners.values())
        if len(owners) < 2:
            self._end(None, f"the kernel and its {used}: the kernel was killed")
            return
        own = {owner: size(self._kernels.pids(owner)) for owner in owners}
        kernel = max(own, key=own.__getitem__)
        used = f"all kernels and their {used}"
        if kernel != UNATTRIBUTED:
            self._end(kernel, f"{used}: this kernel, which {share(own[kernel])}, was killed")
            return
        fate = f"processes detached from their kernel, which {share(own[kernel])}, were killed"
        if not self._end(kernel, f"{used}: {fate}"):
            # A kernel starts processes faster than the monitor kills them.
            self._end(None, f"{used}: the kernel was killed")

    def _exact(self) -> int:
        return self._kernels.grown + self._tree.exact(self._kernels.owners)

    def _check_cpu(self, kernel: str, cell: "_CellTime", processes: Mapping[int, Process]) -> float:
        """Checks a cell's CPU time and returns the minimum seconds until it can reach the limit."""
        limit = self._limits.cpu_seconds
        if limit is None or cell.exceeded:
            return MAX_PAUSE
        cell.note(sum(processes[pid].cpu for pid in self._kernels.pids(kernel)))
        if cell.used > limit:
            cell.exceeded = True
            used = f"the cell used {cell.used:.1f} s of CPU time"
            message = f"{used}, more than {name_of('cpu_seconds')}={limit:g} allows"
            self._call(self._report_cpu, cell, message, kernel)
        return (limit - cell.used) / (os.cpu_count() or 1)

    def _call(self, callback: Callable[..., object], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback, *args)

    def _report(self, message: str, kernel: str | None) -> None:
        if not self._stopping:
            self._on_exceeded(message, self._used if kernel is None else {kernel})

    def _report_cpu(self, cell: "_CellTime", message: str, kernel: str) -> None:
        if cell is self._cells.get(kernel) and not self._stopping:
            cell.on_exceeded(message)

    def _doomed(self, kernel: str | None) -> set[int]:
        """Returns the running processes of one kernel, or of all kernels except the spare."""
        processes = self._kernels.poll()
        pids = self._kernels.owners if kernel is None else self._kernels.pids(kernel)
        return {pid for pid in pids if processes[pid].alive}

    def _end(self, kernel: str | None, message: str) -> bool:
        """Reports and kills a kernel, or all kernels and, if that is not enough, the helpers.

        Returns whether all processes have ended.
        """
        self._call(self._report, message, kernel)
        doomed, all_found = self._stop_all(kernel)
        deadline = time.monotonic() + KILL_TIMEOUT
        while doomed and time.monotonic() < deadline:
            _signal(doomed, signal.SIGKILL)
            time.sleep(0.005)  # nothing signals the end of grandchildren
            left = self._doomed(kernel)
            # A process that appears after all were found is a new kernel, which the gateway has already started.
            doomed = doomed & left if all_found else left
        limit = self._limits.memory
        # Files in the sandbox's memory stay until the sandbox ends, and the gateway may have grown. At least half of
        # the limit must be left for the next kernel.
        self._kernels.poll()
        full = limit is not None and self._kernels.bound > limit / 2 and self._exact() > limit / 2
        if kernel is None and (doomed or full):
            self._end_root()
        return not doomed

    def _end_root(self) -> None:
        """Ends all processes; the root first gets time to clean up."""
        pids = list(self._tree.snapshot().processes)
        deadline = time.monotonic() + TERMINATE_GRACE
        _signal(pids[:1], signal.SIGTERM)
        while self._tree.snapshot().processes and time.monotonic() < deadline:
            time.sleep(0.005)
        _signal(pids, signal.SIGKILL)

    def _stop_all(self, kernel: str | None) -> tuple[set[int], bool]:
        """Suspends the processes of `_doomed`, so they can't fork; returns them and whether all were found."""
        deadline = time.monotonic() + STOP_TIMEOUT
        stopped: set[int] = set()
        quiet = 0
        while quiet < 2 and time.monotonic() < deadline:
            new = self._doomed(kernel) - stopped
            _signal(new, signal.SIGSTOP)
            stopped |= new
            quiet = 0 if new else quiet + 1
        return stopped, quiet == 2


@dataclass(eq=False)
class _CellTime:
    on_exceeded: Callable[[str], object]
    used: float = 0.0
    exceeded: bool = False
    _before: float | None = None

    def note(self, total: float) -> None:
        """Records the CPU time of the kernel's processes."""
        if self._before is None:
            self._before = total
        # The sum dips until an ended child is counted with its parent.
        self.used = max(self.used, total - self._before)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
