"""Limits of a kernel in every mode: what exceeds one ends with a message that names it, and the next cell runs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.code_exec import STATE_LOST
from ipybox.kernel_mgr.limits import default_memory_limit, format_bytes
from tests.conftest import Mode

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
        assert "A process of the kernel may use 512 MiB of memory: memory_limit sets that." in str(failed.value)
        assert (await limited.execute("kept")).text == "1"


async def test_memory_of_all_processes_together_ends_the_kernel(tmp_path: Path, mode: Mode):
    async with executor(tmp_path, mode, memory_limit=600 * MIB) as limited:
        with pytest.raises(
            CodeExecutionError,
            match=r"the kernel and its processes used .* of memory, more than memory_limit=600 MiB allows",
        ):
            await limited.execute(HOGS)

        assert (await limited.execute("1 + 1")).text == f"{STATE_LOST}\n2"


async def test_too_many_processes_end_the_kernel(tmp_path: Path, mode: Mode):
    async with executor(tmp_path, mode, process_limit=20) as limited:
        with pytest.raises(CodeExecutionError, match=r"were \d+ processes, more than process_limit=20 allows"):
            await limited.execute(BOMB)

        assert (await limited.execute("1 + 1")).text == f"{STATE_LOST}\n2"


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
            while not (text := (await limited.execute("1 + 1")).text or "").startswith(STATE_LOST):
                pass
        except CodeExecutionError as exc:
            text = str(exc)

        assert "more than process_limit=5 allows" in text


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


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"memory_limit": 1000}, r"memory_limit=1000 bytes is too low: a kernel needs 128 MiB at least"),
        ({"cpu_seconds": 0}, r"cpu_seconds=0 is too low"),
        ({"process_limit": 0}, r"process_limit=0 is too low"),
    ],
)
def test_limits_with_which_no_kernel_can_run_are_refused(limits: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        CodeExecutor(**limits)
