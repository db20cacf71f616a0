import asyncio

from ipybox.backlog import Backlog


async def test_items_come_in_order_and_are_waited_for():
    backlog = Backlog[str](10)
    waiting = asyncio.create_task(backlog.get())
    await asyncio.sleep(0)
    backlog.offer("a", 1)
    backlog.put("b")

    assert [await waiting, await backlog.get()] == ["a", "b"]
    assert backlog.take_left_out() == 0


async def test_what_is_too_much_is_left_out_and_counted_until_there_is_room_again():
    backlog = Backlog[str](10)
    for item in ("a" * 6, "b" * 5, "c" * 4, "d"):
        backlog.offer(item, len(item))

    assert backlog.take_left_out() == 6  # of b and d
    assert backlog.take_left_out() == 0
    assert [await backlog.get(), await backlog.get()] == ["aaaaaa", "cccc"]
    backlog.offer("e", 1)
    assert await backlog.get() == "e"


async def test_one_item_has_room_however_large_it_is():
    backlog = Backlog[str](10)
    backlog.offer("large", 11)

    assert await backlog.get() == "large"


async def test_essential_items_have_as_much_room_again():
    backlog = Backlog[str](10)
    for item in ("a", "b", "c"):
        backlog.offer(item, 10, essential=True)
    backlog.put("end")

    assert backlog.take_left_out() == 10
    assert [await backlog.get() for _ in range(3)] == ["a", "b", "end"]
