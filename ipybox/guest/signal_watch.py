"""Makes each signal take effect, above all an interrupt (SIGINT).

Python runs the handler of a signal between two of its own instructions. Two things would make a kernel miss one:

- A signal that comes just before a system call, or in another thread, does not end that call: a cell would sleep on.
  Therefore a thread interrupts the calls of the main thread again, a few times.
- In a finalizer or a callback of a weak reference, Python reports a KeyboardInterrupt and continues. The thread then
  sends the interrupt again.

In a cell that awaits, waiting code is cancelled, as with `asyncio.run`. Running code gets a KeyboardInterrupt where it
is: ipykernel would cancel it at its next `await`, which may never come.
https://github.com/ipython/ipykernel/issues/1239

https://docs.python.org/3/library/signal.html#execution-of-python-signal-handlers
"""

import asyncio
import inspect
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

#: A signal that programs ignore by default, so that nothing else sends it. Its handler does nothing, and Python
#: continues the system calls that it interrupts.
POKE = signal.SIGURG

#: Seconds after a signal when the main thread is poked. On a busy machine, it may stay just before its call for long.
POKES = (0.01, 0.03, 0.1, 0.3, 1.0)

#: Asks the thread for another interrupt, next to the numbers of signals that Python writes to the same socket.
AGAIN = 0

#: Bytes of the thread's stack, which counts towards the memory limit; by default, 8 MiB.
STACK_BYTES = 1 << 19

#: Flags of the code of coroutines, also of those that are generators, such as `asyncio.sleep(0)`.
COROUTINES = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


class SignalWatch:
    """Watches the signals of this process. The main thread must create it; each signal wakes its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._process = os.getpid()
        self._main = threading.get_ident()
        self._arrivals, self._notes = socket.socketpair()
        self._notes.setblocking(False)
        #: When to poke, in seconds of `time.monotonic()`.
        self._pokes: deque[float] = deque()
        #: Whether the hook runs, in which another interrupt would be lost, too.
        self._in_hook = False
        self._report = sys.unraisablehook

    def start(self) -> None:
        """Starts the thread, and watches from here on."""
        signal.signal(POKE, do_nothing)
        signal.set_wakeup_fd(self._notes.fileno(), warn_on_full_buffer=False)
        sys.unraisablehook = self._take_unraisable
        default = threading.stack_size(STACK_BYTES)
        threading.Thread(target=self._serve, name="ipybox-signals", daemon=True).start()
        threading.stack_size(default)

    def _take_unraisable(self, unraisable: Any, /) -> None:
        # A forked child shares the socket, but lacks the thread.
        ours = os.getpid() == self._process and threading.get_ident() == self._main
        if not (ours and issubclass(unraisable.exc_type, KeyboardInterrupt)):
            self._report(unraisable)
            return
        self._in_hook = True
        try:
            self._notes.send(bytes([AGAIN]))
        finally:
            self._in_hook = False  # Python runs no handler between this statement and the return

    def _serve(self) -> None:
        while True:
            self._arrivals.settimeout(max(0.001, self._pokes[0] - time.monotonic()) if self._pokes else None)
            try:
                self._take(set(self._arrivals.recv(4096)))
            except TimeoutError:
                self._pokes.popleft()
                signal.pthread_kill(self._main, POKE)

    def _take(self, arrived: set[int]) -> None:
        if AGAIN in arrived:
            while self._in_hook:
                time.sleep(0.001)
            signal.pthread_kill(self._main, signal.SIGINT)
        if arrived - {AGAIN, POKE}:
            with suppress(RuntimeError):  # the loop is closed: the kernel is ending
                self._loop.call_soon_threadsafe(do_nothing)
            self._pokes = deque(time.monotonic() + seconds for seconds in POKES)


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
