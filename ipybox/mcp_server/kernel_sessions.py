"""The sessions of an MCP server: kernels by name, so that concurrent work does not interfere.

The default session always exists; others start at their first use, up to a limit. Cells of different sessions run
concurrently, cells of one session in order. Sessions have their own variables and MCP servers; they share the workspace
and the gateway process, and with it the sandbox (`CodeExecutor.sibling`). They only end on request: an agent would lose
state that it relies on.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from ipybox.code_exec.executor import CodeExecutor
from ipybox.errors import CodeExecutionError, IpyboxError
from ipybox.support.tasks import TaskSet

logger = logging.getLogger(__name__)

DEFAULT_SESSION = "default"

#: Default limit of sessions.
MAX_SESSIONS = 8

NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)


class KernelSessions:
    """Starts executors when they are needed, and owns them until `stop`.

    Args:
        new_executor: Creates the default session's executor. If that or its start fails, the next use tries again.
        limit: How many sessions can exist, the default one included.

    Raises:
        ValueError: If the limit allows no session.
    """

    def __init__(self, new_executor: Callable[[], CodeExecutor], limit: int):
        if limit < 1:
            raise ValueError(f"max_sessions={limit} is too low: the default session is one")
        self._new_executor = new_executor
        self._limit = limit
        self._default: CodeExecutor | None = None
        self._starts: dict[str, asyncio.Task[CodeExecutor]] = {}
        self._tasks = TaskSet()
        self._stopped = False

    @property
    def names(self) -> list[str]:
        """The names of the existing sessions, the default one first."""
        return [DEFAULT_SESSION, *(name for name in self._starts if name != DEFAULT_SESSION)]

    @property
    def running(self) -> list[str]:
        """The names of the sessions that run or start."""
        return list(self._starts)

    @property
    def started(self) -> list[CodeExecutor]:
        """The executors of the sessions that run, in the order of their starts."""
        done = (start for start in self._starts.values() if start.done() and not start.cancelled())
        return [start.result() for start in done if start.exception() is None]

    async def prepare(self) -> None:
        """Starts process and kernel of the default session in advance. If that fails, its start reports the error."""
        try:
            self._default = self._default or self._new_executor()
            await self._default.prepare()
        except (IpyboxError, OSError, ValueError) as exc:
            logger.debug("the default session can't be prepared: %s", exc)

    def start(self) -> None:
        """Starts the default session in the background, if it has not started."""
        if not self._stopped:
            self._ensure_start(DEFAULT_SESSION)

    @asynccontextmanager
    async def use(self, name: str) -> AsyncGenerator[CodeExecutor]:
        """Yields the executor of a session, and starts the session if needed.

        Raises:
            ValueError: If the name is invalid, or `max_sessions` is reached.
            CodeExecutionError: If the session ends during the use.
            IpyboxError, OSError: If it can't be started.
        """
        start = self._ensure_start(name)
        ended = f"the session {name!r} was reset while it was in use"
        if not start.done():
            # Unlike `await`, this does not cancel the start with the caller: others may be waiting for it.
            await asyncio.wait([start])
        if start.cancelled():
            raise CodeExecutionError(ended)
        executor = start.result()
        try:
            yield executor
        except RuntimeError as exc:
            if self._starts.get(name) is start:
                raise
            raise CodeExecutionError(ended) from exc

    async def reset(self, name: str) -> None:
        """Gives the default session a new kernel, or ends another session: its next use starts it again.

        Raises:
            ValueError: If there is no such session.
            IpyboxError, OSError: If the new kernel can't start.
        """
        if name == DEFAULT_SESSION:
            async with self.use(name) as executor:
                await executor.reset()
        elif name in self._starts:
            await self._tasks.finish(_end(self._starts.pop(name)))
        else:
            raise ValueError(f"no session named {name!r}; existing sessions: {', '.join(self.names)}")

    async def stop(self) -> None:
        """Ends all sessions concurrently, because a client may kill this process soon."""
        self._stopped = True
        starts, self._starts = self._starts, {}
        await asyncio.gather(*map(_end, starts.values()))
        if self._default is not None:  # it may have been prepared, but not started
            await self._default.stop()

    def _ensure_start(self, name: str) -> asyncio.Task[CodeExecutor]:
        start = self._starts.get(name)
        if start is None:
            self._check_new(name)
            start = self._starts[name] = asyncio.create_task(self._start(name))
            start.add_done_callback(lambda start: self._forget_failed(name, start))
        return start

    def _check_new(self, name: str) -> None:
        if self._stopped:
            raise CodeExecutionError("ipybox is stopping")
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid session name: use up to 64 letters, digits and any of _ . -")
        if name != DEFAULT_SESSION and len(names := self.names) >= self._limit:
            raise ValueError(
                f"max_sessions={self._limit} is reached: {', '.join(names)}. "
                "Use one of these sessions, or end one with reset and its name"
            )

    async def _start(self, name: str) -> CodeExecutor:
        if self._default is None:
            self._default = self._new_executor()
        executor = self._default if name == DEFAULT_SESSION else self._default.sibling(name)
        await executor.start()
        return executor

    def _forget_failed(self, name: str, start: asyncio.Task[CodeExecutor]) -> None:
        if start.cancelled() or (exc := start.exception()) is None:
            return
        logger.error("the session %s did not start: %s", name, exc)
        if self._starts.get(name) is start:
            del self._starts[name]


async def _end(start: asyncio.Task[CodeExecutor]) -> None:
    """Stops an executor, also while it is being started."""
    start.cancel()
    await asyncio.wait([start])
    if not start.cancelled() and start.exception() is None:
        await start.result().stop()
