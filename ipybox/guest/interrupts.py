"""Interrupts of cells (SIGINT).

Python runs signal handlers between its own instructions. A signal that arrives just before a system call does not end
that call, so a cell would keep sleeping. Therefore the gateway interrupts the main thread's calls a few more times
(`ipybox.guest.provisioner`). In a finalizer or a weak reference's callback, Python only prints a KeyboardInterrupt, so
`KernelClient` sends another one.
https://docs.python.org/3/library/signal.html#execution-of-python-signal-handlers
"""

import asyncio
import inspect
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ipybox.guest.process import do_nothing

#: A signal that is ignored by default and that nothing else sends. Its handler does nothing, and Python resumes the
#: system calls that it interrupts.
POKE = signal.SIGURG

#: Code flags of coroutines, including generator-based ones such as `asyncio.sleep(0)`.
COROUTINES = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


@contextmanager
def interrupts_end(cell: asyncio.Future[Any]) -> Generator[None]:
    """Makes an interrupt end a cell, and the task that keeps it waiting.

    In a cell that awaits, waiting code is cancelled, as with `asyncio.run`. Running code gets a KeyboardInterrupt right
    away; ipykernel would cancel it at its next `await`, which may never come.
    https://github.com/ipython/ipykernel/issues/1239
    """
    loop, current_task = cell.get_loop(), asyncio.current_task  # code may replace it

    def interrupt(_signal: int, frame: FrameType | None) -> None:
        running = current_task(loop)
        # Never interrupt asyncio itself: that could leave a task neither done nor scheduled.
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
    """Returns whether a frame runs a task's code, rather than asyncio itself."""
    while frame is not None:
        if frame.f_code.co_flags & COROUTINES:
            return True
        frame = frame.f_back
    return False
