"""Starts that fail or are cancelled: they end, undo what they did, and say why."""

import asyncio
import gc
import threading
from pathlib import Path

import pytest

from ipybox import CodeExecutor, Executor
from ipybox.errors import GatewayError
from tests.servers import WAIT

pytestmark = pytest.mark.kernel  # without the fixture `mode`: none of this depends on the sandbox


@pytest.fixture(params=["ipybox-link", "ipybox-limits", "ipybox-accept", "asyncio_0"])
def missing_thread(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a thread that can't be started, as if the user had no processes left."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(request.param):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return request.param


async def test_a_start_without_one_of_its_threads_fails(
    missing_thread: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    executor = CodeExecutor(working_dir=tmp_path, memory_limit=1 << 30)
    async with asyncio.timeout(WAIT):
        with pytest.raises((OSError, RuntimeError, GatewayError), match="can't start new thread"):
            await executor.start()
    gc.collect()  # of tasks that failed without anybody to notice
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize("shortage", ["thread", "descriptor"])
def test_an_executor_without_an_event_loop_of_its_own_fails(
    shortage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread") if shortage == "thread" else OSError("too many open files")

    owner, name = (threading.Thread, "start") if shortage == "thread" else (asyncio, "new_event_loop")
    monkeypatch.setattr(owner, name, refuse)
    monkeypatch.setattr(asyncio.events, "new_event_loop", refuse)
    with pytest.raises(OSError, match=r"can't start new thread|too many open files"):
        Executor(working_dir=tmp_path).start()


async def test_a_start_that_is_cancelled_around_its_end_is_undone(tmp_path: Path):
    async with CodeExecutor(working_dir=tmp_path) as executor:
        turns = 0
        while True:
            sibling = executor.sibling()
            task = asyncio.create_task(sibling.start())
            while sibling.kernel_id is None:  # noqa: ASYNC110 - each turn of the event loop counts
                await asyncio.sleep(0)
            for _ in range(turns):
                await asyncio.sleep(0)
            if not task.cancel():
                break
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sibling.kernel_id is None
            assert executor.siblings == ()
            turns += 1
        assert turns > 0
        await sibling.stop()
