"""A spare kernel, which is forked when the gateway starts, and while it is idle, so that no session or reset waits.

It has an id and a process like each kernel, but gets its token and the key of its messages only when it is used
(`ipybox.guest.fork_protocol`). Before, the gateway does not list it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

logger = logging.getLogger(__name__)

#: Seconds without a start or an unanswered request, after which the gateway counts as idle.
QUIET = 0.25


class Kernel(Protocol):
    """A kernel that may have become useless."""

    @property
    def is_current(self) -> bool:
        """Whether it runs, and is as one that would be started now."""
        ...


K = TypeVar("K", bound=Kernel)


class Spare(Generic[K]):
    """Keeps one kernel ready, and makes another one after that was taken, when the gateway is idle.

    Args:
        make: Returns a new kernel that waits for its session.
        discard: Ends a kernel.
    """

    def __init__(self, make: Callable[[], Awaitable[K]], discard: Callable[[K], Awaitable[object]]):
        self._make = make
        self._discard = discard
        self._making: asyncio.Task[K | None] | None = None
        self._discarding: set[asyncio.Task[object]] = set()
        #: Starts and unanswered requests, which a spare kernel must not delay.
        self._ongoing = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Notes that something runs which must not be delayed."""
        self._ongoing += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Notes its end."""
        self._ongoing -= 1
        if self._ongoing == 0 and self._making is None:
            self._timer = asyncio.get_running_loop().call_later(QUIET, self.start)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Makes no spare kernel in this context."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    async def take(self) -> K | None:
        """Returns the spare kernel, or None without one. A kernel that is not as a new one would be is discarded."""
        making, self._making = self._making, None
        kernel = None if making is None else await making
        if kernel is None or kernel.is_current:
            return kernel
        task = asyncio.ensure_future(self._discard(kernel))
        self._discarding.add(task)
        task.add_done_callback(self._discarding.discard)
        return None

    def start(self) -> None:
        """Starts to make a spare kernel, unless one is wanted already."""
        self._timer = None
        if self._making is None:
            self._making = asyncio.create_task(self._made())

    async def _made(self) -> K | None:
        try:
            return await self._make()
        except Exception as error:  # whatever it is: without it, each kernel is started when it is needed
            logger.warning("no spare kernel is available: %s", error)
            return None
