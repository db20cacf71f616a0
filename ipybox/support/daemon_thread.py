"""Threads that do not keep the program from ending."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


def start_daemon_thread(function: Callable[[], object], name: str) -> threading.Thread:
    """Starts a thread, and returns it; raises an OSError if the system has no thread left."""
    thread = threading.Thread(target=function, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as exc:
        raise OSError(f"{exc}: a system or user limit on threads has been reached") from exc
    return thread


async def in_daemon_thread(function: Callable[[], T], name: str) -> T:
    """Returns the result of a function in a thread of its own, with the caller's context variables.

    Python waits for the threads of `asyncio.to_thread` at exit. If the caller is cancelled, the function runs on.
    """
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
    outcome.set_running_or_notify_cancel()  # a cancelled caller can't cancel it
    context = copy_context()

    def run() -> None:
        try:
            outcome.set_result(context.run(function))
        except StopIteration:  # no future can pass it on, as no coroutine can (PEP 479)
            outcome.set_exception(RuntimeError("the function raised StopIteration"))
        except BaseException as exc:
            outcome.set_exception(exc)

    start_daemon_thread(run, name)
    return await asyncio.wrap_future(outcome)
