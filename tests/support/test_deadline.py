import asyncio
import socket
import time
from collections.abc import Callable

import pytest

from ipybox.support.deadline import Deadline, DeadlineLock
from ipybox.support.errors import ExecutionCancelledError
from tests.servers import WAIT


async def test_a_deadline_covers_all_waits_together():
    deadline = Deadline(0.1)

    async def wait_often() -> None:
        while True:
            async with deadline.limit():
                await asyncio.sleep(0.03)  # each wait for itself is within the limit

    with pytest.raises(TimeoutError):
        await wait_often()


async def test_a_deadline_that_is_over_ends_the_next_wait_at_once():
    deadline = Deadline(1e-9)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(WAIT), deadline.limit():
            await asyncio.Event().wait()


async def test_a_paused_deadline_goes_on_with_the_time_that_was_left():
    loop = asyncio.get_running_loop()
    deadline, started = Deadline(0.2), loop.time()

    async def wait() -> None:
        async with asyncio.timeout(WAIT), deadline.limit():
            with deadline.paused(), deadline.paused():
                await asyncio.sleep(0.4)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await wait()
    assert loop.time() - started >= 0.6


async def test_a_paused_deadline_can_be_expired_before_and_during_a_wait():
    for during in (True, False):
        deadline = Deadline(WAIT)
        with deadline.paused():
            if during:
                asyncio.get_running_loop().call_soon(deadline.cancel)
            else:
                deadline.cancel()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(WAIT), deadline.limit():
                    await asyncio.Event().wait()
            assert deadline.cancelled
        assert isinstance(deadline.not_started("it waits"), ExecutionCancelledError)


async def test_no_seconds_mean_no_limit():
    async with asyncio.timeout(WAIT):
        async with Deadline(None).limit():
            await asyncio.sleep(0.05)


async def test_what_arrived_while_the_event_loop_was_held_up_gets_its_turn():
    """Over a socket, as one look at it is not enough for a protocol to hand over what has come."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    deadline = Deadline(0.05)
    with theirs:
        asyncio.get_running_loop().call_soon(hold_up, 0.5, lambda: theirs.send(b"answer\n"))
        async with deadline.limit():
            assert await reader.readline() == b"answer\n"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(WAIT), deadline.limit():
                await reader.readline()
    writer.close()
    await writer.wait_closed()


def hold_up(seconds: float, then: Callable[[], object]) -> None:
    time.sleep(seconds)
    then()


@pytest.mark.parametrize("seconds", [None, WAIT])
async def test_a_deadline_can_be_cut_short_for_a_reason(seconds: float | None):
    deadline = Deadline(seconds)
    asyncio.get_running_loop().call_soon(deadline.expire, "enough")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2 * WAIT), deadline.limit():
            await asyncio.Event().wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2 * WAIT), deadline.limit():
            await asyncio.Event().wait()

    assert deadline.reason == "enough"


@pytest.mark.parametrize("seconds", [None, 1e-9])
async def test_a_deadline_can_be_cut_short_again_while_its_wait_is_ending(seconds: float | None):
    deadline = Deadline(seconds)
    loop = asyncio.get_running_loop()
    fault: list[object] = []
    loop.set_exception_handler(lambda _, context: fault.append(context))

    def expire_twice() -> None:
        deadline.expire("enough")
        loop.call_soon(loop.call_soon, deadline.expire, "more")  # after the wait was cancelled, before it has ended

    async def wait_and_end_slowly() -> None:
        async with asyncio.timeout(WAIT), deadline.limit():
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)

    loop.call_soon(expire_twice)
    with pytest.raises(TimeoutError):
        await wait_and_end_slowly()

    assert deadline.reason == "enough"
    assert fault == []


async def test_a_deadline_is_kept_and_seconds_become_one():
    deadline = Deadline(5)
    assert Deadline.of(deadline) is deadline
    assert Deadline.of(7).seconds == 7
    assert Deadline.of(None).seconds is None


async def test_turns_are_taken_one_at_a_time_and_in_order():
    turn = DeadlineLock()
    events: list[str] = []

    async def execute(name: str) -> None:
        async with turn.hold(Deadline(None)):
            events.append(f"{name} begins")
            await asyncio.sleep(0)
            events.append(f"{name} ends")

    await asyncio.gather(*(execute(name) for name in "abc"))

    assert events == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]


@pytest.mark.parametrize("seconds", [float("nan"), -1, 0])
async def test_a_time_that_is_none_upsets_no_timer(seconds: float):
    with pytest.raises(
        ValueError, match=r"^timeout=(nan|-1|0) must be a positive number of seconds, or None for no limit$"
    ):
        Deadline(seconds)


async def test_a_time_that_is_no_number_is_an_error_that_says_what_is_expected():
    with pytest.raises(TypeError, match=r"^timeout='5' must be a number of seconds, or None for no limit$"):
        Deadline("5")  # pyright: ignore[reportArgumentType]


async def test_a_turn_that_does_not_come_in_time_fails_and_the_next_one_comes():
    turn = DeadlineLock()
    async with turn.hold(Deadline(None)):
        with pytest.raises(TimeoutError, match=r"did not start within 0\.05 s: an earlier execution is still running"):
            async with turn.hold(Deadline(0.05)):
                pytest.fail("two turns at once")
    async with asyncio.timeout(WAIT), turn.hold(Deadline(1)):
        pass


async def test_a_turn_is_given_back_after_an_exception_and_after_a_cancellation():
    turn = DeadlineLock()
    with pytest.raises(ZeroDivisionError):
        async with turn.hold(Deadline(None)):
            raise ZeroDivisionError
    entered = asyncio.Event()

    async def hold() -> None:
        async with turn.hold(Deadline(None)):
            entered.set()
            await asyncio.Event().wait()

    holder = asyncio.create_task(hold())
    await entered.wait()
    waiter = asyncio.create_task(hold())
    await asyncio.sleep(0)
    for task in (waiter, holder):
        task.cancel()
    await asyncio.wait([holder, waiter])

    async with asyncio.timeout(WAIT), turn.hold(Deadline(1)):
        pass
