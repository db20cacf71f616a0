"""Runs cells whose tool calls need an answer of the client's user; `WorkspaceServices` uses it if calls can need one.

The forms are sent while the request of the cell is in progress, or end it, depending on the revision of MCP: see
`detached`. The cell runs all the time.
"""

import asyncio
import uuid
from typing import Any

from mcp.server.mcpserver import Context
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

from ipybox.code_exec.cell_runner import Cell
from ipybox.code_exec.executor import CodeExecutionResult, CodeExecutor
from ipybox.mcp_server.approver import Ask, ElicitationApprover, asker, client_of
from ipybox.mcp_server.detached import DetachedTask
from ipybox.mcp_server.progress import Progress
from ipybox.support.deadline import Deadline
from ipybox.support.errors import CodeExecutionError

#: The key of a form: there is one at a time.
APPROVAL = "approval"

_LOST = "the cell that asked this question has finished"

_Cell = DetachedTask[ElicitRequestFormParams, CodeExecutionResult]


class ElicitingRunner:
    """The cells of a server with approval by the user.

    Args:
        approver: Decides on their tool calls.
    """

    def __init__(self, approver: ElicitationApprover):
        self._approver = approver
        self._waiting: dict[str, _Cell] = {}

    async def run(
        self, executor: CodeExecutor, code: str, timeout: float, progress: Progress | None, context: Context[Any, Any]
    ) -> CodeExecutionResult | InputRequiredResult:
        """Executes a cell, or continues the one that a request answers; returns its result or its next form.

        Reports progress to the request that started the cell.

        Raises:
            CodeExecutionError: If the code fails, as with `CodeExecutor.stream`, or the cell to continue does not
            exist.
            TimeoutError: If the cell timed out.
        """
        client = client_of(context)

        async def execute(ask: Ask | None) -> CodeExecutionResult:
            tell, on_output = (None, None) if progress is None else (progress.note, progress.note_output)
            approver = self._approver.cell(ask, client, seconds=timeout, tell=tell)
            return await executor.run(Cell(code, Deadline(timeout), approver.decide, on_output))

        ask = asker(context)
        if ask is None or context.session.can_send_request:
            return await execute(ask)
        if context.request_state is None:
            self._waiting = {state: cell for state, cell in self._waiting.items() if not cell.finished}
            return await self._next(DetachedTask(execute))
        cell = self._waiting.pop(context.request_state, None)
        if cell is None:
            raise CodeExecutionError(_LOST)
        answer = (context.input_responses or {}).get(APPROVAL)
        cell.answer(answer if isinstance(answer, ElicitResult) else ElicitResult(action="cancel"))
        return await self._next(cell)

    async def aclose(self) -> None:
        """Ends cells that wait for answers."""
        for cell in self._waiting.values():
            await cell.cancel()

    async def _next(self, cell: _Cell) -> CodeExecutionResult | InputRequiredResult:
        try:
            form = await cell.next_form()
        except asyncio.CancelledError:
            await cell.cancel()
            raise
        if form is None:
            return cell.result()
        state = uuid.uuid4().hex
        self._waiting[state] = cell
        return InputRequiredResult(input_requests={APPROVAL: ElicitRequest(params=form)}, request_state=state)
