"""Time limits that cover several waits, and turns that are taken within them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress


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
        self._limit: asyncio.Timeout | None = None

    @classmethod
    def of(cls, timeout: "float | Deadline | None") -> "Deadline":
        """Returns `timeout` if it is a deadline already, or else a new one."""
        return timeout if isinstance(timeout, Deadline) else cls(timeout)

    def limit(self) -> asyncio.Timeout:
        """Returns a context that raises TimeoutError at the deadline; one at a time.

        It belongs around a wait, never around a `yield`: the consumer would get the cancellation.
        """
        self._limit = asyncio.timeout_at(self._at)
        return self._limit

    def expire(self, reason: str) -> None:
        """Cuts the time short: it is over now, for this reason, unless there was one before."""
        self.reason = self.reason or reason
        self._at = asyncio.get_running_loop().time()
        if self._limit is not None:
            with suppress(RuntimeError):  # nothing waits just now
                self._limit.reschedule(self._at)


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
            raise TimeoutError(
                f"the execution did not start within {deadline.seconds:g} s: an earlier one is still running"
            ) from None
        try:
            yield
        finally:
            self._lock.release()
