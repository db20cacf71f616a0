"""A spare kernel, forked when the gateway starts and while it is idle, so that sessions and resets need not wait.

It gets its token only when it is used (`ipybox.guest.template`). Before, the gateway does not list it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

logger = logging.getLogger(__name__)

#: Seconds without a start of a kernel or a message from or to one, after which the gateway counts as idle.
QUIET = 0.25


class Spare:
    """Keeps one kernel ready (a `GuestKernelManager`), and replaces it when the gateway is idle."""

    def __init__(self, make: Callable[[], Awaitable[Any]], discard: Callable[[Any], Awaitable[object]]):
        self._make = make
        self._discard = discard
        self._making: asyncio.Task[Any] | None = None
        self._discarding: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None
        #: When the gateway was last active, in seconds of the loop.
        self._active = 0.0

    def note_activity(self) -> None:
        """Postpones the start of a spare kernel, which must not delay others."""
        loop = asyncio.get_running_loop()
        self._active = loop.time()
        if self._making is None and self._timer is None:
            self._timer = loop.call_later(QUIET, self._start_if_quiet)

    async def take(self) -> Any:
        """Returns the spare kernel, or None without one. An outdated kernel is discarded."""
        making, self._making = self._making, None
        kernel = None if making is None else await making
        if kernel is None or kernel.is_current:
            return kernel
        task = asyncio.ensure_future(self._discard(kernel))
        self._discarding.add(task)
        task.add_done_callback(self._discarding.discard)
        return None

    def start(self) -> None:
        """Starts to make a spare kernel, unless there is one."""
        if self._making is None:
            self._making = asyncio.create_task(self._made())

    def _start_if_quiet(self) -> None:
        loop, self._timer = asyncio.get_running_loop(), None
        if (quiet_at := self._active + QUIET) <= loop.time():
            self.start()
        else:
            self._timer = loop.call_at(quiet_at, self._start_if_quiet)

    async def _made(self) -> Any:
        try:
            return await self._make()
        except Exception as error:  # whatever it is: without it, each kernel is started when it is needed
            logger.warning("no spare kernel is available: %s", error)
            return None
