"""The cells of MCP requests. A cell can outlast its request: because of a form, or of the request's `wait`."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from mcp.server.mcpserver import Context
from mcp_types import Implementation, InputRequiredResult

from ipybox.code_exec.cell_runner import Cell
from ipybox.code_exec.executor import CodeExecutionResult
from ipybox.kernel_mgr.display_forms import text_of, text_of_all
from ipybox.kernel_mgr.output_collector import OutputCollector
from ipybox.mcp_server.approver import ElicitationApprover
from ipybox.mcp_server.detached import DetachedTask, DetachedTasks, client_identity, shows_forms
from ipybox.mcp_server.kernel_sessions import DEFAULT_SESSION, KernelSessions
from ipybox.mcp_server.progress import Progress
from ipybox.support.deadline import Deadline
from ipybox.support.errors import CodeExecutionError, ExecutionTimeoutError
from ipybox.support.outputs import Clear, Display, ExecutionOutput, Stream
from ipybox.tool_exec.approval.approvals import accept_call
from ipybox.tool_exec.approval.request import ApprovalCallback, ApprovalRequest, accepts_batches

#: Seconds that a question waits for the next request of a client that has to return for the cell's result.
RETURN_TIMEOUT = 3600.0

#: Maximum characters of the code that an error quotes.
MAX_CODE = 80


class _Cell(DetachedTask[CodeExecutionResult]):
    """A cell, and what its client has received of it."""

    def __init__(
        self,
        session: str,
        code: str,
        client: "_Client",
        work: "Callable[[_Cell], Coroutine[Any, Any, CodeExecutionResult]]",
    ):
        self.session, self.code, self.client, self.started = session, code, client, datetime.now().astimezone()
        #: Reports to the request that waits for the cell.
        self.progress: Progress | None = None
        self.attended = False
        self.outputs = OutputCollector(self._note_output)
        self._received = ""
        super().__init__(work)

    def tell(self, text: str) -> None:
        """Shows the user a line."""
        if self.progress is not None:
            self.progress.note(text)

    def refuse(self, problem: str, advice: str = "") -> CodeExecutionError:
        """Returns the error of a request that can't be served because of this cell."""
        code = self.code.strip().split("\n")[0]
        code = code if len(code) <= MAX_CODE else f"{code[:MAX_CODE]}…"
        return CodeExecutionError(f"{problem}: {code!r}, started at {self.started:%H:%M:%S}. {advice or self._advice}")

    def so_far(self) -> ExecutionOutput:
        """Returns new output of the cell while it is running."""
        seconds = (datetime.now().astimezone() - self.started).total_seconds()
        text = text_of_all(self.outputs.outputs())
        return self._unseen(
            ExecutionOutput(text, [], notices=[f"The cell is still running after {seconds:.0f} s. {self._advice}"])
        )

    def result(self) -> ExecutionOutput:
        """Returns the result with new output, or raises the error, of a cell that has ended."""
        if self.task.cancelled():
            raise CodeExecutionError("the cell was cancelled: its session was reset")
        try:
            return self._unseen(self.task.result())
        except (CodeExecutionError, ExecutionTimeoutError) as exc:
            exc.output = exc.output and self._unseen(exc.output)
            raise

    @property
    def _advice(self) -> str:
        session = "" if self.session == DEFAULT_SESSION else f" and session {self.session}"
        return f"To get its output, call execute_ipython_cell with empty code{session}. To end it, call reset."

    def _note_output(self, output: Stream | Display | Clear, _size: int) -> None:
        self.tell(text_of(output))

    def _unseen(self, output: ExecutionOutput) -> ExecutionOutput:
        """Returns the output without the text that the client has received, except lines that changed since then."""
        text, before = output.text or "", self._received
        self._received = text
        if not text.startswith(before):
            same = bisect_left(range(len(before)), True, key=lambda end: not text.startswith(before[: end + 1]))
            before = before[: before.rfind("\n", 0, same) + 1]
        return replace(output, text=text[len(before) :].removeprefix("\n" if before else "") or None)


class CellRequests:
    """Runs the cells of requests; keeps those that outlast their request.

    `approver` returns what asks users about tool calls; None if all calls are accepted.
    """

    def __init__(self, sessions: KernelSessions, approver: Callable[[], ElicitationApprover | None]):
        self._sessions = sessions
        self._approver = approver
        #: Cells that a client waits for in several requests, by session.
        self.waiting: dict[str, _Cell] = {}
        self._tasks = DetachedTasks[_Cell]()

    async def run(
        self,
        session: str,
        code: str,
        timeout: float,
        wait: float | None,
        progress: Progress | None,
        context: Context[Any, Any],
    ) -> ExecutionOutput | InputRequiredResult:
        """Executes a cell, or continues to wait for one; returns its result, its next form, or its new output.

        Raises what `KernelSessions.use` and `CodeExecutor.execute` raise, and a CodeExecutionError if the session waits
        for another cell, or the cell that the request refers to does not exist.
        """
        cell = self.waiting.get(session)
        if context.request_state is not None:
            cell = self._tasks.resumed(context)
            if cell is None:
                raise CodeExecutionError("the cell that showed this form has ended")
        elif cell is None:
            cell = self._start(session, code, timeout, context, returns=wait is not None)
            if wait is not None:
                self.waiting[session] = cell
        elif cell.client != _client_of(context):
            raise cell.refuse("the session has another client's cell", "Use another session, or call reset to end it")
        elif code.strip():
            raise cell.refuse("the code was not executed: first get the rest of the session's earlier cell")
        elif cell.attended:
            raise cell.refuse("another request is waiting for the cell")
        cell.progress, cell.patience, cell.attended = progress, wait, True
        try:
            form = await self._tasks.attend(cell, context)
            return form or (cell.result() if cell.done else cell.so_far())
        except asyncio.CancelledError:
            cell.task.cancel()
            await cell.ended()
            raise
        finally:
            cell.attended = False
            if (cell.done or cell.task.cancelling()) and self.waiting.get(session) is cell:
                del self.waiting[session]

    async def reset(self, session: str) -> None:
        """Resets a session; its cell ends."""
        cell = self.waiting.pop(session, None)
        if cell is not None:
            cell.task.cancel()
        await self._sessions.reset(session)

    async def aclose(self) -> None:
        """Cancels the cells that no request waits for."""
        await self._tasks.aclose()
        for cell in self.waiting.values():
            await cell.cancel()

    def _start(self, session: str, code: str, timeout: float, context: Context[Any, Any], *, returns: bool) -> _Cell:
        """Starts a cell; unless its client `returns` for the result, its questions don't wait long for a request."""
        client = _client_of(context)
        asked = client_identity(context)

        def approver(cell: _Cell, deadline: Deadline) -> ApprovalCallback:
            if (asking := self._approver()) is None:
                return accept_call
            ask = cell.ask if client.shows_forms else None
            turn = partial(cell.turn, seconds=RETURN_TIMEOUT if returns else asking.timeout)
            decide = asking.cell(ask, asked, turn=turn, tell=cell.tell).decide

            async def decide_off_the_clock(request: ApprovalRequest) -> None:
                with deadline.paused() if returns or cell.attended else nullcontext():
                    await decide(request)

            return accepts_batches(decide_off_the_clock)

        async def work(cell: _Cell) -> CodeExecutionResult:
            async with self._sessions.use(session) as executor:
                deadline = Deadline(timeout)
                return await executor.run(Cell(code, deadline, approver(cell, deadline), cell.outputs))

        return _Cell(session, code, client, work)


class _Client(NamedTuple):
    """What tells a request's client from others, which must not get its forms and output."""

    #: None on stdio, and since MCP 2026-07-28.
    mcp_session: str | None
    info: Implementation | None
    shows_forms: bool


def _client_of(context: Context[Any, Any]) -> _Client:
    mcp_session = None if context.headers is None else context.headers.get("mcp-session-id")
    params = context.session.client_params
    return _Client(mcp_session, params and params.client_info, shows_forms(context))
