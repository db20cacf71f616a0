"""Work that outlives its first request: cells, and registrations.

It may ask the client's user questions. Until MCP 2025-11-25, a server sends forms while a request is in progress. Since
2026-07-28, it ends the request with the form (`InputRequiredResult`), and the client repeats the request with the
answer. https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Generic, Self, TypeVar

from mcp.server.mcpserver import Context
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
)

from ipybox.mcp_client.oauth import open_in_browser
from ipybox.mcp_server.client_traits import traits_of
from ipybox.support.printable import as_markdown
from ipybox.support.tasks import Detached

#: A form, or an address to open.
Form = ElicitRequestFormParams | ElicitRequestURLParams

Result = TypeVar("Result")

#: The key of a request's form; there is one at a time.
_FORM = "form"


class DetachedTask(Detached[Result]):
    """A task that keeps running between the requests of a client, and asks its user questions.

    The work receives this object. If the client never comes back, the work's own time limit must end the task, or
    `cancel`.
    """

    def __init__(self, work: "Callable[[Self], Coroutine[Any, Any, Result]]"):
        #: Seconds that a request waits for the next form or the end; None for no limit.
        self.patience: float | None = None
        #: The form that was asked last, its answer, and the answer to the form that a request returned last.
        self._form: Form | None = None
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
        self._form, self._answer = form, asyncio.get_running_loop().create_future()
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

    async def next_form(self) -> Form | None:
        """Waits for the next form and returns it; None if the work has ended, or goes on after the request's time."""
        loop = asyncio.get_running_loop()
        end = None if self.patience is None else loop.time() + self.patience
        self._open.set()
        try:
            await asyncio.sleep(0)  # lets work that waits in `turn` prepare its form, however little time there is
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
            return None if self.task.done() else self._form
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


Task = TypeVar("Task", bound=DetachedTask[Any])


class DetachedTasks(Generic[Task]):
    """Shows the questions of tasks to clients, in requests or between them."""

    def __init__(self) -> None:
        #: The tasks whose clients should repeat a request with an answer, by the state of the request.
        self._asking: dict[str, Task] = {}

    def resumed(self, context: Context[Any, Any]) -> Task | None:
        """Returns the task whose question a repeated request answers, after passing the answer on."""
        task = self._asking.pop(context.request_state or "", None)
        if task is not None:
            answer = (context.input_responses or {}).get(_FORM)
            task.answer(answer if isinstance(answer, ElicitResult) else ElicitResult(action="cancel"))
        return task

    async def attend(self, task: Task, context: Context[Any, Any]) -> InputRequiredResult | None:
        """Waits for a task as long as the request can; returns a form to end the request with.

        An address is shown by the browser of this machine if the client can't show it.
        """
        while (form := await task.next_form()) is not None:
            is_form = isinstance(form, ElicitRequestFormParams)
            if is_form and traits_of(context.request_context, resources=False).renders_forms:
                form = form.model_copy(update={"message": as_markdown(form.message)})
            if isinstance(form, ElicitRequestURLParams) and not shows_urls(context):
                await task.show(_opened(form))
            elif context.session.can_send_request:
                await task.show(_sent(form, context))
            else:
                state = uuid.uuid4().hex
                self._asking = {key: each for key, each in self._asking.items() if not each.done and each is not task}
                self._asking[state] = task
                return InputRequiredResult(input_requests={_FORM: ElicitRequest(params=form)}, request_state=state)
        return None

    async def aclose(self) -> None:
        """Cancels the tasks that no request waits for."""
        for task in self._asking.values():
            await task.cancel()


async def _opened(form: ElicitRequestURLParams) -> ElicitResult:
    await open_in_browser(form.url)
    return ElicitResult(action="accept")


async def _sent(form: Form, context: Context[Any, Any]) -> ElicitResult:
    if isinstance(form, ElicitRequestFormParams):
        return await context.session.elicit_form(form.message, form.requested_schema, context.request_id)
    return await context.session.elicit_url(form.message, form.url, uuid.uuid4().hex, context.request_id)


def client_identity(context: Context[Any, Any]) -> object:
    """Returns what identifies a request's client, as far as the transport allows.

    On stdio there is only one client; over HTTP without sessions (MCP 2026-07-28), each request has its own.
    """
    return None if context.headers is None else context.headers.get("mcp-session-id") or object()


def shows_forms(context: Context[Any, Any]) -> bool:
    """Returns whether the client can show forms."""
    elicitation = context.client_capabilities and context.client_capabilities.elicitation
    # A capability without modes, as in the first revision, includes forms.
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def shows_urls(context: Context[Any, Any]) -> bool:
    """Returns whether the client can ask its user to open an address."""
    elicitation = context.client_capabilities and context.client_capabilities.elicitation
    return elicitation is not None and elicitation.url is not None
