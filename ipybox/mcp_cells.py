"""Cells whose tool calls the client's user is asked about.

Until the revision 2025-11-25 of MCP, a server sends questions while the request of the cell is under way. From
2026-07-28 on, it ends the request with the question (`InputRequiredResult`), and the client makes it again with the
answer. The cell is under way all the time.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from mcp.server.mcpserver import Context
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

from ipybox.code_exec import CodeExecutionChunk, CodeExecutionResult, CodeExecutor
from ipybox.errors import CodeExecutionError
from ipybox.mcp_approval import Approver, Ask, asker, client_of
from ipybox.progress import Progress
from ipybox.tasks import TaskSet
from ipybox.tool_exec.approval.client import ApprovalRequest

#: The key of a question: there is one at a time.
APPROVAL = "approval"

_LOST = "the cell that this is the answer for is over"


class AskingCells:
    """The cells of a server that asks.

    Args:
        approver: What decides on their tool calls.
    """

    def __init__(self, approver: Approver):
        self._approver = approver
        self._waiting: dict[str, _Cell] = {}

    async def run(
        self, executor: CodeExecutor, code: str, timeout: float, progress: Progress, context: Context[Any, Any]
    ) -> CodeExecutionResult | InputRequiredResult:
        """Executes a cell, or goes on with the one that a request answers; returns its result or its next question.

        The progress is that of the request that started it.

        Raises:
            CodeExecutionError: If the code fails, as `CodeExecutor.stream` says, or there is no cell to go on with.
            TimeoutError: If the time is over.
        """
        execute = partial(self._execute, executor, code, timeout, progress, client_of(context))
        ask = asker(context)
        if ask is None or context.session.can_send_request:
            return await execute(ask)
        if context.request_state is None:
            self._waiting = {state: cell for state, cell in self._waiting.items() if not cell.over}
            cell = _Cell(execute)
        else:
            cell = self._waiting.pop(context.request_state, None)
            if cell is None:
                raise CodeExecutionError(_LOST)
            answer = (context.input_responses or {}).get(APPROVAL)
            cell.answer(answer if isinstance(answer, ElicitResult) else ElicitResult(action="cancel"))
        return await self._next(cell)

    async def aclose(self) -> None:
        """Ends the cells that wait for answers."""
        for cell in self._waiting.values():
            await cell.cancel()

    async def _next(self, cell: "_Cell") -> CodeExecutionResult | InputRequiredResult:
        try:
            form = await cell.question()
        except asyncio.CancelledError:
            await cell.cancel()
            raise
        if form is None:
            return cell.result()
        state = uuid.uuid4().hex
        self._waiting[state] = cell
        return InputRequiredResult(input_requests={APPROVAL: ElicitRequest(params=form)}, request_state=state)

    async def _execute(
        self,
        executor: CodeExecutor,
        code: str,
        timeout: float,
        progress: Progress,
        client: object,
        ask: Ask | None,
    ) -> CodeExecutionResult:
        questions = TaskSet()
        try:
            async with aclosing(executor.stream(code, timeout, chunks=True)) as items:
                async for item in items:
                    match item:
                        case ApprovalRequest():
                            questions.start(self._approver.decide(item, ask, client))
                        case CodeExecutionChunk():
                            progress.note(item.text)
                        case CodeExecutionResult():
                            return item
        finally:
            await questions.cancel()
        raise AssertionError("unreachable: an execution ends with its result")


class _Cell:
    """A cell that goes on while no request is under way."""

    def __init__(self, execute: Callable[[Ask], Awaitable[CodeExecutionResult]]):
        self._questions: asyncio.Queue[tuple[ElicitRequestFormParams, asyncio.Future[ElicitResult]]] = asyncio.Queue()
        self._asked: asyncio.Future[ElicitResult] | None = None
        self._execution = asyncio.ensure_future(execute(self._ask))
        # A failure is the result of a request; if none comes any more, it is nobody's.
        self._execution.add_done_callback(lambda execution: execution.cancelled() or execution.exception())

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._execution.done()

    async def question(self) -> ElicitRequestFormParams | None:
        """Waits for the next question and returns it, or None if the cell has ended."""
        while not self.over:
            asked = asyncio.ensure_future(self._questions.get())
            try:
                await asyncio.wait({asked, self._execution}, return_when=asyncio.FIRST_COMPLETED)
                if asked.done():
                    form, answer = asked.result()
                    if not answer.done():  # it has not been withdrawn meanwhile
                        self._asked = answer
                        return form
            finally:
                asked.cancel()
        return None

    def answer(self, answer: ElicitResult) -> None:
        """Answers the question that was returned last; a late answer has no effect."""
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(answer)

    def result(self) -> CodeExecutionResult:
        """Returns the result, or raises why there is none."""
        return self._execution.result()

    async def cancel(self) -> None:
        """Interrupts it."""
        self._execution.cancel()
        await asyncio.wait([self._execution])

    async def _ask(self, form: ElicitRequestFormParams) -> ElicitResult:
        answer: asyncio.Future[ElicitResult] = asyncio.get_running_loop().create_future()
        self._questions.put_nowait((form, answer))
        return await answer
