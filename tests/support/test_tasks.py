"""Work that neither one cancellation nor many of them stop half way."""

import asyncio

import pytest

from ipybox.support.tasks import TaskSet
from tests.servers import WAIT


async def cancel_often(task: "asyncio.Task[object]") -> None:
    for _ in range(5):
        task.cancel()
        await asyncio.sleep(0)


async def test_what_has_to_be_finished_goes_on_after_any_number_of_cancellations():
    tasks, go, done = TaskSet(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await go.wait()
        done.set()

    caller = asyncio.create_task(tasks.finish(work()))
    await asyncio.sleep(0)
    await cancel_often(caller)
    assert caller.cancelled()

    go.set()
    async with asyncio.timeout(WAIT):
        await done.wait()


async def test_what_is_undone_is_cancelled_once():
    tasks, go, events = TaskSet(), asyncio.Event(), list[str]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            events.append("begins")
            await go.wait()
            events.append("ends")

    async def revert(_: object) -> None:
        events.append("is reverted")

    caller = asyncio.create_task(tasks.undo(work(), revert))
    await asyncio.sleep(0)
    await cancel_often(caller)
    assert caller.cancelled()
    assert events == ["begins"]

    go.set()
    await tasks.wait(WAIT)
    assert events == ["begins", "ends"]


@pytest.mark.parametrize("cancellations", [1, 5])
@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
async def test_what_completes_in_the_moment_of_the_cancellation_is_reverted(cancellations: int, fails: bool):
    tasks, go, events = TaskSet(), asyncio.Event(), list[str]()

    async def work() -> None:
        await go.wait()
        events.append("done")
        caller.cancel()
        if fails:
            raise ZeroDivisionError

    async def revert(_: object) -> None:
        await asyncio.sleep(0)
        events.append("reverted")

    caller = asyncio.create_task(tasks.undo(work(), revert))
    await asyncio.sleep(0)
    go.set()
    await asyncio.sleep(0)
    for _ in range(cancellations - 1):
        caller.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await caller
    await tasks.wait(WAIT)
    assert events == (["done"] if fails else ["done", "reverted"])


@pytest.mark.parametrize("how", ["finish", "undo"])
async def test_results_and_errors_come_back(how: str, caplog: pytest.LogCaptureFixture):
    tasks = TaskSet()

    async def revert(_: object) -> None:
        raise AssertionError("nothing was cancelled")

    more = [revert] if how == "undo" else []

    async def work(divisor: int) -> float:
        return 1 / divisor

    assert await getattr(tasks, how)(work(1), *more) == 1
    with pytest.raises(ZeroDivisionError):
        await getattr(tasks, how)(work(0), *more)
    assert caplog.text == ""


async def test_work_that_fails_after_its_caller_was_cancelled_is_logged(caplog: pytest.LogCaptureFixture):
    tasks, go = TaskSet(), asyncio.Event()

    async def work() -> None:
        await go.wait()
        raise ZeroDivisionError

    caller = asyncio.create_task(tasks.finish(work()))
    await asyncio.sleep(0)
    await cancel_often(caller)
    go.set()
    await tasks.wait(WAIT)
    await asyncio.sleep(0)

    assert "a background task failed" in caplog.text
