"""Time limits that cover several waits, and turns that are taken within them.

A limit counts what has arrived, not the clock alone: an application that blocks its event loop, or a process that was
stopped for a while, sees answers and expired timers at the same time.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

#: Seconds that a timer may be late before it tells that the event loop was held up.
LATE = 0.2

#: How often the event loop has its turn then before the time is over, and the seconds that it has each time.
TURNS = 5
TURN = 0.1


class Deadline:
    """A time limit that starts to run when it is made, in a running event loop.

    Args:
        seconds: The limit; None for none.
    """

    def __init__(self, seconds: float | None):
        self.seconds = seconds
        #: Why the time is over, if it was cut short.
        self.reason: str | None = None
        self._at = None if seconds is None else asyncio.get_running_loop().time() + seconds
        self._held_up = False
        self._turns = TURNS
        self._limit: asyncio.Timeout | None = None
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, timeout: "float | Deadline | None") -> "Deadline":
        """Returns `timeout` if it is a deadline already, or else a new one."""
        return timeout if isinstance(timeout, Deadline) else cls(timeout)

    @asynccontextmanager
    async def limit(self) -> AsyncGenerator[None]:
        """Raises TimeoutError at the deadline; one at a time.

        If the event loop was held up then, what has arrived meanwhile gets its turn first. It belongs around a wait,
        never around a `yield`: the consumer would get the cancellation.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as self._limit:
                if self._at is not None:
                    self._timer = loop.call_at(self._at, self._due)
                yield
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._limit = self._timer = None

    def expire(self, reason: str) -> None:
        """Cuts the time short: it is over now, for this reason, unless there was one before."""
        self.reason = self.reason or reason
        self._at = asyncio.get_running_loop().time()
        self._turns = 0
        self._end_wait()

    def not_begun(self, why: str) -> TimeoutError:
        """Returns the error of an execution that did not begin in time."""
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
        # A timeout that has expired can't be rescheduled, and its wait takes some turns of the loop to end.
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time())


class Turn:
    """Lets one execution run at a time; the others wait for their turn in order."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def take(self, deadline: Deadline) -> AsyncGenerator[None]:
        """Holds the turn.

        Raises:
            TimeoutError: If it does not come before the deadline.
        """
        try:
            async with deadline.limit():
                await self._lock.acquire()
        except TimeoutError:
            raise deadline.not_begun("an earlier one is still running") from None
        try:
            yield
        finally:
            self._lock.release()
