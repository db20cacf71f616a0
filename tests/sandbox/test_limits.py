"""Limits of a kernel in every mode: what exceeds one ends with a message that names it, and the next cell runs."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.code_exec.executor import STATE_LOST
from ipybox.errors import ExecutionTimeoutError, KernelDiedError
from ipybox.kernel_mgr.client import KernelClient
from ipybox.kernel_mgr.gateway import GatewaySetup
from ipybox.kernel_mgr.limits.resource_limits import UNATTRIBUTED, ResourceLimits, default_memory_limit
from ipybox.kernel_mgr.server import KernelGateway
from ipybox.sandbox.settings import load_settings
from ipybox.support.deadline import Deadline
from ipybox.support.sizes import format_bytes
from tests import servers
from tests.conftest import Mode
from tests.guest.spares import until_first
from tests.servers import WAIT

MIB = 1 << 20

#: Uses memory in small pieces, in processes that each stay below the limit of a single one.
HOGS = """
import subprocess, sys
code = "x = b'x' * (200 << 20); print('full', flush=True); input()"
hogs = []
for _ in range(4):
    hogs.append(subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    hogs[-1].stdout.readline()
import threading; threading.Event().wait()
"""

#: A fork bomb with a bound of its own.
BOMB = """
import os, threading
for _ in range(8):
    os.fork()
threading.Event().wait()
"""

#: Burns CPU in a child, while the cell itself waits.
BURN = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "while True: pass"])
"""

#: Burns more CPU time in the kernel itself than a test allows, but ends.
BURN_ITSELF = """
import time
end = time.process_time() + 3
while time.process_time() < end: pass
"""

#: Uses memory in daemons that leave the kernel's process tree within milliseconds, and call themselves NAME.
DAEMONS = """
import os, sys
PROGRAM = '''
import ctypes, signal, sys
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, size = int(fields[45]), int(fields[46]) - int(fields[45])
ctypes.memmove(start, sys.argv[1].encode().replace(b" ", bytes(1)).ljust(size, bytes(1)), size)
hoard = b"x" * (200 << 20)
signal.pause()
'''
for _ in range(3):
    if (pid := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-S", "-c", PROGRAM, NAME])
        os._exit(0)
    os.waitpid(pid, 0)
"""


@asynccontextmanager
async def waiting_kernel(
    directory: Path, mode: Mode, **limits: Any
) -> AsyncGenerator[tuple[KernelGateway, KernelClient]]:
    """Yields a gateway whose first kernel ran long before a client came, and that client."""
    async with AsyncExitStack() as resources:
        sandbox = load_settings() if mode.sandbox else None
        setup = GatewaySetup(sandbox=sandbox, limits=ResourceLimits(**limits), spare_kernel=True)
        gateway = KernelGateway(port=None, working_dir=directory, setup=setup)
        resources.push_async_callback(gateway.stop)
        before = servers.descendants()
        await gateway.spawn()
        spare = await until_first(before)
        await gateway.start()
        client = await resources.enter_async_context(KernelClient(endpoint=gateway.endpoint, images_dir=directory))
        assert client.kernel_id == spare
        yield gateway, client


@asynccontextmanager
async def executor(directory: Path, mode: Mode, **limits: Any) -> AsyncGenerator[CodeExecutor]:
    async with CodeExecutor(working_dir=directory, sandbox=mode.sandbox, **limits) as running:
        yield running


async def test_one_allocation_too_many_is_an_error_of_the_cell(tmp_path: Path, mode: Mode):
    async with executor(tmp_path, mode, memory_limit=512 * MIB) as limited:
        await limited.execute("kept = 1")
        with pytest.raises(CodeExecutionError) as failed:
            await limited.execute("x = bytearray(1 << 30)")

        assert "MemoryError" in str(failed.value)
        assert failed.value.notices == ["Each process may use at most 512 MiB of memory (memory_limit)."]
        assert (await limited.execute("kept")).text == "1"


async def test_memory_of_all_processes_together_ends_the_kernel(tmp_path: Path, mode: Mode):
    async with executor(tmp_path, mode, memory_limit=600 * MIB) as limited:
        with pytest.raises(
            CodeExecutionError,
            match=r"the kernel and its processes used .* of memory, more than memory_limit=600 MiB allows",
        ):
            await limited.execute(HOGS)

        after = await limited.execute("1 + 1")
        assert (after.text, after.notices) == ("2", [STATE_LOST])


async def test_too_many_processes_end_the_kernel(tmp_path: Path, mode: Mode):
    async with executor(tmp_path, mode, process_limit=20) as limited:
        with pytest.raises(CodeExecutionError, match=r"ran \d+ processes, more than process_limit=20 allows"):
            await limited.execute(BOMB)

        after = await limited.execute("1 + 1")
        assert (after.text, after.notices) == ("2", [STATE_LOST])


async def test_cpu_time_ends_the_cell_and_the_kernel_keeps_its_state(tmp_path: Path, mode: Mode):
    async with executor(tmp_path, mode, cpu_seconds=0.5) as limited:
        await limited.execute("kept = 1")
        with pytest.raises(TimeoutError, match=r"more than cpu_seconds=0\.5 allows.*the kernel was interrupted"):
            await limited.execute(BURN, timeout=None)

        assert (await limited.execute("kept")).text == "1"


async def test_cpu_time_counts_for_each_cell_anew(tmp_path: Path, mode: Mode):
    burn = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    async with executor(tmp_path, mode, cpu_seconds=0.8) as limited:
        for _ in range(4):
            await limited.execute(burn)


async def test_a_limit_that_was_exceeded_between_cells_is_told_with_the_next(tmp_path: Path, mode: Mode):
    later = "import subprocess; bomb = [subprocess.Popen(['cat'], stdin=subprocess.PIPE) for _ in range(10)]"
    async with executor(tmp_path, mode, process_limit=5) as limited:
        # Whether this cell still ends by itself is a matter of milliseconds.
        try:
            await limited.execute(later)
            while not (notices := (await limited.execute("1 + 1")).notices):
                pass
            assert notices[0].startswith(f"{STATE_LOST} It died because ")
            told = notices[0]
        except CodeExecutionError as exc:
            told = str(exc)

        assert "more than process_limit=5 allows" in told


@pytest.mark.kernel
@pytest.mark.sandbox
async def test_the_sandbox_has_a_memory_limit_by_default_and_none_if_asked_for(tmp_path: Path):
    read = "import resource; print(resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY)"
    limits = "import resource; print(resource.getrlimit(resource.RLIMIT_DATA)[1])"
    async with executor(tmp_path, Mode.SANDBOX) as default:
        assert (await default.execute(limits)).text == str(default_memory_limit())
    async with executor(tmp_path, Mode.SANDBOX, memory_limit=0) as unlimited:
        assert (await unlimited.execute(read)).text == "True"
    async with executor(tmp_path, Mode.PLAIN) as plain:
        assert (await plain.execute(read)).text == "True"
    assert format_bytes(default_memory_limit()).endswith("iB")


async def test_cpu_time_of_a_kernel_that_ran_before_its_client_came_is_limited(tmp_path: Path, mode: Mode):
    async with waiting_kernel(tmp_path, mode, cpu_seconds=0.5) as (gateway, client):
        deadline = Deadline(None)
        exceeded = pytest.raises(ExecutionTimeoutError, match=r"more than cpu_seconds=0\.5 allows")
        with gateway.measure_cell(client.kernel_id, deadline.expire), exceeded:
            await client.run(BURN_ITSELF, deadline)


async def test_no_session_dies_for_what_a_kernel_uses_that_ran_before_its_client_came(tmp_path: Path, mode: Mode):
    async with (
        waiting_kernel(tmp_path, mode, memory=600 * MIB) as (gateway, client),
        KernelClient(endpoint=gateway.endpoint, images_dir=tmp_path) as innocent,
    ):
        await innocent.execute("kept = 1")
        with pytest.raises(KernelDiedError):
            await client.execute(HOGS)

        assert (await innocent.execute("kept")).text == "1"


@pytest.mark.parametrize("name", ["daemon", "-P -m ipybox.guest.kernel /x/kernel-{}.json"], ids=["daemon", "kernel"])
async def test_no_session_dies_for_what_has_left_another_whatever_it_calls_itself(
    tmp_path: Path, mode: Mode, name: str
):
    async with (
        waiting_kernel(tmp_path, mode, memory=700 * MIB) as (gateway, client),
        KernelClient(endpoint=gateway.endpoint, images_dir=tmp_path) as innocent,
    ):
        await innocent.execute("kept = b'x' * (150 << 20)")  # more than the kernel of the other one
        await client.execute(f"NAME = {f'python {name} '.format(innocent.kernel_id)!r}\n{DAEMONS}")
        async with asyncio.timeout(WAIT):
            while not gateway.exceeded:
                await innocent.execute("len(kept)")

        # Whether daemons are seen before they leave their kernel is a matter of milliseconds.
        assert gateway.exceeded.keys() <= {UNATTRIBUTED, client.kernel_id}
        assert (await innocent.execute("len(kept)")).text == str(150 << 20)
        if UNATTRIBUTED in gateway.exceeded:
            assert (await client.execute("1")).text == "1"
            assert "processes detached from their kernel, which used" in gateway.exceeded[UNATTRIBUTED]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"memory_limit": 1000}, r"memory_limit=1000 bytes is too low: a kernel needs at least 128 MiB"),
        ({"cpu_seconds": 0}, r"cpu_seconds=0 is too low"),
        ({"process_limit": 0}, r"process_limit=0 is too low"),
    ],
)
def test_limits_with_which_no_kernel_can_run_are_refused(limits: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        CodeExecutor(**limits)
