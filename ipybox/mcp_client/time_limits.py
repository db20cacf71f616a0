"""Time limits of a connection, which pause while ipybox waits for a person instead of the server."""

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio


class TimeLimits:
    """The limits of one connection, which must be established by `deadline` on anyio's clock."""

    def __init__(self, deadline: float):
        #: Cancelled at the deadline.
        self.scope = anyio.CancelScope(deadline=deadline)
        self._limits = {self.scope}

    @contextmanager
    def limit(self, seconds: float) -> Generator[None]:
        """A context that raises TimeoutError when it takes too long, not counting the time in `paused`."""
        with anyio.fail_after(seconds) as limit:
            self._limits.add(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)

    @contextmanager
    def paused(self) -> Generator[None]:
        """A context that pauses the time limits while ipybox waits for a person."""
        began = anyio.current_time()
        stopped = {limit: limit.deadline for limit in self._limits}
        for limit in stopped:
            limit.deadline = math.inf
        try:
            yield
        finally:
            for limit, deadline in stopped.items():
                limit.deadline = deadline + anyio.current_time() - began
