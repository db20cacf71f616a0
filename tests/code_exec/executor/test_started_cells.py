"""Cells that are started, and waited for later."""

import asyncio
from pathlib import Path

import pytest

from ipybox import ApprovalRequest, CodeExecutor
from ipybox.code_exec.running_cell import RunningCell
from ipybox.errors import CodeExecutionError, ExecutionCancelledError, ExecutionTimeoutError
from tests.code_exec.cells import SLEEPS
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def printed(executor: CodeExecutor, code: str) -> RunningCell:
    """Starts a cell, and returns it when it has printed something."""
    cell = await executor.start_cell(code, WAIT)
    async with asyncio.timeout(WAIT):
        while cell.output.text is None:
            with pytest.raises(TimeoutError, match=r"still running after 0\.01 s"):
                await cell.wait(0.01)
    return cell


async def test_a_started_cell_runs_on_and_shows_its_output(approver: CodeExecutor):
    cell = await printed(approver, f"{SLEEPS}\nprint('never')")
    assert (cell.output.text, cell.done) == ("begun", False)
    waiting = asyncio.create_task(cell.wait())
    asyncio.get_running_loop().call_soon(waiting.cancel)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not cell.done, "a wait that is cancelled does not end it"
    queued = await approver.start_cell("print('next')")
    assert queued.output.text is None

    assert cell.cancel()
    for _ in range(2):
        with pytest.raises(ExecutionCancelledError) as error:
            await cell.wait(WAIT)
        assert error.value.text == "begun"
    assert not cell.cancel()
    assert (await queued.wait(WAIT)).text == "next"


async def test_a_queued_cell_can_be_cancelled(approver: CodeExecutor):
    first = await printed(approver, SLEEPS)
    queued = await approver.start_cell("print('never')")
    assert queued.cancel()
    with pytest.raises(ExecutionCancelledError, match="the execution was cancelled: an earlier execution is"):
        await queued.wait(WAIT)
    first.cancel()
    with pytest.raises(ExecutionCancelledError):
        await first.wait(WAIT)
    assert (await approver.execute("'usable'")).text == "'usable'"


async def test_errors_and_timeouts_are_raised_by_the_wait(approver: CodeExecutor):
    failing, late = await approver.start_cell("1 / 0"), await approver.start_cell(SLEEPS, timeout=1)
    with pytest.raises(ExecutionTimeoutError):
        await late.wait()
    assert isinstance((await late.wait(raise_errors=False)).error, ExecutionTimeoutError)
    with pytest.raises(CodeExecutionError, match="ZeroDivisionError"):
        await failing.wait()


async def test_a_wait_for_its_task_cancels_the_cell(approver: CodeExecutor):
    cell = await printed(approver, SLEEPS)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await cell.task
    assert cell.done
    assert (await approver.execute("'usable'")).text == "'usable'"


async def test_calls_of_a_started_cell_go_to_its_approver(approver: CodeExecutor):
    requests: list[ApprovalRequest] = []

    async def hold(request: ApprovalRequest) -> None:
        requests.append(request)
        await request.accept()

    cell = await approver.start_cell("call('x')", approver=hold)
    assert (await cell.wait(WAIT)).text == "'x'"
    assert [request.tool_name for request in requests] == ["echo"]


async def test_stopping_the_executor_ends_its_cells(tmp_path: Path):
    async with CodeExecutor(working_dir=tmp_path) as executor:
        cell = await printed(executor, SLEEPS)
        queued = await executor.start_cell("1")
    assert cell.done
    assert queued.done
    for each in cell, queued:
        with pytest.raises((CodeExecutionError, RuntimeError)):
            await each.wait()
