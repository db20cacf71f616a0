"""Processes that have left their kernel's group and session, or its tree: none outlives the kernel."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from ipybox import CodeExecutor
from tests import servers
from tests.code_exec.cells import process_of, text
from tests.conftest import Mode
from tests.servers import WAIT

#: Each writes its id, as it is known outside of a sandbox's own names of processes, too.
SPAWNS = {
    "session": "import subprocess; subprocess.Popen(['sleep', '1000.{n}'], start_new_session=True); 0",
    "daemon": "import os; os.system('setsid sh -c \"sleep 1000.{n} & exit\" >/dev/null 2>&1'); 0",
    "no_environment": "import subprocess; subprocess.Popen(['sleep', '1000.{n}'], start_new_session=True, env={{}}); 0",
}


@pytest.fixture
def numbers() -> Iterator[int]:
    """Numbers that nobody else gives to `sleep`."""
    return count(os.getpid() * 1000)


def strays(n: int) -> set[int]:
    """Returns the processes that `SPAWNS` has started with this number."""
    found: set[int] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cmdline").read_bytes() == f"sleep\x001000.{n}\0".encode():
                found.add(int(process.name))
    return found


async def spawned(executor: CodeExecutor, how: str, n: int) -> set[int]:
    """Starts a process in a kernel and returns its id when it is there."""
    await text(executor, SPAWNS[how].format(n=n))
    return await servers.until(lambda: strays(n))


@pytest.mark.parametrize("how", SPAWNS)
async def test_nothing_that_code_has_started_outlives_a_reset_or_a_stop(
    tmp_path: Path, mode: Mode, how: str, numbers: Iterator[int]
):
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor, executor.sibling() as sibling:
        of_sibling = await spawned(sibling, how, next(numbers))
        before = await spawned(executor, how, next(numbers))
        await executor.reset()
        assert await servers.until_dead(before, WAIT) == set()
        assert all(map(servers.is_alive, of_sibling))
        after = await spawned(executor, how, next(numbers))
    assert await servers.until_dead(after | of_sibling, WAIT) == set()


@pytest.mark.parametrize("how", ["session", "daemon"])
async def test_nothing_outlives_a_kernel_that_dies(tmp_path: Path, mode: Mode, how: str, numbers: Iterator[int]):
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:
        processes = await spawned(executor, how, next(numbers))
        os.kill(await process_of(executor, "kernel"), signal.SIGKILL)
        assert await servers.until_dead(processes, WAIT) == set()


@pytest.mark.parametrize("how", ["session", "daemon"])
async def test_nothing_outlives_a_gateway_that_dies(tmp_path: Path, mode: Mode, how: str, numbers: Iterator[int]):
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:
        processes = await spawned(executor, how, next(numbers))
        os.kill(await process_of(executor, "gateway"), signal.SIGKILL)
    assert await servers.until_dead(processes, WAIT) == set()
