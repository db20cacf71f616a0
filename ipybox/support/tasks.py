"""Background tasks with an owner that cancels them when it stops, and threads that don't delay the program's exit."""

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from ipybox.support.errors import IpyboxError

logger = logging.getLogger(__name__)

T = TypeVar("T")


class TaskSet:
    """The background tasks of one owner. Failures are logged.

    A caller may be cancelled more than once; anyio does so at each wait. Work that must not stop halfway runs in its
    own task: see `finish` and `undo`.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task, and returns it."""
        task = self._own(work)
        task.add_done_callback(_log_failure)
        return task

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits work that runs to its end even if the caller is cancelled."""
        task = self._own(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                task.add_done_callback(_log_failure)
            raise

    async def undo(
        self, work: Coroutine[Any, Any, T], revert: Callable[[T], Coroutine[Any, Any, object]], *, cancel: bool = True
    ) -> T:
        """Awaits work whose effects are undone if the caller is cancelled.

        The work is then cancelled, but only once, so that it can undo its effects completely. If it still completes, or
        `cancel` is false, `revert` receives its result. Starting a process must not be cancelled: asyncio would lose
        the process and its pipes while connecting to them (seen in Python 3.11.2).
        """
        task = self._own(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if cancel:
                task.cancel()
            await self.finish(_undone(task, revert))
            raise

    async def cancel(self) -> None:
        """Cancels all tasks and waits until they have ended."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:  # waiting for nothing would still take a turn of the event loop
            await asyncio.gather(*tasks, return_exceptions=True)

    async def wait(self, timeout: float) -> None:
        """Waits until all tasks have ended, at most `timeout` seconds."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=timeout)

    def _own(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def until_one_ends(*works: Awaitable[object]) -> None:
    """Runs works until the first one ends, and cancels the others; raises its error."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Detached(Generic[T]):
    """Work that runs on while nothing waits for it. Its failure is raised by whoever waits for it, or dropped."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.task = asyncio.create_task(work)
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def done(self) -> bool:
        """Whether the work has ended."""
        return self.task.done()

    async def ended(self, timeout: float | None = None) -> bool:
        """Waits until the work has ended, at most `timeout` seconds; returns whether it has."""
        await asyncio.wait([self.task], timeout=timeout)
        return self.task.done()


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


async def _undone(task: asyncio.Task[T], revert: Callable[[T], Coroutine[Any, Any, object]]) -> None:
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        await revert(task.result())


def _log_failure(task: asyncio.Task[Any]) -> None:
    if task.cancelled() or (exc := task.exception()) is None:
        return
    if isinstance(exc, IpyboxError):  # its message says enough, such as that the request for a node was cancelled
        logger.warning("a background task failed: %s", exc)
    else:
        logger.error("a background task failed", exc_info=exc)
