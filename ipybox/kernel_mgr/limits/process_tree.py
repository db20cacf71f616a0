"""Lists the processes below one process, and measures what they use, for `LimitMonitor` and `KernelProcesses`."""

import contextlib
import errno
import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import psutil

Value = TypeVar("Value")

#: Memory that the operating system needs for each file in a tmpfs, also for an empty one.
INODE_BYTES = 1024

PAGE: Final = os.sysconf("SC_PAGE_SIZE")
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ResidentMemory:
    """Bytes of a process in memory: all, and those that are shared with no process except by a fork."""

    total: int
    private: int


def process_tree(pid: int) -> "LinuxTree | PortableTree":
    """Returns the tree below a process, in the implementation for this system."""
    main_thread = f"/proc/{os.getpid()}/task/{os.getpid()}"
    return LinuxTree(pid) if Path(main_thread, "children").exists() else PortableTree(pid)


class LinuxTree:
    """The processes below one process, from /proc, see proc(5); an ended one uses nothing. A poll takes 0.15 ms."""

    def __init__(self, pid: int):
        self.root = pid
        self._started = self.start_time(pid)
        self._hidden_before = self._outside_processes()
        self._file_systems: dict[int, int] = {}  # device → descriptor

    def parents(self) -> dict[int, int]:
        """Returns each process's parent, the root's first, parents before children; empty if the root has ended."""
        if self._started == math.inf or self.start_time(self.root) != self._started:
            return {}
        found = {self.root: os.getpid()}
        pids = [self.root]
        for pid in pids:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                for thread in os.listdir(f"/proc/{pid}/task"):
                    children = map(int, read_proc(f"/proc/{pid}/task/{thread}/children").split())
                    pids += (new := [child for child in children if child not in found])
                    found.update(dict.fromkeys(new, pid))
        return found

    def command(self, pid: int) -> bytes:
        """Returns the command line of a process, with a NUL after each argument."""
        return read_proc(f"/proc/{pid}/cmdline")

    def start_time(self, pid: int) -> float:
        """Returns the start time of a process, only to be compared with others; infinity if it has ended."""
        return next(map(float, self._stat(pid)[19:20]), math.inf)

    def alive(self, pid: int) -> bool:
        """Returns whether a process runs; False for a process that waits to be reaped."""
        return self._stat(pid)[:1] not in ([], [b"Z"], [b"X"])

    def resident(self, pid: int) -> ResidentMemory:
        """Returns the resident memory of a process."""
        fields = read_proc(f"/proc/{pid}/statm").split()
        if not fields:
            return ResidentMemory(0, 0)
        total, shared = int(fields[1]), int(fields[2])
        return ResidentMemory(total * PAGE, (total - shared) * PAGE)

    def hidden(self) -> int:
        """Returns an upper bound of the memory that is used outside of all processes: its growth on this machine."""
        return max(0, self._outside_processes() - self._hidden_before)

    def exact(self, pids: list[int]) -> int:
        """Returns the memory that processes use together, with shared memory counted once."""
        private = shared = 0
        for pid in pids:
            rollup = _kilobytes(read_proc(f"/proc/{pid}/smaps_rollup"))
            if rollup:
                private += rollup.get(b"Pss_Anon", 0) + rollup.get(b"SwapPss", 0)
                shared += rollup.get(b"Pss_Shmem", 0)
            else:
                private += self.resident(pid).private
        files = sum(self._memory_files(pids).values())
        for fd in self._file_systems.values():
            status = os.fstatvfs(fd)
            files += (status.f_blocks - status.f_bfree) * status.f_frsize
            files += (status.f_files - status.f_ffree) * INODE_BYTES
        # Shared memory is a mapped file; /proc does not show whether all these files are mapped.
        return private + max(shared, files)

    def cpu(self, pids: list[int], helpers: Iterable[int]) -> float:
        """Returns the CPU seconds of processes and their ended children; of helpers, only those of the children."""
        ticks = 0
        for pid in pids:
            # Parents come first, so that a child that ends during this loop is missing rather than counted twice.
            fields = self._stat(pid)[11:15]
            ticks += sum(map(int, fields[2:] if pid in helpers else fields))
        return ticks / TICKS

    def open_private_files(self, pids: list[int]) -> None:
        """Finds and opens file systems in memory that only these processes have."""
        ours = {device for device, _ in _tmpfs_mounts("self")}
        for pid in pids:
            for device, path in _tmpfs_mounts(str(pid)):
                if device in ours or device in self._file_systems:
                    continue
                with contextlib.suppress(OSError):
                    fd = os.open(f"/proc/{pid}/root{path}", os.O_PATH)
                    if os.fstat(fd).st_dev == device:
                        self._file_systems[device] = fd
                    else:  # something else is mounted there, too
                        os.close(fd)

    def close(self) -> None:
        """Closes the file systems that `open_private_files` opened."""
        while self._file_systems:
            os.close(self._file_systems.popitem()[1])

    def _memory_files(self, pids: list[int]) -> dict[int, int]:
        """Returns the size of each file that exists only in memory (memfd_create), by its inode."""
        sizes: dict[int, int] = {}
        for pid in pids:
            with contextlib.suppress(OSError):
                for entry in os.scandir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        if os.readlink(entry.path).startswith("/memfd:"):
                            status = os.stat(entry.path)
                            sizes[status.st_ino] = status.st_blocks * 512
        return sizes

    def _outside_processes(self) -> int:
        fields = read_proc("/proc/meminfo").split()  # without _kilobytes(), because each poll reads this
        shared, swap, free_swap = (
            int(fields[fields.index(name) + 1]) if name in fields else 0
            for name in (b"Shmem:", b"SwapTotal:", b"SwapFree:")
        )
        return (shared + swap - free_swap) * 1024

    def _stat(self, pid: int) -> list[bytes]:
        """Returns the fields of /proc/PID/stat from the third on; the second may contain any text."""
        return read_proc(f"/proc/{pid}/stat").rpartition(b")")[2].split()


class PortableTree:
    """The same for systems without /proc, from psutil, at ten times the cost. Shared memory counts each time."""

    def __init__(self, pid: int):
        import psutil  # a dependency of ipykernel, needed only here

        self._psutil = psutil
        self.root = pid
        try:
            self._root = psutil.Process(pid)
        except psutil.NoSuchProcess:
            self._root = None

    def parents(self) -> dict[int, int]:
        """As `LinuxTree.parents`."""
        if self._root is None or not self._root.is_running():
            return {}
        found = {self.root: os.getpid()}
        with contextlib.suppress(self._psutil.Error):
            for child in self._root.children(recursive=True):
                with contextlib.suppress(self._psutil.Error):
                    found[child.pid] = child.ppid()
            return found
        return {}

    def command(self, pid: int) -> bytes:
        """As `LinuxTree.command`."""
        arguments = self._read(pid, lambda process: process.cmdline(), [])
        return b"".join(os.fsencode(argument) + b"\0" for argument in arguments)

    def start_time(self, pid: int) -> float:
        """As `LinuxTree.start_time`."""
        return self._read(pid, lambda process: process.create_time(), math.inf)

    def alive(self, pid: int) -> bool:
        """As `LinuxTree.alive`."""
        return self._read(pid, lambda process: process.status() != self._psutil.STATUS_ZOMBIE, False)

    def resident(self, pid: int) -> ResidentMemory:
        """As `LinuxTree.resident`."""
        size = self._read(pid, lambda process: process.memory_info().rss, 0)
        return ResidentMemory(size, size)

    def hidden(self) -> int:
        """Returns 0, because this memory is unknown."""
        return 0

    def exact(self, pids: list[int]) -> int:
        """Returns the memory that processes use together, with shared memory counted each time."""
        return sum(self.resident(pid).private for pid in pids)

    def cpu(self, pids: list[int], helpers: Iterable[int]) -> float:
        """Returns the CPU seconds of processes and, where known, their ended children; for helpers, only the latter."""
        total = 0.0
        for pid in pids:
            if (times := self._read(pid, lambda process: process.cpu_times(), None)) is not None:
                total += times.children_user + times.children_system
                total += 0 if pid in helpers else times.user + times.system
        return total

    def open_private_files(self, pids: list[int]) -> None:
        """Does nothing, because such file systems exist only on Linux."""

    def close(self) -> None:
        """Does nothing."""

    def _read(self, pid: int, read: "Callable[[psutil.Process], Value]", otherwise: Value) -> Value:
        """Returns what `read` returns of a process, unless it has ended or may not be read."""
        with contextlib.suppress(self._psutil.Error):
            return read(self._psutil.Process(pid))
        return otherwise


def read_proc(path: str) -> bytes:
    """Returns the content of a file of /proc; empty if its process has ended or may not be read."""
    try:
        # Not with open(), which takes three times as long: reading is most of the cost of a poll.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = chunk = os.read(fd, 1 << 16)
            while chunk:
                content += (chunk := os.read(fd, 1 << 16))
            return content
        finally:
            os.close(fd)
    except OSError as exc:
        if exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return b""


def _kilobytes(text: bytes) -> dict[bytes, int]:
    """Returns the bytes for each name, from lines like `Name: 12 kB`."""
    return {name[:-1]: int(number) * 1024 for name, number in re.findall(rb"(\w+:) +(\d+) kB\n", text)}


def _tmpfs_mounts(pid: str) -> list[tuple[int, str]]:
    """Returns the device and mount point of each tmpfs that a process sees."""
    mounts: list[tuple[int, str]] = []
    for line in read_proc(f"/proc/{pid}/mountinfo").decode(errors="surrogateescape").splitlines():
        fields, _, rest = line.partition(" - ")
        if rest.startswith("tmpfs "):
            _, _, device, _, path, *_ = fields.split(" ")
            major, _, minor = device.partition(":")
            path = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), path)
            mounts.append((os.makedev(int(major), int(minor)), path))
    return mounts
