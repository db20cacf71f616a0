"""A cell that was started, and runs on while nothing waits for it."""

from ipybox.code_exec.cell_runner import Cell, CellRunner
from ipybox.code_exec.result import CodeExecutionResult, result_of
from ipybox.kernel_mgr.display_forms import text_of_all
from ipybox.support.outputs import ExecutionOutput
from ipybox.support.tasks import Detached


class RunningCell(Detached[CodeExecutionResult]):
    """A cell that `CodeExecutor.start_cell` started. It ends at its `timeout`, by `cancel`, or with the executor.

    Attributes:
        task: The task that runs it. Awaiting it returns the result; cancelling it, or a wait for it, cancels the cell.
    """

    def __init__(self, cell: Cell, runner: CellRunner):
        super().__init__(runner.run(cell))
        self._cell = cell
        runner.started[self.task] = cell.deadline
        self.task.add_done_callback(runner.started.pop)

    @property
    def output(self) -> ExecutionOutput:
        """What the cell has printed and displayed so far, without files, which are saved when it ends."""
        outputs = tuple(self._cell.outputs.outputs())
        return ExecutionOutput(text_of_all(outputs), [], outputs=outputs)

    def cancel(self) -> bool:
        """Interrupts the cell, or ends its wait for its turn; returns whether it had not ended."""
        if not self.task.done():
            self._cell.deadline.cancel()
        return not self.task.done()

    async def wait(self, timeout: float | None = None, *, raise_errors: bool = True) -> CodeExecutionResult:
        """Returns the result when the cell ends. May be called again, also after it was cancelled.

        Args:
            timeout: Seconds to wait; None for no limit.
            raise_errors: As for `CodeExecutor.execute`.

        Raises:
            TimeoutError: If the cell is still running after `timeout`: then, `done` is false.
            CodeExecutionError, RuntimeError, VariableError: As `CodeExecutor.execute`.
        """
        if not await self.ended(timeout):
            raise TimeoutError(f"the cell is still running after {timeout:g} s: wait again, or cancel it")
        return await result_of(self.task, raise_errors=raise_errors)
