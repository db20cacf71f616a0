"""Threads that do not keep the program from exiting."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


def start_daemon_thread(function: Callable[[], object], name: str) -> threading.Thread:
    """Starts a thread, and returns it; raises an OSError at a system or user limit on threads."""
    thread = threading.Thread(target=function, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as exc:
        raise OSError(f"{exc}: a system or user limit on threads has been reached") from exc
    return thread


async def in_daemon_thread(function: Callable[[], T], name: str) -> T:
    """Returns the result of a function in a thread of its own, with the caller's context variables.

    Unlike `asyncio.to_thread`, it doesn't delay the exit of Python. If the caller is cancelled, the function runs on.
    """
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
    outcome.set_running_or_notify_cancel()  # a cancelled caller can't cancel it
    context = copy_context()

    def run() -> None:
        try:
            outcome.set_result(context.run(function))
        except StopIteration:  # futures can't raise it, as coroutines can't (PEP 479)
            outcome.set_exception(RuntimeError("the function raised StopIteration"))
        except BaseException as exc:
            outcome.set_exception(exc)

    start_daemon_thread(run, name)
    return await asyncio.wrap_future(outcome)
