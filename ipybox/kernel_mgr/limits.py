"""Limits of what a kernel and all that it starts may use together."""

import contextlib
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipybox.kernel_mgr.process_tree import PAGE, read_proc

UNITS: Final = {
    **dict.fromkeys(("", "b"), 1),
    **{f"{letter}{suffix}": 1024**power for power, letter in enumerate("kmgt", 1) for suffix in ("", "i", "ib")},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
}

#: The least memory with which a kernel starts and can do something.
MIN_MEMORY = 128 << 20

#: Stands for a kernel's id with processes that left their kernel unseen. No kernel has this id.
UNATTRIBUTED: Final = ""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a kernel and all that it starts may use; None means no limit.

    Attributes:
        memory: Bytes of memory, of all processes together.
        cpu_seconds: CPU time of one cell, over all processes.
        processes: Number of processes, the kernel itself included; threads don't count.

    Raises:
        ValueError: If a limit is so low that no kernel can run.
    """

    memory: int | None = None
    cpu_seconds: float | None = None
    processes: int | None = None

    def __post_init__(self) -> None:
        if self.memory is not None and self.memory < MIN_MEMORY:
            least = format_bytes(MIN_MEMORY)
            raise ValueError(f"memory_limit={format_bytes(self.memory)} is too low: a kernel needs {least} at least")
        if self.cpu_seconds is not None and not self.cpu_seconds > 0:
            raise ValueError(f"cpu_seconds={self.cpu_seconds:g} is too low: it has to be above 0")
        if self.processes is not None and self.processes < 1:
            raise ValueError(f"process_limit={self.processes} is too low: the kernel itself is one process")

    @property
    def any(self) -> bool:
        """Whether there is anything to watch."""
        return (self.memory, self.cpu_seconds, self.processes) != (None, None, None)


def parse_bytes(text: str) -> int:
    """Returns the number of bytes that a text like `4G`, `512MiB` or `1073741824` means.

    K, M, G and T, with or without `i` or `iB`, are powers of 1024; KB, MB, GB and TB are powers of 1000.

    Raises:
        ValueError: If the text means no number of bytes.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text, re.ASCII | re.IGNORECASE)
    unit = None if match is None else UNITS.get(match[2].lower())
    if match is None or unit is None:
        raise ValueError(f"{text!r} is not an amount of memory: write it like 4G, 512MiB or 1073741824")
    return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def format_bytes(count: float) -> str:
    """Returns a number of bytes as people read it, like `1.5 GiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.1f}".removesuffix(".0") + f" {unit}"
        count /= 1024
    return f"{count:.1f}".removesuffix(".0") + " TiB"


def default_memory_limit() -> int:
    """Returns the memory limit of a sandbox: half of what this machine, or the container we run in, has."""
    available = [os.sysconf("SC_PHYS_PAGES") * PAGE]
    for file in _cgroup_files():
        with contextlib.suppress(OSError, ValueError):  # it is "max", or not there
            available.append(int(file.read_text()))
    return max(min(available) // 2, MIN_MEMORY)


def _cgroup_files() -> Iterable[Path]:
    """Returns the files that may hold a memory limit for this process: of its control group and all above."""
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
