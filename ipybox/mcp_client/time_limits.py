"""Time limits of a connection that stop while a person, not the server, is waited for."""

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio


class TimeLimits:
    """The limits of one connection, which must be there at the deadline, on anyio's clock."""

    def __init__(self, deadline: float):
        #: Is cancelled at the deadline.
        self.scope = anyio.CancelScope(deadline=deadline)
        self._limits = {self.scope}

    @contextmanager
    def limit(self, seconds: float) -> Generator[None]:
        """A context that raises TimeoutError when it took too long, not counting what `paused` covers."""
        with anyio.fail_after(seconds) as limit:
            self._limits.add(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Stops the time limits while a person, not the server, is waited for."""
        began = anyio.current_time()
        stopped = {limit: limit.deadline for limit in self._limits}
        for limit in stopped:
            limit.deadline = math.inf
        try:
            yield
        finally:
            for limit, deadline in stopped.items():
                limit.deadline = deadline + anyio.current_time() - began
