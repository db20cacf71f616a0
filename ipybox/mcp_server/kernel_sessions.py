"""The sessions of an MCP server: kernels by name, so that concurrent work does not interfere.

The default session always exists; others start at their first use, up to a limit. Cells of different sessions run
concurrently, cells of one session in order. Sessions have their own variables and MCP servers; they share the workspace
and, without an engine, the gateway process and its sandbox (`CodeExecutor.sibling`). They end on request or, with
`idle_timeout`, after being idle; their next use then reports that state was lost.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from ipybox.code_exec.executor import CodeExecutor
from ipybox.support.deadline import check_seconds
from ipybox.support.errors import CodeExecutionError, IpyboxError
from ipybox.support.tasks import TaskSet

logger = logging.getLogger(__name__)

DEFAULT_SESSION = "default"

#: Default limit of sessions, and the number of expired ones that are remembered.
MAX_SESSIONS = 8
MAX_EXPIRED = 1000

NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)

#: Seconds that a stopping server waits for sessions to end.
END_TIMEOUT = 30.0

_STOPPING = "ipybox is shutting down"

#: A session's state; `queued` means that its start waits for an engine's node.
State = Literal["running", "starting", "queued"]


class KernelSessions:
    """Starts executors when they are needed, and owns them until `stop`.

    `new_executor` creates the default session's executor. If that or its start fails, the next use tries again. The
    limit includes the default session. Sessions stop after `idle_timeout` seconds without use.
    """

    def __init__(self, new_executor: Callable[[], CodeExecutor], limit: int, idle_timeout: float | None = None):
        if limit < 1:
            raise ValueError(f"max_sessions={limit} is too low: the default session counts as one")
        if idle_timeout is not None:
            check_seconds("session_idle_timeout", idle_timeout, ", or None for no limit")
        self._new_executor = new_executor
        self.limit = limit
        self._idle_timeout = idle_timeout
        self._default: CodeExecutor | None = None
        self._sessions: dict[str, _Session] = {}
        #: The executors of sessions that were stopped for being idle, oldest first.
        self._expired: dict[str, CodeExecutor] = {}
        self._tasks = TaskSet()
        self._stopped = False

    @property
    def names(self) -> list[str]:
        """The names of the existing sessions, the default one first."""
        return [*dict.fromkeys((DEFAULT_SESSION, *self._sessions))]

    @property
    def running(self) -> list[str]:
        """The names of the sessions that are running or starting."""
        return list(self._sessions)

    def count(self, state: State) -> int:
        """Returns how many sessions are in a state."""
        return sum(session.state == state for session in self._sessions.values())

    @property
    def nodes(self) -> Counter[str | None]:
        """How many kernels run on each node; None is this machine."""
        return Counter(executor.status.node for executor in self.started)

    def waits_for(self, name: str) -> str:
        """Returns what a session is waiting for; see `ExecutorStatus.waits_for`."""
        session = self._sessions.get(name)
        return "" if session is None or session.executor is None else session.executor.status.waits_for

    @property
    def started(self) -> list[CodeExecutor]:
        """The executors of running sessions, in the order of their starts."""
        sessions = self._sessions.values()
        return [each.executor for each in sessions if each.executor is not None and each.state == "running"]

    async def prepare(self) -> None:
        """Starts the default session's process and kernel in advance. If that fails, its start reports the error."""
        try:
            self._default = self._default or self._new_executor()
            await self._default.prepare()
        except (IpyboxError, OSError, ValueError) as exc:
            logger.debug("can't prepare the default session: %s", exc)

    def start(self) -> None:
        """Starts the default session in the background, unless it has started or expired."""
        if not (self._stopped or DEFAULT_SESSION in self._sessions or DEFAULT_SESSION in self._expired):
            self._start(DEFAULT_SESSION)

    @asynccontextmanager
    async def use(self, name: str) -> AsyncGenerator[CodeExecutor]:
        """Yields the executor of a session, and starts the session if needed.

        A session leaves an engine's queue when all callers that wait for it are cancelled.

        Raises a ValueError if the name is invalid or `max_sessions` is reached, a CodeExecutionError if the session
        ends while in use, and an IpyboxError or OSError if it can't be started.
        """
        session = self._sessions.get(name) or self._start(name)
        session.users += 1
        try:
            if not session.start.done():
                # Unlike `await`, this does not cancel the start with the caller: others may wait for it.
                await asyncio.wait([session.start])
            if session.start.cancelled():
                raise CodeExecutionError(self._end_reason(name))
            executor = session.start.result()
            try:
                yield executor
            except RuntimeError as exc:
                if self._sessions.get(name) is session:
                    raise
                raise CodeExecutionError(self._end_reason(name)) from exc
        finally:
            session.users -= 1
            if self._idle_timeout is not None or not session.start.done():
                self._release(name, session)

    async def reset(self, name: str) -> None:
        """Gives the default session a new kernel, or ends another session; its next use restarts it."""
        if name == DEFAULT_SESSION:
            async with self.use(name) as executor:
                await executor.reset()
            logger.info("session %s has a new kernel", name)
        elif name in self._sessions:
            logger.info("session %s is ending", name)
            await self._tasks.finish(self._sessions.pop(name).end())
        elif self._expired.pop(name, None) is None:
            raise ValueError(f"no session named {name!r}; existing sessions: {', '.join(self.names)}")

    async def stop(self) -> None:
        """Ends all sessions, concurrently, because a client may kill this process soon."""
        self._stopped = True
        sessions, self._sessions = self._sessions, {}
        for name in sessions:
            logger.info("session %s ended with the server", name)
        await asyncio.gather(self._tasks.wait(END_TIMEOUT), *(session.end() for session in sessions.values()))
        if self._default is not None:  # it may have been prepared, but not started
            await self._default.stop()

    def _end_reason(self, name: str) -> str:
        return _STOPPING if self._stopped else f"session {name!r} was reset while in use"

    def _start(self, name: str) -> "_Session":
        if self._stopped:
            raise CodeExecutionError(_STOPPING)
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid session name: use up to 64 letters, digits and any of _ . -")
        if name != DEFAULT_SESSION and len(self.names) >= self.limit:
            raise ValueError(
                f"the limit of {self.limit} sessions (max_sessions) is reached: {', '.join(self.names)}. "
                "Use one of these sessions, or end one by calling reset with its name"
            )
        session = self._sessions[name] = _Session()
        session.start = asyncio.create_task(self._started(name, session))
        session.start.add_done_callback(partial(self._settle, name, session))
        return session

    async def _started(self, name: str, session: "_Session") -> CodeExecutor:
        default = self._default = self._default or self._new_executor()
        executor = default if name == DEFAULT_SESSION else self._expired.get(name) or default.sibling(name)
        session.executor = executor
        await executor.start()
        return executor

    def _settle(self, name: str, session: "_Session", start: "asyncio.Task[CodeExecutor]") -> None:
        """Keeps a session that started, and removes one that failed to start."""
        if start.cancelled():
            return
        if (exc := start.exception()) is None:
            logger.info("session %s started", name)
            self._expired.pop(name, None)
            self._release(name, session)
        else:
            logger.error("session %s did not start: %s", name, exc)
            if self._sessions.get(name) is session:
                del self._sessions[name]

    def _release(self, name: str, session: "_Session") -> None:
        """Removes an unused session from the queue, or schedules its expiry."""
        if session.users or self._sessions.get(name) is not session:
            return
        executor = session.executor
        if not session.start.done() and executor is not None and executor.status.node is not None:
            logger.info("session %s left the engine's queue: its request was cancelled", name)
            del self._sessions[name]
            self._tasks.start(session.end())
        elif self._idle_timeout is not None and executor is not None and session.start.done():
            if session.expiry is not None:
                session.expiry.cancel()
            expire = partial(self._expire, name, session, executor, self._idle_timeout)
            session.expiry = asyncio.get_running_loop().call_later(self._idle_timeout, expire)

    def _expire(self, name: str, session: "_Session", executor: CodeExecutor, idle: float) -> None:
        """Stops an idle session."""
        if session.users or self._sessions.get(name) is not session:
            return
        logger.info("stopping session %s: it was idle for %g s", name, idle)
        del self._sessions[name]
        self._expired[name] = executor
        if len(self._expired) > MAX_EXPIRED:
            del self._expired[next(iter(self._expired))]
        self._tasks.start(executor.expire(idle))


@dataclass(eq=False)
class _Session:
    #: None until it is created.
    executor: CodeExecutor | None = None
    #: The number of callers that use it or wait for its start.
    users: int = 0
    expiry: asyncio.TimerHandle | None = None
    start: "asyncio.Task[CodeExecutor]" = field(init=False)

    @property
    def state(self) -> State:
        if self.start.done():
            return "running"
        return "queued" if self.executor is not None and self.executor.status.waits_for else "starting"

    async def end(self) -> None:
        """Stops the executor, even during its start."""
        if self.expiry is not None:
            self.expiry.cancel()
        self.start.cancel()
        await asyncio.wait([self.start])
        if not self.start.cancelled() and self.start.exception() is None:
            await self.start.result().stop()
