"""Work that outlives its first request because it waits for a person: cells, and registrations with a sign-in.

Until MCP 2025-11-25, a server sends forms while a request is in progress. Since 2026-07-28, it ends the request with
the form (`InputRequiredResult`), and the client repeats the request with the answer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult

Result = TypeVar("Result")
Form = TypeVar("Form", ElicitRequestFormParams, ElicitRequestURLParams)


class DetachedTask(Generic[Form, Result]):
    """A task that keeps running between the requests of a client, and asks its user questions.

    The work receives a function that shows the user a form and returns a future with the answer. If the client never
    comes back, the work's own time limit must end the task, or `cancel` when the server stops.
    """

    def __init__(self, work: "Callable[[Callable[[Form], asyncio.Future[ElicitResult]]], Awaitable[Result]]"):
        #: The form that a request returned last.
        self.form: Form | None = None
        self._answer: asyncio.Future[ElicitResult] | None = None
        self._forms: asyncio.Queue[tuple[Form, asyncio.Future[ElicitResult]]] = asyncio.Queue()
        self.task = asyncio.ensure_future(work(self._ask))
        # The next request reports a failure; if none comes, the failure is dropped.
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def failed(self) -> bool:
        """Whether the work has ended without a result."""
        return self.task.done() and (self.task.cancelled() or self.task.exception() is not None)

    async def next_form(self) -> Form | None:
        """Waits for the next form and returns it, or None if the work has finished."""
        while not self.task.done():
            asked = asyncio.ensure_future(self._forms.get())
            try:
                await asyncio.wait({asked, self.task}, return_when=asyncio.FIRST_COMPLETED)
                if asked.done():
                    form, answer = asked.result()
                    if not answer.done():  # the form has not expired
                        self.form, self._answer = form, answer
                        return form
            finally:
                asked.cancel()
        return None

    def answer(self, answer: ElicitResult) -> None:
        """Answers the form that was returned last; a late answer has no effect."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    async def cancel(self) -> None:
        """Cancels the work and waits until it ends."""
        self.task.cancel()
        await asyncio.wait([self.task])

    def _ask(self, form: Form) -> "asyncio.Future[ElicitResult]":
        answer: asyncio.Future[ElicitResult] = asyncio.get_running_loop().create_future()
        self._forms.put_nowait((form, answer))
        return answer
