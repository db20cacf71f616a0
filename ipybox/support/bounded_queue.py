"""A queue for output whose consumer may be slow."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class BoundedQueue(Generic[T]):
    """A queue that never blocks its producer: items beyond the limit on their total size are dropped and counted."""

    def __init__(self, limit: int):
        self._limit = limit
        self._items: asyncio.Queue[tuple[T | None, int]] = asyncio.Queue()
        self._size = 0
        self._dropped = 0

    def put_or_drop(self, item: T, size: int) -> None:
        """Adds an item, or drops it if it would exceed the limit; an empty queue accepts an item of any size."""
        if self._size and self._size + size > self._limit:
            self._dropped += size
        else:
            self._size += size
            self._items.put_nowait((item, size))

    def put(self, item: T) -> None:
        """Adds an item that does not count towards the limit."""
        self._items.put_nowait((item, 0))

    async def produced_by(self, work: Coroutine[Any, Any, None]) -> AsyncGenerator[T]:
        """Runs `work` and yields the items that it adds; raises its error. Leaving the iteration cancels `work`."""

        async def run() -> None:
            try:
                await work
            finally:
                self._items.put_nowait((None, 0))

        running = asyncio.create_task(run())
        try:
            while (entry := await self._items.get())[0] is not None:
                self._size -= entry[1]
                yield entry[0]
            await running
        finally:
            if running.cancel():
                await asyncio.wait([running])
            if not running.cancelled():
                running.exception()  # marks an error as retrieved, so that asyncio doesn't report it

    def pop_dropped(self) -> int:
        """Returns the size of the items that were dropped since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped
