"""An executor whose application cancels twice or blocks its event loop, and whose kernels and gateway die."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import ClientWebSocketResponse

from ipybox import CodeExecutor
from ipybox.code_exec.executor import STATE_LOST
from ipybox.errors import CodeExecutionError, ExecutionCancelledError, ExecutionTimeoutError, GatewayError
from ipybox.kernel_mgr import timeouts
from ipybox.kernel_mgr.remote_kernel import RemoteKernel
from tests import servers
from tests.code_exec.cells import begun, process_of, text
from tests.faults.conftest import Family, keeps_its_state
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLEEPS = "print('begun', flush=True)\nimport time; time.sleep(600)"
SWALLOWS = """
import time
while True:
    try:
        print('begun', flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        pass
"""


def kernels(gateway: int) -> set[int]:
    """Returns the processes of all kernels of a gateway."""
    return {pid for pid in servers.descendants(gateway) if "ipybox.guest.kernel" in _command(pid)}


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    return ""


async def until_two_kernels(gateway: int) -> None:
    """Waits until a gateway has the kernels of a family and no other ones."""
    await servers.until(lambda: len(kernels(gateway)) == 2)


def block_the_loop(seconds: float) -> None:
    """Does what is tested here: an application that keeps its event loop from running."""
    time.sleep(seconds)


def cancel_by_task(executor: CodeExecutor, execution: "asyncio.Task[object]") -> None:
    execution.cancel()


def cancel_by_executor(executor: CodeExecutor, execution: "asyncio.Task[object]") -> None:
    executor.cancel()


# An application that blocks its event loop


@pytest.mark.usefixtures("short_graces")
async def test_a_loop_that_is_blocked_at_a_timeout_costs_no_kernel(family: Family):
    execution = await begun(family.executor, SLEEPS, timeout=1)
    block_the_loop(2.5)

    with pytest.raises(ExecutionTimeoutError, match="was interrupted and keeps its state"):
        await execution
    await family.check()


@pytest.mark.usefixtures("short_graces")
@pytest.mark.parametrize("cancel", [cancel_by_task, cancel_by_executor])
async def test_a_loop_that_is_blocked_after_a_cancellation_costs_no_kernel(
    family: Family, cancel: Callable[[CodeExecutor, "asyncio.Task[object]"], None]
):
    execution = await begun(family.executor, SLEEPS)
    cancel(family.executor, execution)
    asyncio.get_running_loop().call_later(0.01, block_the_loop, 2)  # when the interrupt was sent

    with pytest.raises((asyncio.CancelledError, ExecutionCancelledError)):
        await execution
    await family.check()


async def test_an_answer_that_came_while_the_loop_was_blocked_is_no_timeout(family: Family):
    code = "print('begun', flush=True)\nimport time; time.sleep(0.2); 41 + 1"
    execution = await begun(family.executor, code, timeout=1)
    block_the_loop(2)

    assert (await execution).text == "begun\n42"
    await family.check()


async def test_a_gateway_that_answers_late_costs_no_kernel_of_others(family: Family, monkeypatch: pytest.MonkeyPatch):
    """The gateway is stopped for longer than an interrupt may take, as on a machine that is too busy."""
    monkeypatch.setattr(timeouts, "ANSWER_GRACE", 0.2)
    gateway = await process_of(family.executor, "gateway")
    execution = await begun(family.executor, SLEEPS)
    os.kill(gateway, signal.SIGSTOP)
    family.executor.cancel()
    asyncio.get_running_loop().call_later(1, os.kill, gateway, signal.SIGCONT)

    with pytest.raises(ExecutionCancelledError):
        await execution
    assert await text(family.sibling, "kept") == "'kept'"
    assert await process_of(family.executor, "gateway") == gateway


@pytest.mark.usefixtures("short_graces")
async def test_a_gateway_that_does_not_answer_does_not_hold_up_a_timeout(
    family: Family, monkeypatch: pytest.MonkeyPatch
):
    """Whether it is lost shows much later, and the next cell waits for that."""
    monkeypatch.setattr(timeouts, "PROBE_TIMEOUT", 3600.0)
    gateway = await process_of(family.executor, "gateway")
    execution = await begun(family.executor, SLEEPS, timeout=0.5)
    os.kill(gateway, signal.SIGSTOP)
    try:
        async with asyncio.timeout(WAIT):
            with pytest.raises(ExecutionTimeoutError, match="gateway is not responding: if it stays silent"):
                await execution
    finally:
        os.kill(gateway, signal.SIGCONT)
    assert (await family.executor.execute("1", timeout=WAIT)).text == "1"
    await keeps_its_state(family.sibling)


# Requests that are cancelled, or time out, while they are being sent


@pytest.mark.parametrize("how", ["task", "executor", "timeout"])
async def test_code_whose_request_was_being_sent_is_interrupted(
    family: Family, how: str, monkeypatch: pytest.MonkeyPatch
):
    """The request has left in part: it fills the connection, as the gateway is stopped meanwhile."""
    monkeypatch.setattr(timeouts, "INTERRUPT_GRACE", WAIT)
    send, leaves = ClientWebSocketResponse.send_bytes, asyncio.Event()

    async def watched(websocket: ClientWebSocketResponse, data: bytes) -> None:
        leaves.set()
        await send(websocket, data)

    monkeypatch.setattr(ClientWebSocketResponse, "send_bytes", watched)
    gateway = await process_of(family.executor, "gateway")
    leaves.clear()
    os.kill(gateway, signal.SIGSTOP)
    try:
        timeout = 0.5 if how == "timeout" else WAIT
        variables = {"large": "a" * (32 << 20)}
        execution = asyncio.create_task(family.executor.execute(SLEEPS, timeout, variables=variables))
        async with asyncio.timeout(WAIT):
            await leaves.wait()
        if how == "task":
            execution.cancel()
        elif how == "executor":
            family.executor.cancel()
        else:
            await asyncio.wait([execution], timeout=1)
    finally:
        os.kill(gateway, signal.SIGCONT)
    with pytest.raises((asyncio.CancelledError, ExecutionCancelledError, ExecutionTimeoutError)):
        await execution
    await family.check()


# Kernels whose end the gateway does not confirm


@pytest.mark.parametrize("failures", [1, 2, 1000])
async def test_no_code_runs_in_a_new_kernel_while_the_old_one_may_still_run(
    family: Family, failures: int, monkeypatch: pytest.MonkeyPatch
):
    call, left = RemoteKernel.call, failures

    async def fail(client: RemoteKernel, method: str, path: str, *args: Any, **options: Any) -> dict[str, Any]:
        nonlocal left
        if method == "DELETE" and left:
            left -= 1
            raise GatewayError("no answer within 20 s")
        return await call(client, method, path, *args, **options)

    monkeypatch.setattr(RemoteKernel, "call", fail)
    old = await process_of(family.executor, "kernel")
    if failures == 1:
        await family.executor.reset()
    else:
        with pytest.raises(GatewayError, match="no answer within 20 s"):
            await family.executor.reset()
        if failures == 1000:
            with pytest.raises(CodeExecutionError, match="the kernel died and could not be restarted"):
                await family.executor.execute("1", timeout=WAIT)
            assert servers.is_alive(old)
    left = 0
    assert await text(family.executor, "'kept' in globals()") == "False"
    assert not servers.is_alive(old)
    await keeps_its_state(family.sibling)
    gateway = await process_of(family.executor, "gateway")
    await until_two_kernels(gateway)


async def test_a_kernel_that_is_gone_already_does_not_hold_up_a_reset(family: Family):
    client = family.executor._kernel.client  # pyright: ignore[reportPrivateUsage] - only others end a kernel like this
    assert client is not None
    await client.remote_kernel.call("DELETE", f"/api/kernels/{client.kernel_id}")
    await family.executor.reset()
    assert await text(family.executor, "'kept' in globals()") == "False"


# An application that cancels more than once


async def test_cancelling_twice_costs_no_kernel(family: Family):
    execution = await begun(family.executor, SLEEPS)
    for _ in range(5):
        execution.cancel()
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        await execution
    await family.check()


async def test_a_cancelled_scope_of_anyio_costs_no_kernel(family: Family):
    """anyio cancels again at each wait until the scope is left."""
    with anyio.CancelScope() as scope:
        async for _ in family.executor.stream(SLEEPS, chunks=True):
            scope.cancel()

    assert scope.cancelled_caught
    await family.check()


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("delay", [0.0, 0.05, 0.2, 0.5])
async def test_a_cancelled_reset_goes_on_and_leaves_no_kernel(family: Family, delay: float, times: int):
    gateway = await process_of(family.executor, "gateway")
    await cancelled(family.executor.reset, delay, times)

    result = await family.executor.execute("'kept' in globals()", timeout=WAIT)
    assert (result.text, result.notices) == ("False", [])
    await until_two_kernels(gateway)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("delay", [0.0, 0.05, 0.2, 0.5])
async def test_a_cancelled_start_of_a_sibling_leaves_no_kernel(family: Family, delay: float, times: int):
    gateway = await process_of(family.executor, "gateway")
    third = family.executor.sibling()
    await cancelled(third.start, delay, times)
    await third.stop()

    await until_two_kernels(gateway)
    await family.check()


async def cancelled(operation: Callable[[], Awaitable[None]], delay: float, times: int) -> None:
    task = asyncio.ensure_future(operation())
    await asyncio.wait([task], timeout=delay)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    with suppress(asyncio.CancelledError):
        await task


# Lost state


@pytest.mark.usefixtures("short_graces")
async def test_a_kernel_that_was_restarted_after_a_cancellation_is_told_of(family: Family):
    execution = await begun(family.executor, SWALLOWS)
    execution.cancel()
    with pytest.raises(asyncio.CancelledError):
        await execution

    with pytest.raises(CodeExecutionError, match="NameError") as error:
        await family.executor.execute("kept", timeout=WAIT)
    assert error.value.notices == [STATE_LOST]
    assert (await family.executor.execute("1")).notices == []


async def test_lost_state_is_told_of_until_it_was_heard(family: Family):
    """With an error, not with the execution that has no result as it is cancelled."""
    os.kill(await process_of(family.executor, "kernel"), signal.SIGKILL)
    with suppress(CodeExecutionError):
        await text(family.executor, "import time; time.sleep(600)")
    execution = await begun(family.executor, SLEEPS)
    execution.cancel()
    with pytest.raises(asyncio.CancelledError):
        await execution

    with pytest.raises(CodeExecutionError, match="NameError") as error:
        await family.executor.execute("kept", timeout=WAIT)
    assert error.value.notices == [STATE_LOST]


async def test_lost_state_is_told_of_although_the_stream_that_had_it_was_left(family: Family):
    """The result is there when the stream is left, but nobody has seen it."""
    os.kill(await process_of(family.executor, "kernel"), signal.SIGKILL)
    with suppress(CodeExecutionError):
        await text(family.executor, "import time; time.sleep(600)")
    async with aclosing(family.executor.stream("print('begun')", chunks=True)) as items:
        await anext(items)
        await text(family.executor, "'the one before has ended'")

    assert (await family.executor.execute("1", timeout=WAIT)).notices == [STATE_LOST]
    assert (await family.executor.execute("1", timeout=WAIT)).notices == []


@pytest.mark.usefixtures("short_graces")
async def test_a_kernel_that_was_restarted_after_its_stream_was_cancelled_and_left_is_told_of(family: Family):
    async with aclosing(family.executor.stream(SWALLOWS, chunks=True)) as items:
        await anext(items)
        family.executor.cancel()
        await text(family.executor, "'the one before has ended'")

    assert (await family.executor.execute("1", timeout=WAIT)).notices == [STATE_LOST]
    assert (await family.executor.execute("1", timeout=WAIT)).notices == []


# Kernels that do not start


async def test_a_kernel_that_dies_at_its_start_is_an_error_at_once_and_costs_no_other_one(family: Family):
    gateway = await process_of(family.executor, "gateway")
    family.die.touch()
    try:
        with pytest.raises(GatewayError, match=r"^the kernel did not start: its process exited$"):
            async with asyncio.timeout(WAIT):
                await family.executor.reset()
        with pytest.raises(CodeExecutionError, match="could not be restarted: the kernel did not start: its pro"):
            await text(family.executor, "1")
    finally:
        family.die.unlink()

    assert await text(family.executor, "1") == "1"
    assert await text(family.sibling, "kept") == "'kept'"
    assert await process_of(family.sibling, "gateway") == gateway


async def test_the_time_limit_covers_the_start_of_a_fresh_kernel(family: Family):
    family.hang.touch()
    try:
        os.kill(await process_of(family.sibling, "kernel"), signal.SIGKILL)
        with suppress(CodeExecutionError):
            await text(family.sibling, "import time; time.sleep(600)")
        with pytest.raises(TimeoutError, match=r"^the execution did not start within 0\.5 s: the cell never started"):
            await family.sibling.execute("started_late = True", timeout=0.5)
    finally:
        family.hang.unlink()

    result = await family.sibling.execute("'started_late' in globals()", timeout=WAIT)
    assert (result.text, result.notices) == ("False", [STATE_LOST])


# A gateway that dies; last, as all kernels are lost with it


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_new_sibling_starts_after_the_gateway_has_died(
    family: Family, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(timeouts, "GATEWAY_TIMEOUT", 5.0)
    monkeypatch.setattr(timeouts, "PROBE_TIMEOUT", 1.0)
    gateway = await process_of(family.executor, "gateway")
    os.kill(gateway, number)
    if number == signal.SIGKILL:
        assert await servers.until_dead({gateway}, WAIT) == set()
    monkeypatch.undo() if number == signal.SIGKILL else None

    third = family.executor.sibling()
    async with asyncio.timeout(WAIT), third:
        assert await text(third, "1 + 1") == "2"
        result = await family.executor.execute("1", timeout=WAIT)
        assert (result.text, result.notices) == ("1", [STATE_LOST])
