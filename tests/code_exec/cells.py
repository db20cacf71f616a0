"""Code that tests execute, and what they ask of its kernel."""

import asyncio
from typing import Literal

from ipybox import CodeExecutionResult, CodeExecutor
from tests import servers
from tests.servers import WAIT

SWALLOWS_INTERRUPTS = """
import time
while True:
    try:
        print("begun", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        pass
"""
SLEEPS = "import time\nprint('begun', flush=True)\ntime.sleep(60)"


async def begun(executor: CodeExecutor, code: str, timeout: float | None = WAIT) -> "asyncio.Task[CodeExecutionResult]":
    """Executes code in a task, which is returned when the code has printed something."""
    printed = asyncio.Event()

    async def run() -> CodeExecutionResult:
        async for item in executor.stream(code, timeout, chunks=True):
            printed.set()
            if isinstance(item, CodeExecutionResult):
                return item
        raise AssertionError

    task = asyncio.create_task(run())
    printing = asyncio.create_task(printed.wait())
    async with asyncio.timeout(WAIT):
        await asyncio.wait([task, printing], return_when=asyncio.FIRST_COMPLETED)
    printing.cancel()
    return task


async def text(executor: CodeExecutor, code: str) -> str | None:
    async with asyncio.timeout(WAIT):
        return (await executor.execute(code)).text


async def process_of(executor: CodeExecutor, which: Literal["kernel", "gateway"]) -> int:
    """Returns the id of a process, which inside of a sandbox has another one."""
    ids = await text(executor, "import os; print(os.getpid(), os.readlink('/proc/self/ns/pid'))")
    assert ids is not None
    pid, namespace = ids.splitlines()[-1].split()
    kernel = servers.outside(int(pid), namespace)
    return kernel if which == "kernel" else servers.parent(kernel)
