"""What waits for a consumer that may be slow."""

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Backlog(Generic[T]):
    """A queue that blocks no producer and is bounded all the same: what is too much is left out, and counted.

    Args:
        limit: What the items that wait may have together, in the unit of their sizes.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._items: asyncio.Queue[tuple[T, int]] = asyncio.Queue()
        self._size = 0
        self._left_out = 0

    def offer(self, item: T, size: int, *, essential: bool = False) -> None:
        """Adds an item, or leaves it out if it would exceed the limit; essential ones have as much room again."""
        if self._size and self._size + size > self._limit * (2 if essential else 1):
            self._left_out += size
        else:
            self._size += size
            self._items.put_nowait((item, size))

    def put(self, item: T) -> None:
        """Adds an item that takes no room."""
        self._items.put_nowait((item, 0))

    async def get(self) -> T:
        """Returns the next item, which is waited for."""
        item, size = await self._items.get()
        self._size -= size
        return item

    def take_left_out(self) -> int:
        """Returns the size of what was left out since this was last asked."""
        left_out, self._left_out = self._left_out, 0
        return left_out
