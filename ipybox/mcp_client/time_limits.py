"""Time limits of a connection, which pause while ipybox waits for a person instead of the server."""

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio


@dataclass(frozen=True)
class TimeLimits:
    """The limits of one connection."""

    #: Has the deadline at which the connection must be established.
    scope: anyio.CancelScope
    _others: set[anyio.CancelScope] = field(default_factory=set[anyio.CancelScope])

    @contextmanager
    def limit(self, seconds: float) -> Generator[None]:
        """A context that raises TimeoutError when it takes too long, not counting the time in `paused`."""
        with anyio.fail_after(seconds) as limit:
            self._others.add(limit)
            try:
                yield
            finally:
                self._others.discard(limit)

    @contextmanager
    def paused(self) -> Generator[None]:
        """A context that pauses the time limits while ipybox waits for a person."""
        began = anyio.current_time()
        stopped = {limit: limit.deadline for limit in (self.scope, *self._others)}
        for limit in stopped:
            limit.deadline = math.inf
        try:
            yield
        finally:
            for limit, deadline in stopped.items():
                limit.deadline = deadline + anyio.current_time() - began
