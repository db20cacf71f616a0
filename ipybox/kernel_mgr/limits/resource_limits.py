"""The resource limits of kernels and all processes that they start, and their defaults."""

import contextlib
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ipybox.kernel_mgr.limits.process_tree import PAGE, read_proc
from ipybox.support.sizes import format_bytes

#: Minimum bytes of memory with which a kernel starts and is usable.
MIN_MEMORY = 128 << 20

#: The owner of processes that left their kernel unseen, in place of a kernel id. No kernel has this id.
UNATTRIBUTED: Final = ""


@dataclass(frozen=True, kw_only=True)
class ResourceLimits:
    """The limits of kernels and all processes that they start; None for no limit.

    Attributes:
        memory: Bytes of memory, of all processes together.
        default_memory: Whether the limit is half of the memory of the machine that runs the kernels.
        cpu_seconds: CPU time of one cell, over all processes.
        processes: Number of processes, including the kernel itself; threads don't count.

    Raises:
        ValueError: If a limit is so low that no kernel can run.
    """

    memory: int | None = None
    default_memory: bool = False
    cpu_seconds: float | None = None
    processes: int | None = None

    def __post_init__(self) -> None:
        if self.memory is not None and self.memory < MIN_MEMORY:
            least = format_bytes(MIN_MEMORY)
            raise ValueError(f"memory_limit={format_bytes(self.memory)} is too low: a kernel needs at least {least}")
        if self.cpu_seconds is not None and not self.cpu_seconds > 0:
            raise ValueError(f"cpu_seconds={self.cpu_seconds:g} is too low: it must be greater than 0")
        if self.processes is not None and self.processes < 1:
            raise ValueError(f"process_limit={self.processes} is too low: the kernel itself is one process")

    @property
    def any(self) -> bool:
        """Whether there is any limit."""
        return self.default_memory or (self.memory, self.cpu_seconds, self.processes) != (None, None, None)

    def with_default(self) -> "ResourceLimits":
        """Returns the limits with the memory of this machine, if the default applies."""
        return replace(self, memory=default_memory_limit(), default_memory=False) if self.default_memory else self


def default_memory_limit() -> int:
    """Returns the memory limit of a sandbox: half of the memory of this machine, or of the container around ipybox."""
    available = [os.sysconf("SC_PHYS_PAGES") * PAGE]
    for file in _cgroup_files():
        with contextlib.suppress(OSError, ValueError):  # it is "max", or does not exist
            available.append(int(file.read_text()))
    return max(min(available) // 2, MIN_MEMORY)


def _cgroup_files() -> Iterable[Path]:
    """Yields the files that may limit this process's memory, of its control group and all groups above."""
    if sys.platform != "linux":
        return
    for line in read_proc("/proc/self/cgroup").decode(errors="surrogateescape").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, name = Path("/sys/fs/cgroup"), "memory.max"
        elif controllers == "memory":
            root, name = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
        else:
            continue
        group = root / path.lstrip("/")
        yield from (directory / name for directory in (group, *group.parents) if directory.is_relative_to(root))
