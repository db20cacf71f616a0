"""Measures the CPU time that tool calls and output take of each process, for `benchmarks.scaling.simulation`."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmarks.machine import commit, describe_machine, machine
from benchmarks.scaling.figures import Demand, Figures, Place, Point
from benchmarks.tools import CALL_AT_ONCE, SERVER, TEXT
from ipybox import CodeExecutor, generate_mcp_sources

NODE = [sys.executable, "-P", "-m", "ipybox.node"]

#: What the command line of an MCP server, and of the process that guards it, contains.
SERVER_MARK = "tool_server.py"

#: A cell that prints a number of MB.
PRINT = "for _ in range({}): print('x' * 999_999)"


async def measure(threads: Sequence[int], calls: int, megabytes: int) -> Figures:
    """Returns the figures of this machine, which must do nothing else.

    Args:
        threads: Numbers of threads.
        calls: How many calls each number makes.
        megabytes: How much is printed.
    """
    on = machine()
    load = os.getloadavg()[0]
    return Figures(
        date=date.today().isoformat(),
        commit=commit(),
        machine=describe_machine(on),
        cores=on.cores,
        load=round(load, 2),
        local=await _place(None, threads, calls, megabytes),
        engine=await _place(NODE, threads, calls, megabytes),
    )


async def _place(engine: list[str] | None, threads: Sequence[int], calls: int, megabytes: int) -> Place:
    with TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        await generate_mcp_sources("measured", SERVER, Path(directory) / "mcptools")
        async with CodeExecutor(working_dir=directory, engine=engine) as executor:
            await executor.execute(CALL_AT_ONCE.format(text=TEXT, threads=2, count=50))
            points = [await _point(executor, number, calls) for number in threads]
            await executor.execute(PRINT.format(2))
            before, began = _cpu_times(), time.perf_counter()
            await executor.execute(PRINT.format(megabytes))
            seconds = time.perf_counter() - began
            return Place(
                points=points,
                megabyte=_spent(before, _cpu_times(), megabytes),
                output=round(megabytes / seconds, 1),
            )


async def _point(executor: CodeExecutor, threads: int, calls: int) -> Point:
    before = _cpu_times()
    await executor.execute(CALL_AT_ONCE.format(text=TEXT, threads=threads, count=calls))
    spent = _spent(before, _cpu_times(), calls)
    return Point(threads=threads, rate=round(float(await executor.get("rate")), 1), call=spent)


def _cpu_times() -> Demand:
    """Returns the CPU time until now of this process, and of what it has started."""
    code = server = 0.0
    for process in psutil.Process().children(recursive=True):
        times = process.cpu_times()
        if any(SERVER_MARK in argument for argument in process.cmdline()):
            server += times.user + times.system
        else:
            code += times.user + times.system
    return Demand(application=time.process_time(), code=code, server=server)


def _spent(before: Demand, after: Demand, count: int) -> Demand:
    return Demand(
        application=round((after.application - before.application) / count, 7),
        code=round((after.code - before.code) / count, 7),
        server=round((after.server - before.server) / count, 7),
    )


async def main(file: Path, quick: bool) -> None:
    """Measures, and writes a file."""
    figures = await (measure((1, 2), 20, 2) if quick else measure((1, 2, 4, 8, 16), 1200, 100))
    await asyncio.to_thread(file.write_text, figures.model_dump_json(indent=2) + "\n")
