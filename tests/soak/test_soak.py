"""Four sessions at once do all that sessions can do, for minutes: each answer is right, and nothing grows.

Two are sessions of ipybox's MCP server, two are executors. Kernels, gateways and MCP servers are killed meanwhile. What
the answers must be is what the model test knows (`tests/faults/model.py`). `make soak MINUTES=10` runs it for longer
than a minute and prints what it has found; `SEED` picks other operations.
"""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ipybox.errors import GatewayError, MCPServerError
from tests.conftest import Mode
from tests.faults import cells
from tests.faults.model import Calls, Cell, ExecutorModel, Outcome
from tests.faults.programs import GATEWAY, KERNEL, MCP_SERVER, kill, processes
from tests.seed import SEED
from tests.servers import WAIT
from tests.soak.measure import Measurements
from tests.soak.sessions import Session, scripted, sessions

MINUTES = float(os.environ.get("SOAK_MINUTES", "0.25"))

#: In seconds, only the sandbox shows something: it is all that runs without one, and more.
MODES = list(Mode) if "SOAK_MINUTES" in os.environ else [Mode.SANDBOX]

#: Seconds between samples, in each of which something is killed.
ROUND = 2.0

#: The gateways, which each may keep a spare kernel.
GATEWAYS = 2

#: Seconds in which each operation must end.
BOUND = 90.0

#: What is killed, round after round.
FAULTS = (KERNEL, MCP_SERVER, GATEWAY, KERNEL, MCP_SERVER, KERNEL, MCP_SERVER, KERNEL)

#: How often each operation is chosen, of a thousand times.
WEIGHTS = {
    "quick": 700,
    "error": 80,
    "tools": 150,
    "tools at once": 40,
    "noisy": 10,
    "timeout": 4,
    "cancel": 6,
    "die": 2,
    "reset": 4,
    "reset amid": 2,
    "register": 2,
}


class Worker:
    """Works with one session, and checks all that comes of it."""

    def __init__(self, session: Session, calls: Calls, log: Path, rng: random.Random):
        self.model = ExecutorModel()
        self.model.up = True
        self.operations = 0
        self.wrong: list[str] = []
        self._session = session
        self._calls = calls
        self._log = log
        self._rng = rng
        self._count = 0

    async def work(self, until: float) -> None:
        """Does one thing after another until a time comes."""
        while time.monotonic() < until:
            (name,) = self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
            await self._bounded(name)

    async def settle(self) -> None:
        """Runs a cell with a tool call, after which the session has a kernel and an MCP server."""
        for _ in range(2):
            await self._bounded("tools")

    async def _bounded(self, name: str) -> None:
        self.operations += 1
        try:
            async with asyncio.timeout(BOUND):
                await self._operations(name)()
        except TimeoutError:
            self.wrong.append(f"{self._session.name}: {name} has no end")
        except Exception as exc:
            self.wrong.append(f"{self._session.name}: {name}: {type(exc).__name__}: {exc}")

    def _operations(self, name: str) -> Callable[[], Awaitable[None]]:
        operations: dict[str, Callable[[], Awaitable[None]]] = {
            "timeout": lambda: self._cell("sleep", timeout=0.2),
            "cancel": self._cancel,
            "reset": self._reset,
            "reset amid": self._reset_amid,
            "register": self._register,
        }
        kinds: dict[str, cells.Kind] = {kind: kind for kind in (*cells.ENDING, "die")}
        return operations[name] if name in operations else lambda: self._cell(kinds[name])

    async def _cell(self, kind: cells.Kind, timeout: float | None = None) -> None:
        self._count += 1
        tag = f"{self._session.name}{self._count}"
        tools = kind in ("tools", "tools at once")
        calls = tuple(f"{tag}.{number}" for number in range(self._rng.randint(1, 3) if tools else 0))
        if kind in cells.FATAL:
            self.model.trouble()
        cell = self.model.given(tag, limited=timeout is not None)
        outcome = Outcome(abandoned=True)
        try:
            outcome = await self._session.run(cells.code(kind, tag, calls), timeout or WAIT * 3, tag, calls)
        finally:
            if kind in cells.FATAL:
                self.model.trouble()
            self._check(kind, cell, outcome, calls)

    def _check(self, kind: cells.Kind, cell: Cell, outcome: Outcome, calls: tuple[str, ...]) -> None:
        observation = self.model.ended(cell, outcome)
        if outcome.error is None and not outcome.abandoned:
            assert observation is not None
            assert kind in cells.ENDING, f"{cell.tag} has ended well, which can't be"
            if kind == "noisy":
                assert observation.rest == ("0", "1", "2", "3", "4"), f"{cell.tag} has lost output: {observation}"
            if calls:
                assert len(observation.rest) == len(calls), f"{cell.tag} has lost calls: {observation}"
                self._calls.completed(cell.tag, observation.rest)

    async def _cancel(self) -> None:
        execution = asyncio.create_task(self._cell(self._rng.choice(("sleep", "async sleep", "late sleep", "tools"))))
        await asyncio.wait([execution], timeout=self._rng.uniform(0, 0.1))
        execution.cancel()
        try:
            await execution
        except asyncio.CancelledError:
            if execution.cancelled():
                return
            raise

    async def _reset(self) -> None:
        try:
            with self.model.reset():
                await self._session.reset()
        except GatewayError:
            if not self.model.troubled:
                raise
        await self._cell("quick")

    async def _reset_amid(self) -> None:
        await self._cell("quick")
        execution = asyncio.create_task(self._cell("sleep", timeout=WAIT))
        await asyncio.wait([execution], timeout=self._rng.uniform(0, 0.2))
        await self._reset()
        await execution

    async def _register(self) -> None:
        params = scripted(self._log)
        name = self._rng.choice(("scripted", f"extra_{self._session.name}"))
        if name != "scripted":
            params["args"] += self._rng.sample(["--noisy", "--strict"], self._rng.randint(0, 2))
        try:
            await self._session.register(name, params)
        except (MCPServerError, AssertionError) as exc:
            if "it was killed by signal 9" not in str(exc):  # as the soak does, also while a server starts
                raise
            await self._session.register(name, params)


class Soak:
    """A soak of some minutes."""

    def __init__(self, workers: list[Worker], calls: Calls, log: Path, rng: random.Random):
        self._workers = workers
        self._calls = calls
        self._log = log
        self._rng = rng
        self._measurements = Measurements()
        self._killed: Counter[str] = Counter()
        self._wrong: list[str] = []

    @property
    def operations(self) -> int:
        """How many operations there were."""
        return sum(worker.operations for worker in self._workers)

    async def run(self, minutes: float) -> None:
        """Runs rounds until the time is over: all sessions work, something is killed, and a sample is taken."""
        end = time.monotonic() + 60 * minutes
        await self._settle()
        while time.monotonic() < end:
            until = time.monotonic() + ROUND
            await asyncio.gather(self._kill(), *(worker.work(until) for worker in self._workers))
            await self._settle()
            await self._measurements.sample(self.operations)

    def wrong(self) -> list[str]:
        """Returns what was wrong."""
        return [*self._wrong, *(fault for worker in self._workers for fault in worker.wrong)]

    def exceeded(self) -> list[str]:
        """Returns what has grown more than it may."""
        return self._measurements.exceeded()

    def summary(self) -> str:
        """Returns what was done, and what has grown."""
        killed = ", ".join(f"{Path(name).name} {number}x" for name, number in self._killed.items())
        lines = [f"{self.operations:,} operations, {len(self.wrong())} wrong answers; killed: {killed}"]
        for name, (slope, total) in self._measurements.slopes().items():
            lines.append(f"{name}: {slope:+.3f} for 1,000 operations, {total:+.1f} in all")
        return "\n".join(lines)

    async def _kill(self) -> None:
        """Kills something at some time of a round."""
        await asyncio.sleep(self._rng.uniform(0, ROUND * 0.7))
        what = FAULTS[self._killed.total() % len(FAULTS)]
        self._killed[what] += 1
        if what == MCP_SERVER:
            self._calls.trouble()
        else:
            for worker in self._workers:
                worker.model.trouble()
        await kill(what, 1)

    async def _settle(self) -> None:
        """Waits until all sessions have a kernel and an MCP server, and there are no other ones but spare kernels."""
        await asyncio.gather(*(worker.settle() for worker in self._workers))
        for program, spare in (KERNEL, GATEWAYS), (MCP_SERVER, 0):
            expected = range(len(self._workers), len(self._workers) + spare + 1)
            end = time.monotonic() + WAIT
            while (found := len(await asyncio.to_thread(processes, program))) not in expected:
                if time.monotonic() > end:
                    self._wrong.append(f"there are {found} of {program}")
                    break
        self._check_calls()

    def _check_calls(self) -> None:
        """Checks the calls that MCP servers have got since the last time."""
        made = [line.removeprefix("call ") for line in self._log.read_text().splitlines() if line.startswith("call ")]
        self._log.write_text("")
        try:
            self._calls.check(Counter(made))
        except AssertionError as exc:
            self._wrong.append(str(exc))


@pytest.mark.parametrize("mode", MODES, indirect=True)
async def test_sessions_answer_right_for_minutes_and_nothing_grows(
    tmp_path: Path, mode: Mode, capsys: pytest.CaptureFixture[str]
):
    calls, log, rng = Calls(), tmp_path / "calls.log", random.Random(SEED)
    async with sessions(tmp_path, mode, calls, scripted(log)) as running:
        workers = [Worker(session, calls, log, random.Random(rng.random())) for session in running]
        soak = Soak(workers, calls, log, rng)
        await soak.run(MINUTES)
    with capsys.disabled():
        print(f"\nSoak of {MINUTES:g} minutes, {mode}, seed {SEED}:\n{soak.summary()}")
    faults = [*soak.wrong(), *soak.exceeded()]
    assert not faults, "\n".join([*faults, soak.summary()])
