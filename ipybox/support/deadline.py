"""Time limits that cover several waits, and a lock whose wait counts towards them. Executions use both.

If the event loop was blocked, or the process was stopped for a while, responses and expired timers show up at the same
time, and responses that have arrived must win.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from numbers import Real

from ipybox.support.errors import ExecutionCancelledError

#: Seconds that a timer may be late before the event loop counts as blocked.
LATE = 0.2

#: How many times a blocked event loop gets more time before the wait times out, and how many seconds each time.
TURNS = 5
TURN = 0.1

CANCELLED = "the execution was cancelled"


def check_seconds(name: str, seconds: object, unlimited: str = "") -> None:
    """Checks that an option is a positive number of seconds; errors name the option and append `unlimited`.

    0 means no limit in some libraries, and no time in others. NaN would break all timers of the event loop.
    """
    if not isinstance(seconds, Real):
        raise TypeError(f"{name}={seconds!r} must be a number of seconds{unlimited}")
    if not float(seconds) > 0:
        raise ValueError(f"{name}={seconds!r} must be a positive number of seconds{unlimited}")


class Deadline:
    """A time limit in seconds that starts when it is created, in a running event loop; None for no limit."""

    def __init__(self, seconds: float | None):
        if seconds is not None:
            check_seconds("timeout", seconds, ", or None for no limit")
        self.seconds = seconds
        #: Why the deadline expired early, if it did.
        self.reason: str | None = None
        self._at = None if seconds is None else asyncio.get_running_loop().time() + seconds
        self._held_up = False
        self._turns = TURNS
        #: How many contexts stop the clock, and when it stopped.
        self._pauses = 0
        self._stopped = 0.0
        self._limit: asyncio.Timeout | None = None
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, timeout: "float | Deadline | None") -> "Deadline":
        """Returns `timeout` if it is a deadline, or else a new deadline."""
        return timeout if isinstance(timeout, Deadline) else cls(timeout)

    @asynccontextmanager
    async def limit(self) -> AsyncGenerator[None]:
        """Raises TimeoutError at the deadline; only one context at a time.

        Use it around a wait, never around a `yield`: the consumer would get the cancellation.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as self._limit:
                if self._at is not None and (not self._pauses or self.reason):
                    self._timer = loop.call_at(self._at, self._due)
                yield
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._limit = self._timer = None

    def expire(self, reason: str) -> None:
        """Makes the deadline expire now, for this reason, unless it has already expired for another one."""
        self.reason = self.reason or reason
        self._at = asyncio.get_running_loop().time()
        self._turns = 0
        self._end_wait()

    def cancel(self) -> None:
        """Makes the deadline expire now, because the execution was cancelled."""
        self.expire(CANCELLED)

    @property
    def cancelled(self) -> bool:
        """Whether it expired because the execution was cancelled."""
        return self.reason is CANCELLED

    @contextmanager
    def paused(self) -> Generator[None]:
        """Stops the clock in the context; contexts may overlap. `expire` still has an effect."""
        clock = asyncio.get_running_loop().time
        if not self._pauses:
            self._stopped = clock()
            if self._timer is not None and not self.reason:
                self._timer.cancel()
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses and self._at is not None and not self.reason:
                self._at += clock() - self._stopped
                self._timer = asyncio.get_running_loop().call_at(self._at, self._due)

    def not_started(self, why: str) -> TimeoutError | ExecutionCancelledError:
        """Returns the error for an execution that did not start in time, or was cancelled before."""
        if self.cancelled:
            return ExecutionCancelledError(f"{CANCELLED}: {why}")
        reason = self.reason or f"the execution did not start within {self.seconds:g} s"
        return TimeoutError(f"{reason}: {why}")

    def _due(self) -> None:
        assert self._at is not None
        loop = asyncio.get_running_loop()
        self._held_up = self._held_up or loop.time() - self._at > LATE
        if self._held_up and self._turns > 0:
            self._turns -= 1
            self._timer = loop.call_later(TURN, self._due)
        else:
            self._end_wait()

    def _end_wait(self) -> None:
        # An expired timeout can't be rescheduled, and its wait takes some iterations of the loop to end.
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time())


class DeadlineLock(asyncio.Lock):
    """Lets one execution run at a time; others wait for their turn in order."""

    @asynccontextmanager
    async def hold(self, deadline: Deadline) -> AsyncGenerator[None]:
        """Holds the lock; raises a TimeoutError if it can't be acquired before the deadline."""
        try:
            async with deadline.limit():
                await self.acquire()
        except TimeoutError:
            raise deadline.not_started(
                "an earlier execution is still running (an abandoned stream runs until you close it)"
            ) from None
        try:
            yield
        finally:
            self.release()
