"""What an application may count on, whatever it and its kernels do: a model of executors and of their tool calls.

The model is told of all that begins and ends, and raises AssertionError where that can't be. It knows no more than what
`CodeExecutor` documents: variables stay until somebody says otherwise, and nobody says so if they are there.
"""

import time
from collections import Counter, deque
from collections.abc import Awaitable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field

from ipybox.code_exec.executor import STATE_LOST, CodeExecutionResult
from ipybox.errors import CodeExecutionError, ExecutionCancelledError, ExecutionTimeoutError
from tests.faults.cells import Observation, observed

#: Seconds after a kernel was killed in which its cell may say so: somebody else may have to look first.
LATE = 10.0

#: How many cells of an executor are remembered: a kernel tells fewer of them.
KEPT = 200

#: Messages that say that variables are lost.
LOST = (
    "the kernel died",
    "the kernel did not start: its process exited",
    "its state is lost",
    "is lost",
    "could not be restarted",
    "the kernel gateway is not responding",
    "the kernel was reset while the code ran",
    "the connection to the kernel was closed while the code ran",
)


#: Messages that say that the executor was reset or stopped.
ENDED = ("was reset while", "was closed while")


@dataclass
class Outcome:
    """What became of a cell.

    Attributes:
        text: What it has put out, as far as the application got to know.
        notices: What ipybox has said about it.
        error: What it has raised.
        abandoned: Whether the application has cancelled or left it, and knows nothing.
    """

    text: str | None = None
    notices: list[str] = field(default_factory=list[str])
    error: Exception | None = None
    abandoned: bool = False

    @property
    def message(self) -> str:
        """The message of the error."""
        return "" if self.error is None else str(self.error)

    @property
    def not_begun(self) -> bool:
        """Whether an error has said that the code did not run and will not run."""
        if isinstance(self.error, ExecutionCancelledError):
            return self.error.output is None
        return isinstance(self.error, TimeoutError) and not isinstance(self.error, ExecutionTimeoutError)


@dataclass
class Cell:
    """A cell that was given to an executor.

    Attributes:
        tag: Its name.
        dead: Kernels that it can't run in, as they were replaced before.
        changes: What the executor's count of changes was.
        cancels: How often the executor had been cancelled.
        limited: Whether it has a short time limit.
        since: When that was.
    """

    tag: str
    dead: frozenset[str]
    changes: int
    cancels: int
    limited: bool
    since: float = field(default_factory=time.monotonic)


class ExecutorModel:
    """What is known of one executor."""

    def __init__(self) -> None:
        #: Whether it runs; None if that can't be known.
        self.up: bool | None = False
        self._kernel: str | None = None
        self._tags: dict[int, str] = {}
        self._told: list[str] = []
        self._dead: set[str] = set()
        self._seen: set[str] = set()
        self._given: deque[str] = deque(maxlen=KEPT)
        self._not_begun: set[str] = set()
        self._changing = 0
        self._changes = 0
        self._changed = False
        self._switching = 0
        self._switches = 0
        self._cancels = 0
        #: When the kernel may last have died, or was last replaced by force.
        self._trouble = 0.0
        self._told_at = 0.0

    @property
    def troubled(self) -> bool:
        """Whether the kernel or its gateway may have died lately."""
        return time.monotonic() - self._trouble < LATE

    @property
    def switched(self) -> bool:
        """Whether the executor is being started or stopped."""
        return self._switching > 0

    def trouble(self) -> None:
        """Notes that the kernel may die now."""
        self._trouble = time.monotonic()

    def cancelled(self) -> None:
        """Notes that the code which is being executed was cancelled."""
        self._cancels += 1

    def given(self, tag: str, *, limited: bool) -> Cell:
        """Notes that a cell begins."""
        self._given.append(tag)
        return Cell(tag, frozenset(self._dead), self._changes, self._cancels, limited)

    @contextmanager
    def reset(self) -> Generator[None]:
        """Notes that the kernel is being replaced. That goes on if the caller is cancelled."""
        with self._change(frozenset(self._seen)):
            yield

    @contextmanager
    def switch(self, up: bool) -> Generator[None]:
        """Notes that the executor is being started or stopped."""
        self._switching += 1
        self._switches += 1
        mine = self._switches
        try:
            with self._change(frozenset() if up else frozenset(self._seen)):
                yield
        except RuntimeError:  # it was in that state already
            if self._switching > 1 or self._switches != mine:
                self.up = None
            raise
        except BaseException:
            self.up = None
            raise
        else:
            self.up = up if self._switching == 1 and self._switches == mine else None
        finally:
            self._switching -= 1

    def ended(self, cell: Cell, outcome: Outcome) -> Observation | None:
        """Checks the outcome of a cell and returns what it has said of its kernel."""
        if outcome.not_begun:
            self._not_begun.add(cell.tag)
        observation = observed(cell.tag, outcome.text)
        if STATE_LOST in "\n".join(outcome.notices):
            assert self._trouble >= self._told_at, f"state was said to be lost again, without a reason, to {cell.tag}"
            self._told_at = cell.since
        if observation is not None:
            self._check_state(cell, outcome, observation)
        self._check_error(cell, outcome)
        if outcome.error is not None and any(part in outcome.message for part in LOST):
            self._told.append(f"{cell.tag}: {outcome.message}")
        return observation

    @contextmanager
    def _change(self, replaced: frozenset[str]) -> Generator[None]:
        """Notes a change, after which some kernels are not there any more."""
        self._changing += 1
        self._changes += 1
        self._changed = True
        try:
            yield
        except RuntimeError:  # it was in the wrong state: nothing has changed
            replaced = frozenset()
            raise
        finally:
            self._dead |= replaced
            self._changing -= 1
            self._changes += 1
            self._changed = True

    def _check_state(self, cell: Cell, outcome: Outcome, observation: Observation) -> None:
        kernel, tags = observation.kernel, observation.tags
        told_now = any(STATE_LOST in notice for notice in outcome.notices)
        ran = list(tags.values())
        assert ran.count(cell.tag) == 1, f"the code of {cell.tag} ran more than once: {ran}"
        assert ran[-1] == cell.tag, f"the code of others ran in the middle of {cell.tag}: {ran}"
        assert kernel not in cell.dead, f"{cell.tag} ran in a kernel that was to be gone: {kernel}"
        assert set(ran) <= set(self._given), f"code of other executors ran in the kernel of {cell.tag}: {tags}"
        assert not (late := set(ran) & self._not_begun), f"code ran that was said not to run: {late}"
        if kernel == self._kernel:
            whole = all(tags.get(number, tag) == tag for number, tag in self._tags.items())
            assert whole, f"{cell.tag} has lost state: {self._tags} became {tags}"
            assert max(tags) > max(self._tags), f"{cell.tag} has lost state: {self._tags} became {tags}"
            assert not told_now, f"state was said to be lost that is there, to {cell.tag}"
            assert not self._told, f"state was said to be lost that is there: {self._told}"
        elif self._kernel is not None:
            told = told_now or self._told or self._changed or self._changing
            assert told, f"state was lost untold before {cell.tag}: {self._kernel} became {kernel}"
        self._kernel, self._tags = kernel, tags
        self._seen.add(kernel)
        self._told.clear()
        self._changed = self._changing > 0

    def _check_error(self, cell: Cell, outcome: Outcome) -> None:
        changed = cell.changes != self._changes or self._changing > 0
        in_trouble = time.monotonic() - self._trouble < LATE or self._trouble > cell.since
        error, message = outcome.error, outcome.message
        match error:
            case None:
                assert outcome.abandoned or outcome.text, f"{cell.tag} has put out nothing"
                return
            case ExecutionCancelledError():
                expected = self._cancels > cell.cancels
            case TimeoutError():
                expected = cell.limited
            case CodeExecutionError() if f"ValueError: {cell.tag}" in message:
                expected = True
            case CodeExecutionError() if any(part in message for part in ENDED):
                expected = changed
            case CodeExecutionError() if any(part in message for part in LOST):
                expected = changed or in_trouble
            case RuntimeError():
                expected = changed or self.up is not True
            case _:
                expected = False
        assert expected, f"{cell.tag} failed for no reason: {error!r}"
        if "was interrupted and keeps its state" not in message and "its state is lost" in message:
            assert in_trouble, f"{cell.tag} yields to interrupts, but its kernel was restarted"


class Calls:
    """What is known of tool calls, by their arguments: each is requested by one cell."""

    def __init__(self) -> None:
        self._requested: Counter[str] = Counter()
        self._trouble = 0.0
        self._accepted: set[str] = set()
        self._certain: set[str] = set()

    def requested(self, call: str, cell: str) -> None:
        """Notes a request for approval that a cell's consumer has got."""
        self._requested[call] += 1
        assert call.startswith(f"{cell}."), f"the request of {call} was given to {cell}"
        assert self._requested[call] == 1, f"{call} was requested more than once"

    def trouble(self) -> None:
        """Notes that an MCP server was killed."""
        self._trouble = time.monotonic()

    def accepted(self, call: str) -> None:
        """Notes that a call was accepted in time."""
        self._accepted.add(call)

    def completed(self, cell: str, rest: Iterable[str]) -> None:
        """Checks what the code of a cell that ended well says about its calls."""
        for call, outcome in (line.split(" ", 1) for line in rest):
            assert self._requested[call], f"{call} of {cell} was not requested: {outcome}"
            if outcome == call:
                assert call in self._accepted, f"{call} was made, but not accepted"
                self._certain.add(call)
            elif call in self._accepted:
                expected = "was reset" in outcome or "was stopped" in outcome
                expected = expected or time.monotonic() - self._trouble < LATE
                assert expected, f"{call} was accepted, but failed: {outcome}"
            else:
                assert "was rejected" in outcome or "not approved" in outcome, f"{call}: {outcome}"

    def check(self, made: Counter[str]) -> None:
        """Checks which calls an MCP server has got, and forgets all calls: none is made from now on."""
        assert not (never := made.keys() - self._accepted), f"calls were made that were not accepted: {never}"
        assert not (twice := {call for call in made if made[call] > 1}), f"calls were made more than once: {twice}"
        assert not (lost := self._certain - made.keys()), f"calls were said to be made, but were not: {lost}"
        self._requested.clear()
        self._accepted.clear()
        self._certain.clear()


async def outcome_of(execution: Awaitable[CodeExecutionResult | None]) -> Outcome:
    """Returns what became of an execution; None is one that was left."""
    try:
        result = await execution
    except CodeExecutionError as error:
        return Outcome(error.text, error.notices, error)
    except ExecutionTimeoutError as error:
        return Outcome(error.text, error.notices, error)
    except (TimeoutError, RuntimeError) as error:
        return Outcome(error=error)
    return Outcome(abandoned=True) if result is None else Outcome(result.text, result.notices)
