"""What an executor does at the moment of a fault: each moment is a context that brings it there."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ipybox import ApprovalRequest, CodeExecutionResult
from tests.code_exec.cells import begun, process_of
from tests.faults.conftest import Family
from tests.faults.processes import kernels, until_kernels, until_there
from tests.servers import WAIT

CELL = """
print("begun", flush=True)
import os, time
while not os.path.exists({until!r}):
    time.sleep(0.01)
print("done")
"""
CALL = "from registered import scripted; print(scripted.run_sync({tool!r}, {args!r})); print('done')"


@dataclass
class Moment:
    """What is under way, or begins after the fault, and what lets it go on to its end."""

    work: Callable[[], Awaitable[object]]
    release: Callable[[], Awaitable[None]]
    #: The kernel that is being started, if it is another one than the executor's.
    kernel: int | None = None


async def nothing() -> None:
    """Lets nothing go on."""


@asynccontextmanager
async def idle(family: Family) -> AsyncGenerator[Moment]:
    yield Moment(lambda: family.executor.execute("print('done')", timeout=WAIT), nothing)


@asynccontextmanager
async def cell(family: Family) -> AsyncGenerator[Moment]:
    with TemporaryDirectory(dir=family.directory) as directory:
        until = Path(directory, "until")
        execution = await begun(family.executor, CELL.format(until=str(until)))

        async def release() -> None:
            until.touch()

        yield Moment(lambda: execution, release)


@asynccontextmanager
async def tool_call(family: Family, timeout: float = WAIT) -> AsyncGenerator[Moment]:
    with TemporaryDirectory(dir=family.directory) as directory:
        begun, until = Path(directory, "begun"), Path(directory, "until")
        code = CALL.format(tool="hold", args={"begun": str(begun), "until": str(until)})
        execution = asyncio.create_task(family.executor.execute(code, timeout))
        await until_there(begun)

        async def release() -> None:
            until.touch()

        yield Moment(lambda: execution, release)


@asynccontextmanager
async def approval(family: Family) -> AsyncGenerator[Moment]:
    items = family.executor.stream(CALL.format(tool="echo", args={"text": "done"}), timeout=WAIT)
    request = await anext(items)
    assert isinstance(request, ApprovalRequest)

    async def release() -> None:
        with suppress(RuntimeError):  # a request that was withdrawn may say so
            await request.accept()

    async def rest() -> object:
        async for item in items:
            if isinstance(item, CodeExecutionResult):
                return item
        return None

    yield Moment(rest, release)
    await items.aclose()


@asynccontextmanager
async def reset(family: Family) -> AsyncGenerator[Moment]:
    gateway = await process_of(family.executor, "gateway")
    before = kernels(gateway)
    family.hang.touch()
    try:
        resetting = asyncio.create_task(family.executor.reset())
        found = await until_kernels(gateway, lambda kernels: not kernels <= before)
        (kernel,) = found - before

        async def release() -> None:
            family.hang.unlink()

        yield Moment(lambda: resetting, release, kernel)
    finally:
        family.hang.unlink(missing_ok=True)


@asynccontextmanager
async def starting(family: Family) -> AsyncGenerator[Moment]:
    """Another executor of the same gateway starts."""
    gateway = await process_of(family.executor, "gateway")
    before = kernels(gateway)
    family.hang.touch()
    third = family.executor.sibling()
    try:
        start = asyncio.create_task(third.start())
        (kernel,) = await until_kernels(gateway, lambda kernels: not kernels <= before) - before

        async def release() -> None:
            family.hang.unlink()

        yield Moment(lambda: start, release, kernel)
    finally:
        family.hang.unlink(missing_ok=True)
        await third.stop()


@asynccontextmanager
async def stopping(family: Family) -> AsyncGenerator[Moment]:
    """Another executor of the same gateway stops."""
    gateway = await process_of(family.executor, "gateway")
    before = kernels(gateway)
    async with family.executor.sibling() as third:
        (kernel,) = kernels(gateway) - before
        yield Moment(third.stop, nothing, kernel)


MOMENTS: dict[str, Callable[[Family], AbstractAsyncContextManager[Moment]]] = {
    moment.__name__: moment for moment in (starting, idle, cell, tool_call, approval, reset, stopping)
}
