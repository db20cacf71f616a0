"""A spare kernel, forked when the gateway starts and while it is idle, so that sessions and resets don't wait.

It receives its token only when a session uses it (`ipybox.guest.template`). Until then, the gateway does not list it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

logger = logging.getLogger(__name__)

#: Seconds without a kernel start or a message to or from a kernel, after which the gateway counts as idle.
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

    def record_activity(self) -> None:
        """Postpones starting a spare kernel, which must not delay other kernels."""
        loop = asyncio.get_running_loop()
        self._active = loop.time()
        if self._making is None and self._timer is None:
            self._timer = loop.call_later(QUIET, self._start_if_quiet)

    async def claim(self) -> Any:
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
        """Begins starting a spare kernel, unless there is one."""
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
        except Exception as error:  # whatever it is: without a spare, kernels are started on demand
            logger.warning("no spare kernel is available: %s", error)
            return None
