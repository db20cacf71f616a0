import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest

from ipybox.support.bounded_queue import BoundedQueue


async def drained(queue: BoundedQueue[str], add: Callable[[], object]) -> list[str]:
    """Returns what is in a queue, after something was added."""

    async def work() -> None:
        add()

    return [item async for item in queue.produced_by(work())]


async def test_items_come_in_order_and_are_waited_for():
    queue = BoundedQueue[str](10)
    more = asyncio.Event()

    async def work() -> None:
        queue.put_or_drop("a", 1)
        await more.wait()
        queue.put("b")

    items: list[str] = []
    async with aclosing(queue.produced_by(work())) as produced:
        items.append(await anext(produced))
        more.set()
        items.append(await anext(produced))

    assert items == ["a", "b"]
    assert queue.pop_dropped() == 0


async def test_what_is_too_much_is_dropped_and_counted_until_there_is_room_again():
    queue = BoundedQueue[str](10)

    def add() -> None:
        for item in ("a" * 6, "b" * 5, "c" * 4, "d"):
            queue.put_or_drop(item, len(item))

    assert await drained(queue, add) == ["aaaaaa", "cccc"]
    assert queue.pop_dropped() == 6  # of b and d
    assert queue.pop_dropped() == 0
    assert await drained(queue, lambda: queue.put_or_drop("e", 1)) == ["e"]


async def test_one_item_has_room_however_large_it_is():
    queue = BoundedQueue[str](10)

    assert await drained(queue, lambda: queue.put_or_drop("large", 11)) == ["large"]


async def test_an_error_of_the_work_comes_after_its_items():
    queue = BoundedQueue[str](10)

    async def work() -> None:
        queue.put("a")
        raise ValueError("broken")

    produced = queue.produced_by(work())
    assert await anext(produced) == "a"
    with pytest.raises(ValueError, match="broken"):
        await anext(produced)


async def test_leaving_the_iteration_ends_the_work_first():
    queue = BoundedQueue[str](10)
    ended: list[str] = []

    async def work() -> None:
        queue.put("a")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("work")

    async with aclosing(queue.produced_by(work())) as produced:
        assert await anext(produced) == "a"
    ended.append("iteration")

    assert ended == ["work", "iteration"]
