"""An application without descriptors, and a clock that jumps.

Of code in kernels that uses up descriptors, memory or processes, see `tests/guest/test_shell.py` and
`tests/sandbox/test_limits.py`.
"""

import asyncio
import os
import resource
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ipybox.errors import ExecutionTimeoutError
from ipybox.mcp_server.outputs import OutputStore
from tests.code_exec.cells import begun, process_of, text
from tests.faults.conftest import Family, keeps_its_state
from tests.faults.moments import CALL
from tests.faults.processes import outcome, until_kernels
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

ECHO = CALL.format(tool="echo", args={"text": "hello"})
IMAGE = "display({'image/png': 'aW1h', 'text/plain': '<image>'}, raw=True); print('shown')"


@contextmanager
def no_descriptors() -> Generator[None]:
    """Lets this process open nothing more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, before[1]))
    taken: list[int] = []
    try:
        while True:
            try:
                taken.append(os.dup(2))
            except OSError:
                break
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_an_application_without_descriptors_executes_code_and_says_what_can_not_be_saved(family: Family):
    with no_descriptors():
        result = await family.executor.execute(IMAGE, timeout=WAIT)
        assert (result.text, result.images) == ("shown", [])
        (notice,) = result.notices
        assert "Too many open files" in notice
        await family.check()
    assert len((await family.executor.execute(IMAGE)).images) == 1


async def test_a_call_for_which_there_are_no_descriptors_waits_for_some(family: Family):
    await family.executor.reset()  # so that it needs a new connection, and its server is not there
    await family.executor.execute("kept = 'kept'", timeout=WAIT)
    with no_descriptors():
        execution = asyncio.create_task(family.executor.execute(ECHO, timeout=WAIT))
        await asyncio.wait([execution], timeout=0.3)
        assert not execution.done()
    assert (await execution).text == "hello\ndone"
    await family.check()


@pytest.mark.parametrize("moment", ["starting", "reset"])
async def test_a_kernel_for_which_there_are_no_descriptors_is_an_error_and_the_next_one_starts(
    family: Family, moment: str
):
    gateway = await process_of(family.executor, "gateway")
    third = family.executor.sibling()
    begin = third.start if moment == "starting" else family.executor.reset
    with no_descriptors():
        error = await outcome(begin())
    # A reset may do with the descriptor of the connection that it closes.
    assert "Too many open files" in str(error) or (moment, error) == ("reset", None)
    await begin()
    await third.stop()
    await until_kernels(gateway, lambda kernels: len(kernels) == 2)
    if moment == "starting":
        await keeps_its_state(family.executor)
    await keeps_its_state(family.sibling)


async def test_a_kernel_that_there_are_no_descriptors_to_interrupt_costs_no_other_one(family: Family):
    """The kernel is lost, and the error says so."""
    with no_descriptors():
        execution = await begun(family.executor, "print('begun', flush=True)\nwhile True: pass", timeout=0.5)
        with pytest.raises(ExecutionTimeoutError):
            async with asyncio.timeout(WAIT):
                await execution
    await family.executor.execute("1", timeout=WAIT)
    await keeps_its_state(family.sibling)


@pytest.mark.parametrize("seconds", [10**6, -(10**6)], ids=["forward", "backward"])
async def test_a_clock_that_jumps_changes_no_time_limit_and_no_order(
    family: Family, tmp_path: Path, seconds: int, monkeypatch: pytest.MonkeyPatch
):
    outputs = OutputStore(tmp_path)
    first = outputs.save("first")
    now, now_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: now() + seconds)
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + seconds * 10**9)

    assert await text(family.executor, ECHO) == "hello\ndone"
    with pytest.raises(ExecutionTimeoutError, match="was interrupted and keeps its state"):
        await family.executor.execute("while True: pass", timeout=0.5)
    await family.check()
    assert [kept.name for kept in outputs.kept()] == [outputs.save("second"), first][::1] or outputs.kept()[
        1
    ].name == first
