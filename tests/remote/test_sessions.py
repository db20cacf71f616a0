"""Many executors on one engine: each has a job and a node of its own, and none of them waits for another one."""

import asyncio
import os
import shlex
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.code_exec.cell_runner import STATE_LOST
from ipybox.errors import ExecutionCancelledError, GatewayError
from tests.code_exec.cells import SLEEPS, begun
from tests.conftest import Fifo, Mode
from tests.remote.conftest import nodes
from tests.servers import WAIT, until_dead

#: Code that prints a process that only its own node has.
NODE = "import os; print(os.getppid())"


def waiting(places: Path, command: list[str], waits: Fifo) -> list[str]:
    """Returns an engine with as many places as the directory has files; without one, a job waits, and says so."""
    script = f"""
        for place in {places}/place-*; do
            if mv "$place" {places}/taken-$$ 2>/dev/null; then exec {shlex.join(command)}; fi
        done
        echo $$ > {waits.path}
        exec sleep 600
    """
    return ["sh", "-c", script]


def free(places: Path, *names: str) -> Path:
    for name in names:
        (places / f"place-{name}").touch()
    return places


async def test_each_executor_has_a_node_of_its_own_and_loses_only_that(tmp_path: Path, command: list[str], mode: Mode):
    async with CodeExecutor(working_dir=tmp_path, engine=command, sandbox=mode.sandbox) as first:
        (first_node,) = nodes()
        async with first.sibling("second") as second:
            (second_node,) = nodes() - {first_node}
            await asyncio.gather(first.execute("x = 1"), second.execute("x = 2"))
            running = await begun(second, SLEEPS)
            os.kill(second_node, signal.SIGKILL)
            with pytest.raises(CodeExecutionError, match=r"its node .* is lost"):
                await running
            again = await second.execute("'x' in globals()")
            assert again.text == "False"
            assert any(notice.startswith(STATE_LOST) for notice in again.notices)
            kept = await first.execute("x")
            assert (kept.text, kept.notices) == ("1", [])
            assert len(nodes()) == 2
        assert nodes() == {first_node}
        assert (await first.execute("x")).text == "1"


async def test_executors_start_at_the_same_time(tmp_path: Path, command: list[str]):
    """Each node waits for the others, so that a start after the other would never end."""
    count = 4
    together = f"touch {tmp_path}/$$; while [ $(ls {tmp_path} | wc -l) -lt {count} ]; do sleep 0.05; done; exec"
    first = CodeExecutor(working_dir=tmp_path, engine=["sh", "-c", f"{together} {shlex.join(command)}"])
    async with AsyncExitStack() as stack, asyncio.timeout(4 * WAIT):
        executors = [first, *(first.sibling(str(number)) for number in range(count - 1))]
        await asyncio.gather(*(stack.enter_async_context(executor) for executor in executors))
        results = await asyncio.gather(*(executor.execute(NODE) for executor in executors))
        assert len({result.text for result in results}) == count


async def test_job_that_waits_stalls_no_other_executor_and_leaves_with_stop(
    tmp_path: Path, command: list[str], fifo: Fifo
):
    places = free(tmp_path, "one", "two")
    first = CodeExecutor(working_dir=tmp_path, engine=waiting(places, command, fifo))
    queued = first.sibling("queued")
    async with first, first.sibling("second") as second:
        starting = asyncio.create_task(queued.start())
        job = int(await fifo.line())
        assert queued.status.waits_for == "a node of the engine sh"
        assert not first.status.waits_for
        assert [(await each.execute("1 + 1")).text for each in (first, second)] == ["2", "2"]

        started = time.monotonic()
        await queued.stop()
        assert time.monotonic() - started < 5
        with pytest.raises(GatewayError, match=r"^the wait for a node of the engine sh was cancelled$"):
            await starting
        assert not await until_dead({job}, WAIT)

        again = asyncio.create_task(queued.start())
        job = int(await fifo.line())
        again.cancel()
        again.cancel()
        with pytest.raises(asyncio.CancelledError):
            await again
        assert not await until_dead({job}, WAIT)

        await second.stop()
        free(places, "three")
        await queued.start()
        assert (await queued.execute("1 + 1")).text == "2"
        await queued.stop()


@pytest.mark.parametrize("end", ["stop", "cancel", "task", "timeout"])
async def test_cell_that_waits_for_another_node_ends_when_it_is_told_to(
    tmp_path: Path, command: list[str], fifo: Fifo, end: str
):
    places = free(tmp_path, "one")
    async with CodeExecutor(working_dir=tmp_path, engine=waiting(places, command, fifo)) as executor:
        (node,) = nodes()
        running = await begun(executor, SLEEPS)
        os.kill(node, signal.SIGKILL)
        with pytest.raises(CodeExecutionError, match=r"its node .* is lost"):
            await running
        cell = asyncio.create_task(executor.execute("1 + 1", timeout=1 if end == "timeout" else None))
        job = int(await fifo.line())
        async with asyncio.timeout(5):
            if end == "stop":
                await executor.stop()
                with pytest.raises(CodeExecutionError, match=r"the wait for a node of .* was cancelled"):
                    await cell
            elif end == "cancel":
                executor.cancel()
                with pytest.raises(ExecutionCancelledError):
                    await cell
            elif end == "task":
                cell.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await cell
            else:
                with pytest.raises(TimeoutError, match="it is waiting for a node of the engine sh"):
                    await cell
                assert psutil.pid_exists(job), "the next cell may use the node"
                await executor.stop()
        assert not await until_dead({job}, WAIT)
        if end in ("cancel", "task"):
            free(places, "two")
            result = await executor.execute("1 + 1")
            assert (result.text, result.kernel_restarted) == ("2", True)


async def test_cell_that_is_cancelled_while_its_node_ends_requests_no_other_node(
    tmp_path: Path, command: list[str], fifo: Fifo
):
    """A command that has lost its node may take seconds to end, as `srun` does."""
    jobs = tmp_path / "jobs"
    script = f"""
        echo job >> {jobs}
        trap 'echo ending > {fifo.path}' TERM
        exec 3<&0 4>&1 0</dev/null 1>/dev/null
        {shlex.join(command)} <&3 >&4 3<&- 4>&- &
        exec 3<&- 4>&-
        while true; do sleep 0.05; done
    """
    async with CodeExecutor(working_dir=tmp_path, engine=["sh", "-c", script]) as executor:
        running = await begun(executor, SLEEPS)
        (node,) = (each for each in psutil.Process().children(recursive=True) if "ipybox.node" in each.cmdline())
        node.kill()
        with pytest.raises(CodeExecutionError, match=r"its node .* is lost"):
            await running
        cell = asyncio.create_task(executor.execute("1 + 1"))
        assert await fifo.line() == "ending"
        cell.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cell
        async with asyncio.timeout(WAIT):
            with pytest.raises(CodeExecutionError, match="its variables are lost"):
                await executor.get("x")  # after what the cell had begun
        assert jobs.read_text().count("job") == 1
