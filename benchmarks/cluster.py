"""Kernels on a cluster, compared with kernels of this machine: `make bench-cluster`.

It measures `CodeExecutor` on the cluster of `tests/cluster/cluster.sh`, where the nodes are network namespaces of this
machine: the costs of the command, of the connection through it and of the scheduler, without those of a real network.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from benchmarks.machine import commit, machine
from benchmarks.subject import SUBJECTS
from benchmarks.tools import CALL, TEXT
from ipybox import CodeExecutor, generate_mcp_sources
from ipybox.errors import IpyboxError
from tests.cluster.machines import DIRECTORY, on_head, srun, ssh

#: What is measured of each round, and of `--quick`.
CELLS, CALLS = 60, 100
QUICK = 3

#: Characters of a line, and lines, of the output that is measured: 40 MB.
LINE, LINES = 100_000, 400

DIES = """
import os, pathlib, signal, time
pathlib.Path("killed").write_text(str(time.time()))
os.kill(os.getpid(), signal.SIGKILL)
"""
SLEEPS = "print('started', flush=True)\nimport time; time.sleep(60)"

#: Files of 1 MiB that are sent to a node that does not share the workspace.
FILES = 16

#: The unit and the target of each figure.
FIGURES = {
    "start": ("s", "local + 1 s"),
    "cell": ("ms", "local + 8 ms"),
    "tool call": ("ms", "local + 5 ms"),
    "output": ("MB/s", "≥ 15 MB/s"),
    "kernel death seen": ("s", "≤ 0.2 s"),
    "cancelled job seen": ("s", "≤ 2 s"),
    "16 MiB of files, there": ("s", "≤ 5 s"),
}


class Side:
    """One engine, or none, with an executor that runs.

    Args:
        command: The engine; None for kernels of this machine.
        workspace: The directory of its code.
        quick: Whether to measure less.
    """

    def __init__(self, command: list[str] | None, workspace: Path, *, quick: bool):
        self._command = command
        self._workspace = workspace
        self._quick = quick
        self._executor = self._new(workspace)
        #: A workspace that is empty on nodes, and its executor.
        self._unshared = DIRECTORY / "private" / workspace.name
        self._apart = self._new(self._unshared)

    async def open(self, stack: AsyncExitStack) -> None:
        """Starts the executor that all but `start` measures."""
        server = {"command": sys.executable, "args": [str(SUBJECTS / "tool_server.py")]}
        await generate_mcp_sources("measured", server, self._workspace / "mcptools")
        await stack.enter_async_context(self._executor)
        if self._command is not None:
            (self._unshared / "mcptools").mkdir(parents=True)
            await stack.enter_async_context(self._apart)
            await self._apart.execute("1")

    async def start(self) -> list[float]:
        """Seconds from the start of an executor to its first result."""
        began = time.perf_counter()
        async with self._new(self._workspace) as executor:
            await executor.execute("1")
            return [time.perf_counter() - began]

    async def cell(self) -> list[float]:
        """Milliseconds of cells."""
        seconds: list[float] = []
        for _ in range(QUICK if self._quick else CELLS):
            began = time.perf_counter()
            await self._executor.execute("1 + 1")
            seconds.append((time.perf_counter() - began) * 1000)
        return seconds

    async def tool_call(self) -> list[float]:
        """Milliseconds of tool calls, in the kernel."""
        code = CALL.format(text=TEXT, count=QUICK if self._quick else CALLS)
        printed = (await self._executor.execute(f"{code}\nprint(seconds)")).text
        return [each * 1000 for each in json.loads(printed or "")]

    async def output(self) -> list[float]:
        """MB of output in each second."""
        lines = QUICK if self._quick else LINES
        began = time.perf_counter()
        text = (await self._executor.execute(f"for _ in range({lines}): print('x' * {LINE})")).text or ""
        seconds = time.perf_counter() - began
        assert len(text) == lines * (LINE + 1) - 1
        return [len(text) / 1e6 / seconds]

    async def death(self) -> list[float]:
        """Seconds until an executor reports that its kernel was killed."""
        with suppress(IpyboxError):
            await self._executor.execute(DIES)
        seconds = time.time() - float((self._workspace / "killed").read_text())
        await self._executor.execute("1")
        return [seconds]

    async def cancellation(self) -> list[float]:
        """Seconds until an executor reports that its job was cancelled; only Slurm has jobs."""
        if self._command is None or "srun" not in self._command:
            return []
        async with self._new(self._workspace) as executor:
            await executor.execute("1")
            running = executor.stream(SLEEPS, chunks=True)
            await anext(running)
            job = max(map(int, on_head("squeue", "--noheader", "--format=%i").split()))
            began = time.perf_counter()
            on_head("scancel", str(job))
            with suppress(IpyboxError):
                async for _ in running:
                    pass
            return [time.perf_counter() - began]

    async def files_there(self) -> list[float]:
        """Seconds of a cell before which files are sent to the node."""
        if self._command is None:
            return []
        for number in range(FILES):
            (self._unshared / "mcptools" / f"there-{number}").write_bytes(os.urandom(1 << 20))
        began = time.perf_counter()
        sizes = (
            await self._apart.execute("import os; sum(each.stat().st_size for each in os.scandir('mcptools'))")
        ).text
        seconds = time.perf_counter() - began
        assert int(sizes or "") >= FILES << 20
        return [seconds]

    def _new(self, workspace: Path) -> CodeExecutor:
        return CodeExecutor(working_dir=workspace, engine=self._command)


async def measure(rounds: int, seconds: float, *, quick: bool) -> dict[str, dict[str, list[float]]]:
    """Returns all samples, by figure and side; the sides take turns, after a round that does not count.

    Args:
        rounds: How many rounds.
        seconds: After that long, no further round starts.
        quick: Whether to measure less, and all rounds.
    """
    deadline = time.monotonic() + seconds
    commands = {"local": None, "ssh": ssh(), "slurm": srun()}
    samples: dict[str, dict[str, list[float]]] = {name: {side: [] for side in commands} for name in FIGURES}
    async with AsyncExitStack() as stack:
        sides: dict[str, Side] = {}
        for name, command in commands.items():
            workspace = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"ipybox-bench-{name}-")))
            sides[name] = Side(command, workspace, quick=quick)
            await sides[name].open(stack)
        for number in range(rounds if quick else rounds + 1):
            if time.monotonic() > deadline:
                break
            for name, side in sides.items():
                works: list[Callable[[], Awaitable[list[float]]]] = [
                    *(side.start, side.cell, side.tool_call, side.output, side.death, side.cancellation),
                    side.files_there,
                ]
                for figure, work in zip(FIGURES, works, strict=True):
                    values = await work()
                    if number or quick:
                        samples[figure][name] += values
    return samples


def report(medians: dict[str, dict[str, float]]) -> str:
    """Returns the medians as a table of Markdown."""
    lines = ["| figure | on this machine | SSH host | Slurm | target |", "| --- | --- | --- | --- | --- |"]
    for figure, (unit, target) in FIGURES.items():
        digits = 1 if unit != "s" else 2
        cells = [
            f"{medians[figure][side]:.{digits}f} {unit}" if side in medians[figure] else ""
            for side in ("local", "ssh", "slurm")
        ]
        lines.append(f"| {figure} | {' | '.join(cells)} | {target} |")
    return "\n".join(lines)


def main() -> None:
    """Measures, prints a table, and writes the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description="Measures kernels on a cluster.")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="how often the sides take turns")
    parser.add_argument("--seconds", type=float, default=600, metavar="S", help="start no round after that long")
    parser.add_argument("--quick", action="store_true", help="once, with less of all, to see that everything works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the medians")
    arguments = parser.parse_args()
    if not (DIRECTORY / "slurm.conf").exists():
        sys.exit("benchmarks: there is no cluster: `make bench-cluster` brings it up")
    os.environ["SLURM_CONF"] = str(DIRECTORY / "slurm.conf")
    samples = asyncio.run(measure(1 if arguments.quick else arguments.rounds, arguments.seconds, quick=arguments.quick))
    medians = {
        figure: {side: round(median(values), 4) for side, values in sides.items() if values}
        for figure, sides in samples.items()
    }
    print(report(medians))
    if arguments.json is not None:
        content = {
            "date": datetime.now(UTC).date().isoformat(),
            "commit": commit(),
            "rounds": len(samples["start"]["local"]),
            "machine": machine().model_dump(),
            "units": {figure: unit for figure, (unit, _) in FIGURES.items()},
            "medians": medians,
        }
        arguments.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
