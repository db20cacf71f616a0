"""Limits against real processes: below a stand-in for the gateway, which starts "kernels" that misbehave."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ipybox.guest import process
from ipybox.kernel_mgr.limits import kernel_processes, monitor, resource_limits
from ipybox.kernel_mgr.limits.monitor import LimitMonitor
from ipybox.kernel_mgr.limits.process_tree import LinuxTree, PortableTree
from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits, default_memory_limit
from tests import servers

MIB = 1 << 20

#: Starts a process for each line of JSON, in a session of its own, and lives until the end of its input.
GATEWAY = """
import asyncio, json, subprocess, sys
from ipybox.guest.descendants import adopt_orphans

async def main():
    kernels = []
    adopt_orphans(asyncio.get_running_loop(), kernels)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = [sys.executable, "-S", "-c", json.loads(line), "kernel"]
        kernels.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True).pid)

asyncio.run(main())
"""

#: The command that gives a process private file systems, as `srt` does.
BWRAP = ("bwrap", "--unshare-user", "--unshare-pid", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc")

HOG = """
import signal
hoard = b"x" * (300 << 20)
signal.pause()
"""

CHILDREN = """
import os, signal
for _ in range(6):
    if os.fork() == 0:
        hoard = b"x" * (50 << 20)
        signal.pause()
signal.pause()
"""

DAEMON = f"""
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {HOG.replace(chr(10), chr(10) + " " * 8)}
"""

SHARED = """
import mmap, signal
hoard = mmap.mmap(-1, 300 << 20)
hoard.write(b"x" * (300 << 20))
signal.pause()
"""

FILES = """
import signal
for number in range(6):
    with open(f"/dev/shm/{number}", "wb") as file:
        for _ in range(50):
            file.write(b"x" * (1 << 20))
signal.pause()
"""

NAMELESS = """
import os, signal
file = os.memfd_create("hoard")
for _ in range(300):
    os.write(file, b"x" * (1 << 20))
signal.pause()
"""

#: Forks in every process there is, until 250 tokens are used up.
BOMB = """
import os, signal
tokens, give = os.pipe()
os.write(give, b"x" * 250)
os.set_blocking(tokens, False)
try:
    while os.read(tokens, 1):
        os.fork()
except BlockingIOError:
    signal.pause()
"""

BURN = """
import os
if os.fork() == 0:
    os.setsid()
    while True:
        pass
os.wait()
"""


class Gateway:
    """The stand-in, and what a watch says about it."""

    def __init__(self, process: asyncio.subprocess.Process):
        self._process = process
        self.pid = process.pid
        self.messages: asyncio.Queue[str] = asyncio.Queue()
        self.cpu_messages: asyncio.Queue[str] = asyncio.Queue()

    @asynccontextmanager
    async def watch(self, **allowed: Any) -> AsyncGenerator[LimitMonitor]:
        watch = LimitMonitor(self.pid, ResourceLimits(**allowed), lambda message, _: self.messages.put_nowait(message))
        watch.start()
        try:
            yield watch
        finally:
            await watch.stop()

    def cell(self, watch: LimitMonitor) -> AbstractContextManager[None]:
        return watch.measure_cell("kernel", self.cpu_messages.put_nowait)

    def run(self, code: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(code).encode() + b"\n")

    async def line(self) -> str:
        assert self._process.stdout is not None
        async with asyncio.timeout(servers.WAIT):
            return (await self._process.stdout.readline()).decode().strip()

    async def message(self) -> str:
        async with asyncio.timeout(servers.WAIT):
            return await self.messages.get()

    async def close(self) -> None:
        # Orphans come to the gateway, which has to be the last.
        while left := descendants(self.pid):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
            await until_dead(left)
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.communicate()


@asynccontextmanager
async def running_gateway(*wrapper: str) -> AsyncGenerator[Gateway]:
    process = await asyncio.create_subprocess_exec(
        *wrapper, sys.executable, "-c", GATEWAY, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    gateway = Gateway(process)
    try:
        assert await gateway.line() == "ready"
        yield gateway
    finally:
        await gateway.close()


async def all_dead(gateway: Gateway) -> bool:
    """Tell whether everything but the gateway has ended, or does so soon."""
    for _ in range(3):  # on a machine that is busy with other tests, ending a sandbox takes its time
        if not await until_dead(descendants(gateway.pid)):
            return True
    return False


def descendants(pid: int) -> set[int]:
    """Return what `servers.descendants` does, also while processes end."""
    while True:
        with suppress(ProcessLookupError):
            return servers.descendants(pid)


async def until_dead(pids: set[int]) -> set[int]:
    """Return what `servers.until_dead` does, also while processes end."""
    while True:
        with suppress(ProcessLookupError):
            return await servers.until_dead(pids, servers.WAIT)


@pytest.fixture(params=[LinuxTree, PortableTree], ids=["proc", "psutil"])
def either_tree(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "process_tree", request.param)


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(HOG, id="one_process"),
        pytest.param(CHILDREN, id="many_children"),
        pytest.param(DAEMON, id="a_daemon"),
        pytest.param(SHARED, id="shared_memory"),
    ],
)
@pytest.mark.usefixtures("either_tree")
async def test_too_much_memory_ends_all_processes_but_the_gateway(program: str):
    async with running_gateway() as gateway, gateway.watch(memory=200 * MIB):
        gateway.run(program)
        message = await gateway.message()
        assert message.startswith("the kernel and its processes used ")
        assert message.endswith(" MiB of memory, more than memory_limit=200 MiB allows: the kernel was killed")
        assert await all_dead(gateway)
        gateway.run("print('next')")
        assert await gateway.line() == "next"


async def test_of_what_has_left_its_kernel_and_uses_most_no_kernel_dies(monkeypatch: pytest.MonkeyPatch):
    known = rb"[^\0]*\0-S\0-c\0import signal; signal\.pause\(\)\0(kernel)\0"
    monkeypatch.setattr(kernel_processes, "KERNEL", re.compile(known))
    async with running_gateway() as gateway, gateway.watch(memory=200 * MIB):
        gateway.run("import signal; signal.pause()")
        gateway.run(HOG)
        message = await gateway.message()
        assert message.startswith("all kernels and their processes used ")
        assert re.search(r": processes detached from their kernel, which used [\d.]+ MiB of it, were killed$", message)
        async with asyncio.timeout(servers.WAIT):
            while len(descendants(gateway.pid)) > 1:  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.01)


async def test_files_without_a_name_count_as_memory():
    async with running_gateway() as gateway, gateway.watch(memory=200 * MIB):
        gateway.run(NAMELESS)
        assert "of memory, more than memory_limit=200 MiB" in await gateway.message()
        assert await all_dead(gateway)


@pytest.mark.sandbox
async def test_files_in_private_file_systems_count_as_memory_and_the_sandbox_dies_with_them():
    async with running_gateway(*BWRAP) as gateway, gateway.watch(memory=200 * MIB):
        gateway.run(FILES)
        assert "of memory, more than memory_limit=200 MiB" in await gateway.message()
        assert await all_dead(gateway)


async def test_memory_that_processes_share_counts_once():
    # Each of the five seems to have 120 MiB.
    program = """
import os, time
hoard = b"x" * (120 << 20)
print("hoarded", flush=True)
if all([os.fork() for _ in range(2)]):
    time.sleep(1)
    print("done", flush=True)
else:
    time.sleep(1)
"""
    async with running_gateway() as gateway, gateway.watch(memory=250 * MIB):
        gateway.run(program)
        assert await gateway.line() == "hoarded"
        assert await gateway.line() == "done"
        assert gateway.messages.empty()


async def test_the_watch_goes_on_after_a_kill():
    async with running_gateway() as gateway, gateway.watch(memory=200 * MIB):
        for _ in range(2):
            gateway.run(HOG)
            await gateway.message()
            assert await all_dead(gateway)


@pytest.mark.usefixtures("either_tree")
async def test_a_fork_bomb_is_ended():
    async with running_gateway() as gateway, gateway.watch(processes=20):
        gateway.run(BOMB)
        message = await gateway.message()
        assert message.endswith("processes, more than process_limit=20 allows: the kernel was killed")
        assert await all_dead(gateway)


async def test_as_many_processes_as_allowed_may_run_with_any_number_of_threads():
    program = """
import os, threading, time
if os.fork() != 0:
    over = threading.Event()
    for _ in range(30):
        threading.Thread(target=over.wait).start()
    time.sleep(0.5)
    over.set()
    os.wait()
    print("done")
else:
    time.sleep(0.5)
"""
    async with running_gateway() as gateway, gateway.watch(processes=2):
        gateway.run(program)
        assert await gateway.line() == "done"
        assert gateway.messages.empty()


@pytest.fixture
def started_by_the_gateway_is_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_processes, "KERNEL", re.compile(rb"[^\0]*\0-S\0-c\0[^\0]*\0(kernel)\0"))


@pytest.mark.usefixtures("either_tree", "started_by_the_gateway_is_the_kernel")
async def test_cpu_time_of_a_cell_is_exceeded_once_and_nothing_is_killed():
    async with running_gateway() as gateway, gateway.watch(cpu_seconds=0.3) as watch:
        with gateway.cell(watch):
            gateway.run(BURN)
            async with asyncio.timeout(servers.WAIT):
                message = await gateway.cpu_messages.get()
        assert message.startswith("the cell used 0.")
        assert message.endswith(" s of CPU time, more than cpu_seconds=0.3 allows")
        assert descendants(gateway.pid)
        with gateway.cell(watch):  # the second cell gets a time of its own
            async with asyncio.timeout(servers.WAIT):
                assert (await gateway.cpu_messages.get()).startswith("the cell used 0.")
        assert gateway.cpu_messages.empty()
        assert gateway.messages.empty()


@pytest.mark.usefixtures("started_by_the_gateway_is_the_kernel")
async def test_cpu_time_of_ended_children_counts():
    program = """
import os, time
for _ in range(20):
    if os.fork() == 0:
        while time.process_time() < 0.03:
            pass
        os._exit(0)
    os.wait()
time.sleep(60)
"""
    async with running_gateway() as gateway, gateway.watch(cpu_seconds=0.4) as watch:
        with gateway.cell(watch):
            gateway.run(program)
            async with asyncio.timeout(servers.WAIT):
                assert "more than cpu_seconds=0.4" in await gateway.cpu_messages.get()


async def test_nothing_is_called_after_a_stop_or_outside_of_a_cell():
    async with running_gateway() as gateway:
        async with gateway.watch(cpu_seconds=0.01) as watch:
            gateway.run("print('burning', flush=True)\nwhile True: pass")
            assert await gateway.line() == "burning"
            with gateway.cell(watch):
                pass
        assert gateway.cpu_messages.empty()


@pytest.mark.usefixtures("either_tree")
async def test_a_watch_ends_with_its_root():
    async with running_gateway() as gateway:
        async with gateway.watch(memory=200 * MIB):
            await gateway.close()
        assert gateway.messages.empty()


async def test_daemons_stay_below_the_gateway_and_are_reaped_by_it():
    program = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while os.getppid() != %d:
            pass
        print("adopted", flush=True)
"""
    async with running_gateway() as gateway:
        gateway.run(program % gateway.pid)
        assert await gateway.line() == "adopted"
        assert await all_dead(gateway)
        gateway.run("print('next')")
        assert await gateway.line() == "next"
        # The second kernel's end was a signal to reap; a zombie of the daemon would be a third child.
        assert len(Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text().split()) <= 2


async def run_limited(code: str, **allowed: int) -> str:
    """Run code in a process with limits, and return what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"from ipybox.guest.process import limit_process\nlimit_process(**{allowed})\n{code}",
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(servers.WAIT):
        stdout, _ = await process.communicate()
    return stdout.decode().strip()


async def test_one_allocation_too_many_is_a_memory_error_and_the_process_goes_on():
    code = """
import subprocess, sys
try:
    bytearray(300 << 20)
except MemoryError:
    print("MemoryError")
child = "try: bytearray(300 << 20)\\nexcept MemoryError: print('in a child, too')"
print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout.strip())
"""
    assert await run_limited(code, memory=256 * MIB) == "MemoryError\nin a child, too"


async def test_limits_of_a_process_are_hard():
    code = """
import resource
print([resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in ("CORE", "DATA", "NPROC")])
"""
    expected = [(0, 0), (256 * MIB,) * 2, (10 * process.THREADS_PER_PROCESS + process.SPARE_THREADS,) * 2]
    assert await run_limited(code, memory=256 * MIB, processes=10) == str(expected)


async def test_a_gigabyte_is_enough_for_plots_and_tables_and_threads():
    code = """
import matplotlib, numpy, pandas, threading
matplotlib.use("agg")
import matplotlib.pyplot as plt
from io import BytesIO
plt.plot([1, 2])
plt.savefig(BytesIO())
print(int(pandas.DataFrame(numpy.ones((1000, 1000)) @ numpy.ones((1000, 1000))).sum().sum()))
over = threading.Event()
threads = [threading.Thread(target=over.wait) for _ in range(64)]
for thread in threads: thread.start()
over.set()
"""
    assert await run_limited(code, memory=1024 * MIB) == "1000000000"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: ResourceLimits(memory=1 << 20), "memory_limit=1 MiB is too low", id="memory"),
        pytest.param(lambda: ResourceLimits(cpu_seconds=0), "cpu_seconds=0 is too low", id="cpu"),
        pytest.param(lambda: ResourceLimits(cpu_seconds=float("nan")), "cpu_seconds=nan is too low", id="not_a_number"),
        pytest.param(lambda: ResourceLimits(processes=0), "process_limit=0 is too low", id="processes"),
    ],
)
def test_limits_that_no_kernel_survives_are_refused(make: Callable[[], ResourceLimits], message: str):
    with pytest.raises(ValueError, match=message):
        make()


def test_limits_tell_whether_there_are_any():
    assert not ResourceLimits().any
    assert ResourceLimits(processes=1).any


def test_the_default_memory_limit_is_at_most_half_of_the_memory():
    assert (
        resource_limits.MIN_MEMORY
        <= default_memory_limit()
        <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    )


def test_the_default_memory_limit_respects_that_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "memory.max").write_text("1073741824\n")
    (tmp_path / "unlimited").write_text("max\n")
    files = [tmp_path / name for name in ("unlimited", "memory.max", "missing")]
    monkeypatch.setattr(resource_limits, "_cgroup_files", lambda: files)
    assert default_memory_limit() == 512 * MIB
