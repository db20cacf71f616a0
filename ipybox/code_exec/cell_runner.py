"""Runs the cells of one executor, one at a time, each with approvals, notices, a time limit and its audit event."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from ipybox.code_exec.lifecycle import KernelLifecycle
from ipybox.code_exec.result import CodeExecutionChunk, CodeExecutionResult, result_of
from ipybox.kernel_mgr.display_forms import text_of
from ipybox.kernel_mgr.limits.resource_limits import UNATTRIBUTED
from ipybox.kernel_mgr.output_collector import OutputCollector
from ipybox.support.bounded_queue import BoundedQueue
from ipybox.support.deadline import CANCELLED, Deadline, DeadlineLock
from ipybox.support.effects import summary
from ipybox.support.errors import (
    CodeExecutionError,
    ExecutionCancelledError,
    ExecutionError,
    ExecutionTimeoutError,
    KernelDiedError,
)
from ipybox.support.outputs import Clear, Display, ExecutionOutput, Stream
from ipybox.tool_exec.approval.request import ApprovalRequest, accepts_batches

if TYPE_CHECKING:
    from ipybox.audit.recorder import SessionRecorder
    from ipybox.audit.records import ExecutionRecord
    from ipybox.kernel_mgr.client import KernelClient
    from ipybox.kernel_mgr.variables import Inputs
    from ipybox.tool_exec.approval.approvals import Approvals
    from ipybox.tool_exec.approval.request import ApprovalCallback

STATE_LOST = (
    "The kernel died or was restarted before this cell: variables, imports and definitions from earlier cells are lost."
)

NOT_USED = "The kernel was stopped because the session was idle for {seconds:g} s (session_idle_timeout)."

#: The end of a cell whose caller receives no error; the next result says what it called.
CANCELLATION = "the last cell was cancelled"

#: Maximum characters of output that wait for a stream's consumer. Further output is dropped from the stream, but not
#: from the result. A display counts for at least the size of its message.
MAX_WAITING_CHUNKS = 64 << 20

#: Number of tool results that are kept, to distinguish tool errors from sandbox denials.
MAX_TOOL_TEXTS = 20


@dataclass(frozen=True)
class Cell:
    """One cell to execute.

    Attributes:
        code: The code.
        deadline: When the execution is interrupted.
        approver: Asked about each tool call that no policy decides on.
        outputs: Collects its output.
        inputs: Variables to set before the code runs.
        reported: The session's notices in the result, kept in case the consumer stops before it receives them.
    """

    code: str
    deadline: Deadline
    approver: "ApprovalCallback"
    outputs: OutputCollector = field(default_factory=OutputCollector)
    inputs: "Inputs | None" = None
    reported: list[str] = field(default_factory=list[str])


async def new_cell(
    code: str,
    timeout: float | None,
    approver: "ApprovalCallback",
    variables: Mapping[str, Any] | None,
    env: Mapping[str, str] | None,
    outputs: OutputCollector | None = None,
) -> Cell:
    """Returns a cell with the checked and encoded arguments of `CodeExecutor.execute`; raises the same errors."""
    if not isinstance(cast(object, code), str):
        raise TypeError(f"code must be a str, not {code!r}")
    if not callable(approver):
        raise TypeError(f"approver must be a function that accepts an ApprovalRequest, not {approver!r}")
    for name, given in {"variables": cast(object, variables), "env": cast(object, env)}.items():
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(f"{name} must be a dict, not {type(given).__name__}")
    deadline, inputs = Deadline(timeout), None
    if variables or env:
        from ipybox.kernel_mgr.variables import encode_inputs

        inputs = await asyncio.to_thread(encode_inputs, dict(variables or {}), dict(env or {}))
    return Cell(code, deadline, approver, outputs or OutputCollector(), inputs)


class CellRunner:
    """Runs cells in turn. `tool_texts` contains the last texts that tools returned to the running cell."""

    def __init__(
        self,
        kernel: KernelLifecycle,
        recorder: "SessionRecorder",
        approvals: "Approvals",
        tool_texts: deque[str],
    ):
        self._kernel = kernel
        self._recorder = recorder
        self._approvals = approvals
        self._tool_texts = tool_texts
        self._turn = DeadlineLock()
        #: The id of the kernel that executed the last cell.
        self._kernel_id = ""
        #: The id of the kernel whose end an error explained, or ipybox caused.
        self._explained_id = ""
        #: The tasks of started cells, in order, with their deadlines.
        self.started: dict[asyncio.Task[CodeExecutionResult], Deadline] = {}
        #: The deadline of the running cell.
        self._deadline: Deadline | None = None

    @property
    def active(self) -> bool:
        """Whether a cell is running."""
        return self._deadline is not None

    def note_expiry(self, seconds: float) -> None:
        """Records that the idle kernel is being stopped; the next result says so."""
        self._recorder.session("idle")
        if self._kernel_id:  # otherwise, no cell ran, so no state is lost
            self._kernel.notices.append(f"{STATE_LOST} {NOT_USED.format(seconds=seconds)}")

    def cancel(self) -> bool:
        """Interrupts the running cell, or the next one, and returns whether there was one."""
        deadline = self._deadline or next(iter(self.started.values()), None)
        if deadline is not None:
            deadline.cancel()
        return deadline is not None

    async def run(self, cell: Cell) -> CodeExecutionResult:
        """Runs a cell when its turn comes, and returns its result; raises as `CodeExecutor.execute`."""
        self._kernel.check_running()
        async with self._turn.hold(cell.deadline):
            self._kernel.check_running()
            if cell.inputs is not None:
                self._recorder.add_cell_secrets(cell.inputs.environment)
            async with self._recorder.cell(cell.code) as record:
                self._deadline = cell.deadline
                self._tool_texts.clear()
                try:
                    return await self._run_in_kernel(cell, record)
                except ExecutionError as exc:
                    self._kernel.check_running()
                    calls = record.calls.counts()
                    output = await self._with_notices(exc.output, cell, str(exc), summary(calls))
                    raise CodeExecutionError(await self._describe(exc), output, exc.raised, calls) from None
                except asyncio.CancelledError:
                    self._explained_id = self._kernel_id
                    self._kernel.notices += summary(record.calls.counts(), CANCELLATION)
                    raise
                except ExecutionTimeoutError as exc:
                    self._explained_id = self._kernel_id
                    self._kernel.check_running()
                    error = ExecutionCancelledError if cell.deadline.cancelled else ExecutionTimeoutError
                    calls = record.calls.counts()
                    output = await self._with_notices(exc.output, cell, before=summary(calls))
                    record.lost_state = self._expect_restarted_kernel(cell)
                    output = replace(output, kernel_restarted=record.lost_state or output.kernel_restarted)
                    raise error(str(exc), output, calls=calls) from None
                finally:
                    self._deadline = None

    async def get(self, name: str, deadline: Deadline) -> Any:
        """Returns the value of a variable when its turn comes; raises as `CodeExecutor.get`."""
        from ipybox.kernel_mgr.variables import value_in
        from ipybox.support.variables import check_name

        check_name(name)
        self._kernel.check_running()
        async with self._turn.hold(deadline):
            self._kernel.check_running()
            self._deadline = deadline
            try:
                client = await self._within(deadline, self._kernel.surviving_kernel())
                self._kernel_id = client.kernel_id
                with self._kernel.gateway.measure_cell(self._kernel_id, deadline.expire):
                    reply = await client.read(name, deadline)
            except ExecutionError as exc:
                self._kernel.check_running()
                raise CodeExecutionError(await self._describe(exc), raised=exc.raised) from None
            except ExecutionTimeoutError as exc:
                if not deadline.cancelled:
                    raise
                raise ExecutionCancelledError(str(exc)) from None
            finally:
                self._deadline = None
        return await asyncio.to_thread(value_in, reply, name)

    async def stream(
        self, new: Callable[..., Awaitable[Cell]], *, chunks: bool, batches: bool, raise_errors: bool
    ) -> AsyncGenerator[ApprovalRequest | CodeExecutionChunk | CodeExecutionResult]:
        """Runs a cell that `new` (`new_cell`) makes; yields the same as `CodeExecutor.stream`."""
        self._kernel.check_running()
        events: BoundedQueue[ApprovalRequest | CodeExecutionResult | Stream | Display | Clear]
        events = BoundedQueue(MAX_WAITING_CHUNKS)

        async def offer(request: ApprovalRequest) -> None:
            if chunks and self._kernel.client is not None:
                await self._kernel.client.remote_kernel.channels.wait_for_marker(request.output_mark)
            events.put(request)

        approver = accepts_batches(offer) if batches else offer
        outputs = OutputCollector(events.put_or_drop if chunks else None)
        cell = await new(approver=approver, outputs=outputs)

        async def run() -> None:
            events.put(await result_of(self.run(cell), raise_errors=raise_errors))

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
            # The next cell repeats what a consumer that stopped early has not received.
            self._kernel.notices[:0] = dict.fromkeys(cell.reported)

    async def _run_in_kernel(self, cell: Cell, record: "ExecutionRecord") -> CodeExecutionResult:
        if (before := self._kernel.client) is not None and before.remote_kernel.channels.client_cells:
            await before.remote_kernel.channels.wait_for_client_cells(cell.deadline)
        client = await self._within(cell.deadline, self._kernel.ensure_kernel())
        expected, self._kernel_id = self._kernel.expected_kernel_id, client.kernel_id
        if client.kernel_id != expected:
            self._recorder.session("restart")
            self._kernel.notices.append(f"{STATE_LOST}{self._reason(expected)}")
            self._kernel.expected_kernel_id = client.kernel_id
        async with self._approvals.cell(cell.approver):
            with self._kernel.gateway.measure_cell(self._kernel_id, cell.deadline.expire):
                output = await client.run(cell.code, cell.deadline, cell.outputs, cell.inputs)
        result = replace(await self._with_notices(output, cell), cell=record.executed)
        record.succeed(result)
        return result

    def _reason(self, kernel_id: str) -> str:
        """Returns a sentence, after a space, about why a kernel died between two cells; empty if unknown."""
        exceeded = self._kernel.gateway.exceeded.get(kernel_id)
        if exceeded is not None:
            return f" It died because {exceeded}."
        return f" It died{self._kernel.exit}." if self._kernel.exit and kernel_id != self._explained_id else ""

    def _expect_restarted_kernel(self, cell: Cell) -> bool:
        """Returns whether a timeout restarted the kernel; if so, the error reports the lost state."""
        client = self._kernel.client
        if client is None or not client.alive or client.kernel_id == self._kernel.expected_kernel_id:
            return False
        cell.reported.append(STATE_LOST)
        self._kernel.expected_kernel_id = client.kernel_id
        return True

    async def _with_notices(
        self, output: ExecutionOutput | None, cell: Cell, error: str = "", before: Sequence[str] = ()
    ) -> CodeExecutionResult:
        """Returns a result with the notices `before`, the output's, explanations of denials, and the session's."""
        output = output or ExecutionOutput(None, [])
        text = output.text or ""
        gateway = self._kernel.gateway
        explained = gateway.explain(f"{text}\n{error}" if error else text, self._tool_texts)
        if detached := gateway.exceeded.pop(UNATTRIBUTED, None):  # of all executors, the first one reports it
            explained.insert(0, f"A limit was exceeded: {detached}.")
        notices, restarted = [*before, *output.notices, *explained], False
        if explained:
            self._recorder.denied("sandbox", explained)
        if pending := self._kernel.notices:
            notices = [*pending, *notices]
            restarted = any(notice.startswith(STATE_LOST) for notice in pending)
            cell.reported.extend(pending)
            pending.clear()
        return CodeExecutionResult(
            output.text, output.images, output.image_data, output.files, notices, output.outputs, restarted
        )

    async def _describe(self, exc: ExecutionError) -> str:
        """Returns an error's message, including the exceeded limit or the lost node that ended the kernel."""
        if not isinstance(exc, KernelDiedError):
            return str(exc)
        self._explained_id = self._kernel_id
        if self._kernel_id in self._kernel.gateway.exceeded:
            exceeded = self._kernel.gateway.exceeded.pop(self._kernel_id)
            self._recorder.denied("limit", [exceeded])
            return exceeded
        loss = await self._kernel.gateway.loss()
        return str(exc) if loss is None else f"{exc}: {loss}"

    async def _within(self, deadline: Deadline, kernel: "Awaitable[KernelClient]") -> "KernelClient":
        """Returns a kernel that can run code. At the deadline, raises a TimeoutError; the replacement continues."""
        try:
            async with deadline.limit():
                client = await kernel
        except asyncio.CancelledError:
            self._kernel.withdraw()
            raise
        except TimeoutError:
            waits_for = self._kernel.waits_for
            suffix = f": it is waiting for {waits_for}" if waits_for else ""
            if deadline.cancelled:
                self._kernel.withdraw()  # but after a timeout, the next cell may still use the node
            raise deadline.not_started(f"the cell never started because the kernel was not ready{suffix}") from None
        if deadline.cancelled:
            raise ExecutionCancelledError(f"{CANCELLED} before the cell started")
        return client
