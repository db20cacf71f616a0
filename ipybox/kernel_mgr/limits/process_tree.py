"""Lists the processes below one process and measures their usage, for `LimitMonitor` and `KernelProcesses`."""

import contextlib
import errno
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

#: Bytes that the operating system needs for each file in a tmpfs, even an empty one.
INODE_BYTES = 1024

PAGE: Final = os.sysconf("SC_PAGE_SIZE")
TICKS: Final = os.sysconf("SC_CLK_TCK")

#: Shared and swapped memory of the machine.
_OUTSIDE = re.compile(rb"^(Shmem|SwapTotal|SwapFree): +(\d+)", re.MULTILINE)

#: The attributes of a process to read with psutil.
_FIELDS = ("ppid", "create_time", "status", "memory_info", "cpu_times")


class Process(NamedTuple):
    """A process at one moment."""

    parent: int
    #: Comparable only with other start times.
    started: float
    #: Whether it is running, and not a zombie.
    alive: bool
    #: Resident bytes, including shared memory.
    memory: int
    #: CPU seconds of the process itself, and of its ended children where known.
    cpu: float


class Snapshot(NamedTuple):
    """What one poll reads."""

    #: The root first, parents before children; empty if the root has ended.
    processes: dict[int, Process]
    #: Bytes of the whole machine's shared and swapped memory, in addition to that of processes.
    outside: int


def process_tree(pid: int) -> "LinuxTree | PortableTree":
    """Returns the tree below a process, using this system's implementation."""
    main_thread = f"/proc/{os.getpid()}/task/{os.getpid()}"
    return LinuxTree(pid) if Path(main_thread, "children").exists() else PortableTree(pid)


class LinuxTree:
    """The processes below one process, read from /proc, see proc(5). A poll takes 0.15 ms."""

    def __init__(self, pid: int):
        self.root = pid
        self._started: float | None = None
        root = self.snapshot().processes.get(pid)
        self._started = math.inf if root is None else root.started
        self._file_systems: dict[int, int] = {}  # device → descriptor

    def snapshot(self) -> Snapshot:
        """Returns the current processes. One that ends during the poll is omitted rather than counted twice."""
        found: dict[int, Process] = {}
        parents = {self.root: os.getpid()}
        for pid in (pids := [self.root]):
            # The second field may contain any text.
            fields = read_proc(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            if not fields:
                continue
            started, alive = float(fields[19]), fields[0] not in (b"Z", b"X")
            if pid == self.root and not (alive and self._started in (None, started)):
                break
            memory, cpu = int(fields[21]) * PAGE, sum(map(int, fields[11:15])) / TICKS
            found[pid] = Process(parents[pid], started, alive, memory, cpu)
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                for thread in os.listdir(f"/proc/{pid}/task"):
                    for child in map(int, read_proc(f"/proc/{pid}/task/{thread}/children").split()):
                        if child not in parents:
                            parents[child] = pid
                            pids.append(child)
        sizes: dict[bytes, bytes] = dict(_OUTSIDE.findall(read_proc("/proc/meminfo")))
        swapped = int(sizes.get(b"SwapTotal", 0)) - int(sizes.get(b"SwapFree", 0))
        return Snapshot(found, (int(sizes.get(b"Shmem", 0)) + swapped) * 1024)

    def command(self, pid: int) -> bytes:
        """Returns the command line of a process, with a NUL after each argument."""
        return read_proc(f"/proc/{pid}/cmdline")

    def exact(self, pids: Iterable[int]) -> int:
        """Returns the memory that processes use together, with shared memory counted once."""
        private = shared = 0
        files: dict[int, int] = {}
        for pid in pids:
            files |= _memory_files(pid)
            if rollup := _kilobytes(read_proc(f"/proc/{pid}/smaps_rollup")):
                private += rollup.get(b"Pss_Anon", 0) + rollup.get(b"SwapPss", 0)
                shared += rollup.get(b"Pss_Shmem", 0)
            elif fields := read_proc(f"/proc/{pid}/statm").split():  # code can make the other file unreadable
                private += (int(fields[1]) - int(fields[2])) * PAGE
        used = sum(files.values())
        for fd in self._file_systems.values():
            status = os.fstatvfs(fd)
            used += (status.f_blocks - status.f_bfree) * status.f_frsize
            used += (status.f_files - status.f_ffree) * INODE_BYTES
        # Shared memory is a mapped file; /proc does not show whether all these files are mapped.
        return private + max(shared, used)

    def open_private_files(self, pids: Iterable[int]) -> None:
        """Opens the in-memory file systems that only these processes have mounted."""
        ours = {device for device, _ in _tmpfs_mounts("self")}
        for pid in pids:
            for device, path in _tmpfs_mounts(str(pid)):
                if device in ours or device in self._file_systems:
                    continue
                with contextlib.suppress(OSError):
                    fd = os.open(f"/proc/{pid}/root{path}", os.O_PATH)
                    if os.fstat(fd).st_dev == device:
                        self._file_systems[device] = fd
                    else:  # something else is mounted on top
                        os.close(fd)

    def close(self) -> None:
        """Closes the file systems that `open_private_files` opened."""
        while self._file_systems:
            os.close(self._file_systems.popitem()[1])


class PortableTree:
    """The same for systems without /proc, using psutil: ten times slower, and shared memory counts for each process."""

    def __init__(self, pid: int):
        import psutil  # a dependency of ipykernel, needed only here

        self._psutil = psutil
        self.root = pid
        try:
            self._root = psutil.Process(pid)
        except psutil.NoSuchProcess:
            self._root = None

    def snapshot(self) -> Snapshot:
        """As `LinuxTree.snapshot`; memory outside of processes is unknown."""
        found: dict[int, Process] = {}
        with contextlib.suppress(self._psutil.Error):
            if self._root is None or not self._root.is_running():
                return Snapshot({}, 0)
            for process in (self._root, *self._root.children(recursive=True)):
                with contextlib.suppress(self._psutil.NoSuchProcess):
                    read: dict[str, Any] = cast(Any, process).as_dict(_FIELDS)
                    times, memory = read["cpu_times"], read["memory_info"]  # None if they may not be read
                    found[process.pid] = Process(
                        read["ppid"],
                        read["create_time"],
                        read["status"] != self._psutil.STATUS_ZOMBIE,
                        memory.rss if memory else 0,
                        sum(times[:4]) if times else 0.0,  # its own and its children's
                    )
        return Snapshot(found if self.root in found and found[self.root].alive else {}, 0)

    def command(self, pid: int) -> bytes:
        """As `LinuxTree.command`."""
        arguments: list[str] = []
        with contextlib.suppress(self._psutil.Error):
            arguments = self._psutil.Process(pid).cmdline()
        return b"".join(os.fsencode(argument) + b"\0" for argument in arguments)

    def exact(self, pids: Iterable[int]) -> int:
        """Returns the memory that processes use together, with shared memory counted for each of them."""
        processes = self.snapshot().processes
        return sum(processes[pid].memory for pid in pids if pid in processes)

    def open_private_files(self, pids: Iterable[int]) -> None:
        """Does nothing, because such file systems exist only on Linux."""

    def close(self) -> None:
        """Does nothing."""


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


def _memory_files(pid: int) -> dict[int, int]:
    """Returns the size of each memory-only file (memfd_create) of a process, by inode."""
    sizes: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(entry.path).startswith("/memfd:"):
                    status = os.stat(entry.path)
                    sizes[status.st_ino] = status.st_blocks * 512
    return sizes


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
