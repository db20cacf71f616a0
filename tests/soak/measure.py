"""What grows while a soak runs: descriptors, processes, tasks and memory, for each thousand operations."""

import asyncio
import gc
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tests import servers
from tests.faults.programs import GATEWAY, KERNEL, processes

PAGE = os.sysconf("SC_PAGE_SIZE")

#: The part of the samples of a process that are not counted, as caches fill and modules are loaded.
WARM_UP = 0.25

#: Fewer samples than these say nothing.
FEW = 4


@dataclass(frozen=True)
class Bound:
    """How much something may grow.

    Attributes:
        slope: By how much for each thousand operations.
        noise: By how much in all, whatever the slope: a short run has few samples.
    """

    slope: float
    noise: float


#: Measured over 31,000 operations: less than 0.03 of what is counted, 0.4 to 0.6 MB. One minute varies by six or so, as
#: a kernel keeps one to four connections to the tool server, each of which is a descriptor and a task.
BOUNDS = {
    "descriptors of the application": Bound(0.2, 8),
    "descriptors of the MCP server": Bound(0.2, 8),
    "descriptors of a gateway": Bound(0.2, 8),
    "processes but kernels": Bound(0.1, 1),
    "tasks of the application": Bound(0.1, 8),
    "MB of the application": Bound(0.8, 8),
    "MB of the MCP server": Bound(0.8, 8),
    "MB of a gateway": Bound(0.8, 8),
}


class Measurements:
    """Samples, each of a process at a number of operations. What replaces a process that has died begins anew."""

    def __init__(self) -> None:
        self._samples: defaultdict[str, defaultdict[int, list[tuple[int, float]]]]
        self._samples = defaultdict(lambda: defaultdict(list))

    async def sample(self, operations: int) -> None:
        """Takes a sample, while nothing is under way."""
        gc.collect()
        gateways = await asyncio.to_thread(processes, GATEWAY)
        mcp_servers = await asyncio.to_thread(processes, "ipybox.mcp_server")
        # Not kernels: each round checks how many there are, and gateways make spare ones at any time.
        others = await asyncio.to_thread(lambda: servers.descendants() - processes(KERNEL))
        self._add("processes but kernels", 0, operations, len(others))
        self._add("tasks of the application", 0, operations, len(asyncio.all_tasks()))
        for name, pids in (
            ("the application", {os.getpid()}),
            ("the MCP server", mcp_servers),
            ("a gateway", gateways),
        ):
            for pid in pids:
                self._add(f"descriptors of {name}", pid, operations, _descriptors(pid))
                self._add(f"MB of {name}", pid, operations, _resident(pid))

    def slopes(self) -> dict[str, tuple[float, float]]:
        """Returns how much each thing grows for a thousand operations, and how much it has grown in all at most."""
        return {name: _growth(list(self._samples[name].values())) for name in BOUNDS}

    def exceeded(self) -> list[str]:
        """Returns what has grown more than it may."""
        return [
            f"{name}: {slope:+.3f} for 1,000 operations, {total:+.1f} in all"
            for name, (slope, total) in self.slopes().items()
            if slope > BOUNDS[name].slope and total > BOUNDS[name].noise
        ]

    def _add(self, name: str, pid: int, operations: int, value: float | None) -> None:
        if value is not None:
            self._samples[name][pid].append((operations, value))


def _growth(processes: list[list[tuple[int, float]]]) -> tuple[float, float]:
    """Returns the mean slope over all processes, weighted by operations, and the largest growth."""
    weighted = spans = total = 0.0
    for samples in processes:
        warm = samples[int(len(samples) * WARM_UP) :]
        if len(warm) < FEW:
            continue
        span = warm[-1][0] - warm[0][0]
        slope = _slope(warm)
        weighted += slope * span
        spans += span
        total = max(total, slope * span)
    return (1000 * weighted / spans if spans else 0.0), total


def _slope(samples: list[tuple[int, float]]) -> float:
    """Returns the slope of the line through samples (least squares)."""
    mean_x = sum(x for x, _ in samples) / len(samples)
    mean_y = sum(y for _, y in samples) / len(samples)
    variance = sum((x - mean_x) ** 2 for x, _ in samples)
    return sum((x - mean_x) * (y - mean_y) for x, y in samples) / variance if variance else 0.0


def _descriptors(pid: int) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except (FileNotFoundError, PermissionError):  # it has just died, or has made itself undumpable
        return None


def _resident(pid: int) -> float | None:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 2**20
    except (FileNotFoundError, ProcessLookupError):
        return None
