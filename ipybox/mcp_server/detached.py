"""Work that outlives its first request: cells, and registrations with a sign-in.

It may wait for a person. Until MCP 2025-11-25, a server sends forms while a request is in progress. Since 2026-07-28,
it ends the request with the form (`InputRequiredResult`), and the client repeats the request with the answer.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Generic, Self, TypeVar

from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult

from ipybox.support.tasks import Detached

Result = TypeVar("Result")
Form = TypeVar("Form", ElicitRequestFormParams, ElicitRequestURLParams)


class DetachedTask(Detached[Result], Generic[Form, Result]):
    """A task that keeps running between the requests of a client, and asks its user questions.

    The work receives this object. If the client never comes back, the work's own time limit must end the task, or
    `cancel`.
    """

    def __init__(self, work: "Callable[[Self], Coroutine[Any, Any, Result]]"):
        #: The form that was asked last.
        self.form: Form | None = None
        #: The answer to that form, and to the form that a request returned last.
        self._answer: asyncio.Future[ElicitResult] | None = None
        self._shown: asyncio.Future[ElicitResult] | None = None
        #: Set while a request waits, and when it may have to do something.
        self._open, self._woken = asyncio.Event(), asyncio.Event()
        #: Whether a form is about to be shown.
        self._preparing = False
        super().__init__(work(self))

    @property
    def failed(self) -> bool:
        """Whether the work has ended without a result."""
        return self.task.done() and (self.task.cancelled() or self.task.exception() is not None)

    @property
    def pending(self) -> bool:
        """Whether the user has not answered the form."""
        return self._answer is not None and not self._answer.done()

    def ask(self, form: Form) -> "asyncio.Future[ElicitResult]":
        """Has the user shown a form, one at a time; returns a future with the answer."""
        self.form, self._answer = form, asyncio.get_running_loop().create_future()
        self._woken.set()
        return self._answer

    @asynccontextmanager
    async def turn(self, client: asyncio.Lock, seconds: float | None = None) -> AsyncGenerator[None]:
        """Waits for a request that can show a form, at a time when the client shows no other form.

        Raises a TimeoutError if there is no request for `seconds`.
        """
        while True:
            async with asyncio.timeout(seconds):
                await self._open.wait()
            async with client:
                if self._open.is_set():
                    self._preparing = True
                    try:
                        yield
                    finally:
                        self._preparing = False
                        self._woken.set()
                    return

    async def next_form(self, seconds: float | None = None) -> Form | None:
        """Waits for the next form and returns it; None if the work has ended, or goes on after `seconds`."""
        loop = asyncio.get_running_loop()
        end = None if seconds is None else loop.time() + seconds
        self._open.set()
        try:
            while not (self.pending or self.task.done()):
                # A form that is being prepared comes first: its time to answer would pass between two requests.
                left = None if end is None or self._preparing else end - loop.time()
                if left is not None and left <= 0:
                    return None
                self._woken.clear()
                woken = asyncio.ensure_future(self._woken.wait())
                try:
                    await asyncio.wait({self.task, woken}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    woken.cancel()
            self._shown = self._answer
            return None if self.task.done() else self.form
        finally:
            self._open.clear()

    async def show(self, asking: Awaitable[ElicitResult]) -> None:
        """Shows the form by a request of the server; withdraws it if its question ends first."""
        assert self._answer is not None
        asked = asyncio.ensure_future(asking)
        try:
            await asyncio.wait({asked, self._answer}, return_when=asyncio.FIRST_COMPLETED)
            if self.pending:
                error = asked.exception()
                self._answer.set_result(asked.result()) if error is None else self._answer.set_exception(error)
        finally:
            asked.cancel()

    def answer(self, answer: ElicitResult) -> None:
        """Answers the form that was returned last; a late answer has no effect."""
        if self._shown is not None and not self._shown.done():
            self._shown.set_result(answer)

    async def cancel(self) -> None:
        """Cancels the work and waits until it ends."""
        self.task.cancel()
        await self.ended()
