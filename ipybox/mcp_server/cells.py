"""Executes a cell for a request of an MCP client; `services` and `elicitation` use it."""

from contextlib import aclosing

from ipybox.code_exec.executor import CodeExecutionChunk, CodeExecutionResult, CodeExecutor
from ipybox.mcp_server.progress import Progress
from ipybox.support.tasks import TaskSet
from ipybox.tool_exec.approval.request import ApprovalCallback, ApprovalRequest, ask


async def run_cell(
    executor: CodeExecutor,
    code: str,
    timeout: float,
    progress: Progress,
    approver: ApprovalCallback,
) -> CodeExecutionResult:
    """Executes code and returns its result; reports its output as progress.

    Args:
        executor: Executes the code.
        code: The code of the cell.
        timeout: Seconds until the cell is interrupted.
        progress: Receives the output as it arrives.
        approver: Accepts or rejects a tool call. Calls are decided on concurrently.

    Raises:
        CodeExecutionError: If the code fails, as with `CodeExecutor.stream`.
        TimeoutError: If the cell timed out.
    """
    decisions = TaskSet()
    try:
        async with aclosing(executor.stream(code, timeout, chunks=True)) as items:
            async for item in items:
                match item:
                    case ApprovalRequest():
                        decisions.start(ask(approver, item))
                    case CodeExecutionChunk():
                        if item.text:  # that of an image is empty
                            progress.note(item.text)
                    case CodeExecutionResult():
                        return item
    finally:
        await decisions.cancel()
    raise AssertionError("unreachable: an execution ends with its result")
