"""Threads that do not keep the program from ending."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


def start_daemon_thread(function: Callable[[], object], name: str) -> threading.Thread:
    """Starts a thread, and returns it.

    Raises:
        OSError: If the system has no thread left, for which Python raises a RuntimeError, as for errors of the caller.
    """
    thread = threading.Thread(target=function, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as exc:
        raise OSError(f"{exc}: a system or user limit on threads has been reached") from exc
    return thread


async def in_daemon_thread(function: Callable[[], T], name: str) -> T:
    """Returns the result of a function in a thread of its own, with the caller's context variables.

    `asyncio.to_thread` does not suffice, because Python waits for its threads at exit. If the caller is cancelled, the
    function runs on, and its result is dropped.

    Args:
        function: The function.
        name: The name of the thread.

    Raises:
        OSError: If the thread can't be started.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()
    context = copy_context()

    def finish(set_outcome: Callable[[Any], None], value: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: outcome.done() or set_outcome(value))

    def run() -> None:
        try:
            result = context.run(function)
        except StopIteration:  # no future can pass it on, as no coroutine can (PEP 479)
            finish(outcome.set_exception, RuntimeError("the function raised StopIteration"))
        except BaseException as exc:
            finish(outcome.set_exception, exc)
        else:
            finish(outcome.set_result, result)

    start_daemon_thread(run, name)
    return await outcome
