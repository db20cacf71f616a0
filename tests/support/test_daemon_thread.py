import asyncio
import threading
from contextvars import ContextVar

import pytest

from ipybox.support.tasks import in_daemon_thread
from tests.servers import WAIT

VARIABLE: ContextVar[str] = ContextVar("VARIABLE")


async def test_a_function_runs_in_a_daemon_thread_with_the_context_of_its_caller():
    VARIABLE.set("of the caller")

    def describe() -> tuple[str, bool, str]:
        thread = threading.current_thread()
        return thread.name, thread.daemon, VARIABLE.get()

    assert await in_daemon_thread(describe, "a name") == ("a name", True, "of the caller")


@pytest.mark.parametrize(
    ("error", "raised"), [(LookupError, LookupError), (SystemExit, SystemExit), (StopIteration, RuntimeError)]
)
async def test_an_error_of_the_function_is_raised(error: type[BaseException], raised: type[BaseException]):
    def fail() -> None:
        raise error

    with pytest.raises(raised):
        async with asyncio.timeout(WAIT):
            await in_daemon_thread(fail, "fails")


async def test_a_cancelled_caller_does_not_wait():
    started, released = threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        released.wait(WAIT)

    waiting = asyncio.create_task(in_daemon_thread(block, "blocks"))
    assert await asyncio.to_thread(started.wait, WAIT)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not released.is_set()
    released.set()
    for thread in threading.enumerate():
        if thread.name == "blocks":
            thread.join(WAIT)
