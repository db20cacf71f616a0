"""`raise_errors=False`: the result of a failed execution contains its error."""

import asyncio
from contextlib import aclosing
from typing import Any, cast

import pytest

from ipybox import CodeExecutionError, CodeExecutionResult, CodeExecutor
from ipybox.code_exec.cell_runner import STATE_LOST
from ipybox.errors import ExecutionCancelledError, ExecutionTimeoutError, VariableError
from ipybox.support.effects import ToolCallCount
from tests.code_exec.cells import SLEEPS
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALLS = (ToolCallCount("scripted", "echo", "done", 1, '{"text": "a"}'),)


async def value(executor: CodeExecutor, code: str, timeout: float = WAIT) -> CodeExecutionResult:
    return await executor.execute(code, timeout, raise_errors=False)


async def test_failed_cell_returns_its_output_and_what_the_error_would_say(approver: CodeExecutor):
    code = "print('before'); display(1); call('a'); 1 / 0"
    result = await value(approver, code)

    error = result.error
    assert error is not None
    assert (error.name, error.value, error.calls) == ("ZeroDivisionError", "division by zero", CALLS)
    assert error.traceback == str(error)
    assert (result.text, result.notices) == ("before\n1", ["Before this error: scripted.echo ×1 done."])
    assert result.to_notebook().cells[0].source == code
    assert [block["text"] for block in result.for_model()] == [
        f"before\n1\n{error}",
        f"[ipybox] {result.notices[0]}",
    ]
    assert error.__traceback__ is error.__context__ is None
    assert (await value(approver, "1 + 1")).error is None


async def test_timeouts_and_cancellations_are_values(approver: CodeExecutor):
    late = await value(approver, f"call('a')\n{SLEEPS}", 0.5)
    assert isinstance(late.error, ExecutionTimeoutError)
    assert (late.text, late.error.name, late.error.calls) == ("begun", None, CALLS)

    async with aclosing(approver.stream(SLEEPS, WAIT, chunks=True, raise_errors=False)) as items:
        await anext(items)
        queued = await value(approver, "never = 1", 0.1)
        approver.cancel()
        *_, cancelled = [item async for item in items]
    assert isinstance(queued.error, ExecutionTimeoutError)
    assert queued.error.output is None
    assert "did not start within 0.1 s" in queued.for_model()[0]["text"]
    assert isinstance(cancelled, CodeExecutionResult)
    assert isinstance(cancelled.error, ExecutionCancelledError)
    assert cancelled.text == "begun"


async def test_dead_kernel_is_a_value_and_the_next_result_says_what_is_lost(approver: CodeExecutor):
    died = await value(approver, "import os, signal; print('a', flush=True); os.kill(os.getpid(), signal.SIGKILL)")

    assert isinstance(died.error, CodeExecutionError)
    assert "SIGKILL" in str(died.error)
    following = await value(approver, "1")
    assert following.error is None
    assert following.notices[0].startswith(STATE_LOST)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"code": 1}, TypeError),
        ({"timeout": 0}, ValueError),
        ({"variables": {"x": object()}}, VariableError),
    ],
    ids=["code", "timeout", "variable"],
)
async def test_wrong_arguments_are_raised_nevertheless(
    approver: CodeExecutor, arguments: dict[str, Any], error: type[Exception]
):
    with pytest.raises(error):
        await approver.execute(**cast(Any, {"code": "1", **arguments}), raise_errors=False)


async def test_cancelled_task_is_cancelled_nevertheless(approver: CodeExecutor):
    task = asyncio.create_task(value(approver, SLEEPS))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
