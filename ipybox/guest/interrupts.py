"""What an interrupt (SIGINT) does to a cell that awaits.

As with `asyncio.run`, code that waits is cancelled. Code that runs gets a KeyboardInterrupt where it is, as in a cell
without `await`: ipykernel would cancel it when it awaits next, which may be never.
https://github.com/ipython/ipykernel/issues/1239
"""

import asyncio
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def interrupts_end(cell: asyncio.Future[Any]) -> Generator[None]:
    """Lets an interrupt end a cell, and the task that keeps it waiting."""
    loop, current_task = cell.get_loop(), asyncio.current_task  # code may replace it

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        running = current_task(loop)
        if running is not cell:
            cell.cancel()
            loop.call_soon_threadsafe(do_nothing)  # wakes the loop, which is in its own thread
        if running is not None:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def do_nothing() -> None:
    """Is called by an event loop that has something to do."""
