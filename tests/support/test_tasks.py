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

    caller = asyncio.create_task(tasks.undo(work()))
    await asyncio.sleep(0)
    await cancel_often(caller)
    assert caller.cancelled()
    assert events == ["begins"]

    go.set()
    await tasks.wait(WAIT)
    assert events == ["begins", "ends"]


@pytest.mark.parametrize("how", ["finish", "undo"])
async def test_results_and_errors_come_back(how: str, caplog: pytest.LogCaptureFixture):
    tasks = TaskSet()

    async def work(divisor: int) -> float:
        return 1 / divisor

    assert await getattr(tasks, how)(work(1)) == 1
    with pytest.raises(ZeroDivisionError):
        await getattr(tasks, how)(work(0))
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
