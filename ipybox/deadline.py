"""Time limits that cover several waits, and turns that are taken within them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Deadline:
    """A time limit that starts to run when it is made, in a running event loop.

    Args:
        seconds: The limit; None for none.
    """

    def __init__(self, seconds: float | None):
        self.seconds = seconds
        self._at = None if seconds is None else asyncio.get_running_loop().time() + seconds

    @classmethod
    def of(cls, timeout: "float | Deadline | None") -> "Deadline":
        """Returns `timeout` if it is a deadline already, or else a new one."""
        return timeout if isinstance(timeout, Deadline) else cls(timeout)

    def limit(self) -> asyncio.Timeout:
        """Returns a context that raises TimeoutError at the deadline.

        It belongs around a wait, never around a `yield`: the consumer would get the cancellation.
        """
        return asyncio.timeout_at(self._at)


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
