"""Executions that are cancelled or left early, and consumers that are slow."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from ipybox import ApprovalRequest, CodeExecutionChunk, CodeExecutionResult, CodeExecutor
from ipybox.errors import ExecutionCancelledError
from tests.code_exec.cells import SLEEPS, SWALLOWS_INTERRUPTS, begun, text
from tests.conftest import Mode

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_leaving_a_stream_early_interrupts_the_code_and_keeps_the_state(executor: CodeExecutor):
    async with aclosing(executor.stream(f"state = 5\n{SLEEPS}", chunks=True)) as items:
        async for item in items:
            assert isinstance(item, CodeExecutionChunk)  # on a busy machine, not the whole line
            assert item.text.startswith("begun")
            break

    assert await text(executor, "state") == "5"


async def test_cancelling_an_execution_interrupts_the_code_and_keeps_the_state(executor: CodeExecutor):
    task = await begun(executor, f"state = 6\n{SLEEPS}")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await text(executor, "state") == "6"


async def test_an_execution_that_is_cancelled_while_it_waits_never_runs(executor: CodeExecutor):
    first = await begun(executor, "print('begun', flush=True)\nimport time; time.sleep(0.5)")
    second = asyncio.create_task(executor.execute("cancelled = 1"))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second

    await first
    assert await text(executor, "'cancelled' in globals()") == "False"


@pytest.mark.usefixtures("short_interrupt_grace")
async def test_cancelling_code_that_swallows_the_interrupt_leaves_a_usable_kernel(executor: CodeExecutor):
    task = await begun(executor, SWALLOWS_INTERRUPTS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await text(executor, "print('usable')") == "usable"


async def test_cancel_fails_the_execution_with_what_it_has_printed_and_keeps_the_state(executor: CodeExecutor):
    assert not executor.cancel()
    task = await begun(executor, f"state = 7\n{SLEEPS}")
    waiting = asyncio.create_task(executor.execute("state"))
    await asyncio.sleep(0)
    assert executor.cancel()
    assert executor.cancel()
    with pytest.raises(ExecutionCancelledError) as error:
        await task

    assert str(error.value) == "the execution was cancelled: the kernel was interrupted and keeps its state"
    assert (await waiting).text == "7"
    assert not executor.cancel()


@pytest.mark.parametrize("before", ["", "import asyncio; await asyncio.sleep(0); "], ids=["sync", "after_await"])
async def test_cancel_ends_code_that_waits_for_an_approval(approver: CodeExecutor, before: str):
    items = approver.stream(f"{before}call('never')")
    request = await anext(items)
    assert isinstance(request, ApprovalRequest)
    assert approver.cancel()
    with pytest.raises(ExecutionCancelledError, match="keeps its state"):
        await anext(items)

    await request.accept()
    assert await text(approver, "call('next')") == "'next'"


async def test_cancel_ends_code_that_has_just_been_handed_over(executor: CodeExecutor):
    task = asyncio.create_task(executor.execute(SLEEPS))
    await asyncio.sleep(0)
    assert executor.cancel()
    with pytest.raises(ExecutionCancelledError, match=r"interrupted and keeps its state|before the cell started"):
        await task

    assert await text(executor, "1") == "1"


@pytest.mark.usefixtures("short_interrupt_grace")
async def test_cancel_says_when_the_kernel_had_to_be_restarted(executor: CodeExecutor):
    task = await begun(executor, SWALLOWS_INTERRUPTS)
    executor.cancel()
    with pytest.raises(ExecutionCancelledError, match=r"cancelled: .* ignored the interrupt .*: its state is lost"):
        await task


async def test_a_slow_consumer_gets_chunks_with_gaps_that_are_told_and_the_whole_result(
    executor: CodeExecutor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ipybox.code_exec.cell_runner.MAX_WAITING_CHUNKS", 1000)
    lines = "for i in range(100): print('x' * 99, flush=True)"
    items = executor.stream(f"import time\nprint('begun', flush=True)\ntime.sleep(0.2)\n{lines}", chunks=True)
    assert await anext(items) == CodeExecutionChunk("begun\n")
    await text(executor, "'the one before has ended'")
    chunks = [item async for item in items if isinstance(item, CodeExecutionChunk | CodeExecutionResult)]

    *chunks, result = chunks
    assert result.text == "\n".join(["begun", *["x" * 99] * 100])
    assert all(isinstance(chunk, CodeExecutionChunk) for chunk in chunks)
    # Counted by characters: a line and its end may be two chunks.
    shown = sum(len(chunk.text) for chunk in chunks if isinstance(chunk, CodeExecutionChunk) and not chunk.notice)
    assert 0 < shown <= 1100
    told = [chunk.text for chunk in chunks if isinstance(chunk, CodeExecutionChunk) and chunk.notice]
    assert told == [f"\n[ipybox] {10_000 - shown:,} characters were omitted here.\n"]


async def test_an_executor_that_stops_while_it_cancels_says_that_it_was_stopped(tmp_path: Path, mode: Mode):
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as stopped:
        task = await begun(stopped, SWALLOWS_INTERRUPTS)
        stopped.cancel()
        await stopped.stop()
        with pytest.raises(RuntimeError, match=r"^the code executor has been stopped$"):
            await task
