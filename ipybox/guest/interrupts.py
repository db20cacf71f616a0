"""The effect of an interrupt (SIGINT) on a cell that awaits.

As with `asyncio.run`, waiting code is cancelled. Running code gets a KeyboardInterrupt where it is, as in a cell
without `await`: ipykernel would cancel it at its next `await`, which may never come.
https://github.com/ipython/ipykernel/issues/1239
"""

import asyncio
import inspect
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

#: Flags of the code of coroutines, also of those that are generators, such as `asyncio.sleep(0)`.
COROUTINES = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


@contextmanager
def interrupts_end(cell: asyncio.Future[Any]) -> Generator[None]:
    """Lets an interrupt end a cell, and the task that keeps it waiting."""
    loop, current_task = cell.get_loop(), asyncio.current_task  # code may replace it

    def interrupt(_signal: int, frame: FrameType | None) -> None:
        running = current_task(loop)
        # asyncio itself must not be interrupted anywhere: a task would be neither done nor have a next step.
        raises = running is not None and in_coroutine(frame)
        if not raises or running is not cell:
            cell.cancel()
            loop.call_soon_threadsafe(do_nothing)  # wakes the loop, which runs in this thread
        if raises:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def in_coroutine(frame: FrameType | None) -> bool:
    """Returns whether a frame belongs to code of a task, and not to asyncio itself."""
    while frame is not None:
        if frame.f_code.co_flags & COROUTINES:
            return True
        frame = frame.f_back
    return False


def do_nothing(*_: object) -> None:
    """Does nothing; an event loop calls it when it is woken, and Python for a signal that only interrupts a call."""
