"""Runs one cell as a stream of events: approval requests, output as it arrives, and finally the result.

`CodeExecutor.stream` documents the events.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from ipybox.code_exec.cell_runner import CellRunner, new_cell
from ipybox.code_exec.lifecycle import KernelLifecycle
from ipybox.code_exec.result import CodeExecutionChunk, CodeExecutionResult, result_of
from ipybox.kernel_mgr.display_forms import text_of
from ipybox.kernel_mgr.output_collector import OutputCollector
from ipybox.support.bounded_queue import BoundedQueue
from ipybox.support.outputs import Clear, Display, Stream
from ipybox.tool_exec.approval.request import ApprovalRequest, accepts_batches

#: Maximum characters of output that wait for a stream's consumer. Further output is dropped from the stream, but not
#: from the result. A display counts for at least the size of its message.
MAX_WAITING_CHUNKS = 64 << 20


async def stream_cell(
    kernel: KernelLifecycle,
    runner: CellRunner,
    code: str,
    timeout: float | None,
    chunks: bool,
    variables: Mapping[str, Any] | None,
    env: Mapping[str, str] | None,
    batches: bool,
    raise_errors: bool,
) -> AsyncGenerator[ApprovalRequest | CodeExecutionChunk | CodeExecutionResult]:
    """Runs a cell and yields its events; arguments and errors are those of `CodeExecutor.stream`."""
    kernel.check_running()
    events: BoundedQueue[ApprovalRequest | CodeExecutionResult | Stream | Display | Clear]
    events = BoundedQueue(MAX_WAITING_CHUNKS)

    async def offer(request: ApprovalRequest) -> None:
        if chunks and kernel.client is not None:
            await kernel.client.remote_kernel.channels.wait_for_marker(request.output_mark)
        events.put(request)

    approver = accepts_batches(offer) if batches else offer
    outputs = OutputCollector(events.put_or_drop if chunks else None)
    cell = await new_cell(code, timeout, approver, variables, env, outputs)

    async def run() -> None:
        events.put(await result_of(runner.run(cell), raise_errors=raise_errors))

    try:
        async with aclosing(events.produced_by(run())) as produced:
            async for event in produced:
                if dropped := events.pop_dropped():
                    yield CodeExecutionChunk(f"\n[ipybox] {dropped:,} characters were omitted here.\n", notice=True)
                if isinstance(event, CodeExecutionResult):
                    cell.reported.clear()
                if isinstance(event, Stream | Display | Clear):
                    event = CodeExecutionChunk(text_of(event), output=event)
                yield event
    except Exception:  # every error contains the cell's notices
        cell.reported.clear()
        raise
    finally:
        runner.requeue_notices(cell)  # unless the consumer got the result or the error
