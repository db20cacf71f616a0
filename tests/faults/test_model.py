"""Executors keep what they promise, whatever is done to them, in any order and at once: a seeded stress test.

`tests/faults/plan.py` says what is done, `tests/faults/model.py` what may come of it. A failure names its seed and its
steps. `SEED` and `MODEL_STEPS` run another plan; `MODEL_SHRINK=1` drops steps for as long as the plan fails.
"""

import asyncio
import io
import os
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ipybox import ApprovalRequest, CodeExecutionChunk, CodeExecutionResult, CodeExecutor
from ipybox.errors import ApprovalExpiredError, GatewayError
from ipybox.kernel_mgr import timeouts
from tests import servers
from tests.conftest import Mode
from tests.faults import cells, plan
from tests.faults.model import Calls, Cell, ExecutorModel, Outcome, outcome_of
from tests.faults.plan import Step
from tests.faults.programs import GATEWAY, KERNEL, kill, processes
from tests.seed import SEED
from tests.servers import WAIT

STEPS = int(os.environ.get("MODEL_STEPS", "40"))

#: Seconds in which each operation must end.
BOUND = 45.0

#: Seconds that a request for approval waits.
APPROVAL_TIMEOUT = 0.7

#: Seconds after the end of its code from which on a decision can't count.
WITHDRAWN = 1.0


@pytest.fixture(autouse=True)
def short_graces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("INTERRUPT_GRACE", "ANSWER_GRACE"):
        monkeypatch.setattr(timeouts, name, 2.0)


class Run:
    """One run of a plan with real kernels.

    Args:
        workspace: An empty directory.
        sandbox: Whether the kernels are in a sandbox.
    """

    def __init__(self, workspace: Path, *, sandbox: bool):
        self._log = workspace.with_name(f"{workspace.name}.log")
        servers.register(workspace, scripted=servers.scripted("--log", str(self._log)))
        root = CodeExecutor(working_dir=workspace, sandbox=sandbox, approval_timeout=APPROVAL_TIMEOUT)
        self._executors = [root, *(root.sibling() for _ in range(plan.EXECUTORS - 1))]
        self._models = [ExecutorModel() for _ in self._executors]
        self._calls = Calls()
        self._count = 0
        self._running: dict[asyncio.Task[None], str] = {}
        self._faults: list[AssertionError] = []
        #: When cells have ended.
        self._ends: dict[str, float] = {}

    async def run(self, steps: Sequence[Step]) -> None:
        """Runs all steps and then settles and stops.

        Raises:
            AssertionError: If an executor does what it must not do.
        """
        try:
            for number, step in enumerate(steps):
                if step.what == "settle":
                    await self._settle()
                else:
                    self._begin(number, step)
                    await asyncio.sleep(step.pause)
                self._check_ended()
            await self._settle()
            for executor in self._executors:
                await self._bounded(executor.stop(), "the last stop")
            made = self._log.read_text().splitlines() if self._log.exists() else []
            self._calls.check(Counter(line.removeprefix("call ") for line in made if line.startswith("call ")))
        finally:
            await self._clean_up()

    def _begin(self, number: int, step: Step) -> None:
        executor, model = self._executors[step.who], self._models[step.who]
        match step.what:
            case "cell":
                self._count += 1
                work = self._cell(step, f"c{self._count}", executor, model)
            case "reset":
                work = self._reset(executor, model)
            case "stop":
                work = self._switch(executor.stop, model, up=False)
            case "start":
                work = self._switch(executor.start, model, up=True)
            case _:
                for each in self._models:
                    each.trouble()
                work = kill(KERNEL, 1) if step.what == "kill kernel" else kill(GATEWAY)
        task = asyncio.create_task(work)
        self._running[task] = f"step {number}: {step}"
        if step.cancel is not None:
            cancel = self._cancel(step, task, executor, model)
            self._running[asyncio.create_task(cancel)] = f"cancellation of step {number}"

    async def _cell(self, step: Step, tag: str, executor: CodeExecutor, model: ExecutorModel) -> None:
        calls = tuple(f"{tag}.{number}" for number in range(len(step.decisions)))
        decisions = dict(zip(calls, step.decisions, strict=True))
        if step.kind in cells.FATAL:
            model.trouble()
        cell = model.given(tag, limited=step.timeout is not None)

        async def approve(request: ApprovalRequest) -> None:
            call = str(request.tool_args["text"])
            with self._noted():
                self._calls.requested(call, tag)
                await self._decide(request, call, *decisions[call], tag)

        code = cells.code(step.kind, tag, calls)
        timeout = step.timeout or WAIT * 2
        outcome = Outcome(abandoned=True)
        try:
            if step.how == "execute":
                outcome = await outcome_of(executor.execute(code, timeout, approver=approve))
            else:
                outcome = await outcome_of(self._stream(executor, code, timeout, approve, step.how))
        finally:
            self._ends[tag] = time.monotonic()
            if step.kind in cells.FATAL:
                model.trouble()
            self._check_cell(step, cell, outcome, model)

    def _check_cell(self, step: Step, cell: Cell, outcome: Outcome, model: ExecutorModel) -> None:
        observation = model.ended(cell, outcome)
        if outcome.error is None and not outcome.abandoned:
            assert observation is not None
            assert step.kind in cells.ENDING, f"{cell.tag} has ended well, which can't be"
            if step.kind == "noisy":
                assert observation.rest == ("0", "1", "2", "3", "4"), f"{cell.tag} has lost output: {observation}"
            if step.decisions:
                assert len(observation.rest) == len(step.decisions), f"{cell.tag} has lost calls: {observation}"
                self._calls.completed(cell.tag, observation.rest)

    async def _stream(
        self,
        executor: CodeExecutor,
        code: str,
        timeout: float,
        approve: Callable[[ApprovalRequest], Coroutine[Any, Any, None]],
        how: plan.How,
    ) -> CodeExecutionResult | None:
        """Executes code and returns its result, or None if the stream was left."""
        chunks: list[str] = []
        async with aclosing(executor.stream(code, timeout, chunks=how != "stream")) as items:
            async for item in items:
                match item:
                    case ApprovalRequest():
                        self._running[asyncio.create_task(approve(item))] = f"the decision on {item}"
                    case CodeExecutionChunk():
                        chunks.append(item.text)
                    case CodeExecutionResult():
                        shown = "".join(chunks).rstrip("\n")
                        assert how == "stream" or shown == item.text, f"chunks are not the output: {chunks}"
                        return item
                if how == "leave":
                    return None
        raise AssertionError("a stream has ended without its result")

    async def _decide(
        self, request: ApprovalRequest, call: str, decision: plan.Decision, delay: float, tag: str
    ) -> None:
        if decision == "ignore":
            return
        await asyncio.sleep(delay + (APPROVAL_TIMEOUT if decision == "late" else 0))
        ended = self._ends.get(tag)
        try:
            counts = await (request.reject("for the test") if decision == "reject" else request.accept())
        except ApprovalExpiredError:
            counts = False
        if counts and decision != "reject":
            self._calls.accepted(call)
        assert not counts or ended is None or time.monotonic() - ended < WITHDRAWN, f"{call} was decided after its end"

    async def _reset(self, executor: CodeExecutor, model: ExecutorModel) -> None:
        try:
            with model.reset():
                await executor.reset()
        except GatewayError:
            model.trouble()  # there may be no kernel now
            if not model.troubled:
                raise
        except RuntimeError:
            if model.up and not model.switched:
                raise

    async def _switch(self, switch: Callable[[], Awaitable[None]], model: ExecutorModel, *, up: bool) -> None:
        try:
            with model.switch(up):
                await switch()
        except GatewayError:
            if not model.troubled:
                raise
        except RuntimeError as exc:
            if str(exc) != "the code executor is already running":
                raise

    async def _cancel(
        self, step: Step, task: "asyncio.Task[None]", executor: CodeExecutor, model: ExecutorModel
    ) -> None:
        assert step.cancel is not None
        await asyncio.sleep(step.cancel.delay)
        for _ in range(step.cancel.times):
            if step.cancel.by == "task":
                task.cancel()
            elif executor.cancel():
                model.cancelled()
            await asyncio.sleep(0)

    async def _settle(self) -> None:
        """Waits for all that is under way, and shows that each executor works and that no kernel is too many."""
        while self._running:
            done, _ = await asyncio.wait(self._running, timeout=BOUND, return_when=asyncio.FIRST_COMPLETED)
            assert done, f"no end: {stacks(self._running)}"
            self._check_ended()
        for executor, model in zip(self._executors, self._models, strict=True):
            if model.up is None:
                await self._bounded(self._switch(executor.stop, model, up=False), "a stop")
            if not model.up:
                await self._bounded(self._switch(executor.start, model, up=True), "a start")
            assert model.up, "an executor does not start"
            for _ in range(2):
                await self._bounded(self._clean_cell(executor, model), "a cell")
        kernels = range(len(self._executors), len(self._executors) + 2)  # perhaps with the spare one
        await servers.until(lambda: not (found := processes(KERNEL)) or len(found) in kernels)

    async def _clean_cell(self, executor: CodeExecutor, model: ExecutorModel) -> None:
        self._count += 1
        await self._cell(Step("cell"), f"settled{self._count}", executor, model)

    async def _bounded(self, work: Coroutine[Any, Any, None], what: str) -> None:
        task = asyncio.create_task(work)
        done, _ = await asyncio.wait([task], timeout=BOUND)
        assert done, f"no end of {what}: {stacks([task])}"
        task.result()

    @contextmanager
    def _noted(self) -> Generator[None]:
        """Keeps a failure that the executor would make an error of the cell's code."""
        try:
            yield
        except AssertionError as fault:
            self._faults.append(fault)
            raise

    def _check_ended(self) -> None:
        for fault in self._faults:
            raise fault
        for task in [task for task in self._running if task.done()]:
            what = self._running.pop(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                error.add_note(what)
                raise error

    async def _clean_up(self) -> None:
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=BOUND)
        for executor in self._executors:
            await asyncio.wait_for(executor.stop(), BOUND)


def stacks(tasks: Iterable["asyncio.Task[None]"]) -> str:
    """Returns where tasks wait, and all other ones."""
    shown = io.StringIO()
    for task in {*tasks, *asyncio.all_tasks()}:
        task.print_stack(file=shown)
    return shown.getvalue()


async def failure(workspace: Path, steps: Sequence[Step], *, sandbox: bool) -> str | None:
    """Runs a plan and returns what went wrong."""
    workspace.mkdir()
    try:
        await Run(workspace, sandbox=sandbox).run(steps)
    except Exception as exc:
        return "".join(traceback.format_exception(exc))
    return None


async def test_an_executor_keeps_its_promises_whatever_is_done_to_it(tmp_path: Path, mode: Mode):
    chosen = plan.make_plan(SEED, STEPS)
    runs = count()

    async def problem_of(steps: Sequence[Step]) -> str | None:
        return await failure(tmp_path / f"run{next(runs)}", steps, sandbox=mode.sandbox)

    async def fails(steps: Sequence[Step]) -> bool:
        return await problem_of(steps) is not None

    problem = await problem_of(chosen.steps)
    if problem is not None:
        if "MODEL_SHRINK" in os.environ:
            chosen = replace(chosen, steps=await plan.shortened(chosen.steps, fails))
        pytest.fail(f"{problem}\n{chosen}")
