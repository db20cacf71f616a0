"""Tests start, stop and what is an error in between."""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ipybox import CodeExecutionError, CodeExecutor
from tests.code_exec.cells import SLEEPS, begun, process_of, text
from tests.conftest import Mode
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_executor_can_be_used_between_start_and_stop_only(tmp_path: Path, mode: Mode):
    executor = CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox)
    not_started = "the code executor has not been started: call start(), or use `async with`"
    stopped = "the code executor has been stopped"

    async def refuses(message: str) -> None:
        for use in (executor.execute("1"), anext(aiter(executor.stream("1"))), executor.reset()):
            with pytest.raises(RuntimeError) as error:
                await use
            assert str(error.value) == message

    await refuses(not_started)
    await executor.stop()
    await refuses(not_started)
    await executor.start()
    with pytest.raises(RuntimeError, match="the code executor is already running"):
        await executor.start()
    await executor.prepare()
    assert await text(executor, "x = 1; x") == "1"
    await executor.stop()
    await executor.stop()
    await refuses(stopped)
    await executor.start()
    assert await text(executor, "'x' in globals()") == "False"
    await executor.stop()
    await refuses(stopped)


async def test_stopping_ends_executions_and_those_that_wait(tmp_path: Path, mode: Mode):
    executor = CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox)
    await executor.start()
    running = await begun(executor, SLEEPS)
    waiting = asyncio.create_task(executor.execute("1"))
    await asyncio.sleep(0)
    await executor.stop()

    async with asyncio.timeout(WAIT):
        for task in (running, waiting):
            with pytest.raises(RuntimeError, match="the code executor has been stopped"):
                await task


async def test_stopping_while_a_dead_kernel_is_replaced_leaves_nothing(tmp_path: Path, mode: Mode):
    executor = CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox)
    await executor.start()
    gateway = await process_of(executor, "gateway")
    running = await begun(executor, SLEEPS)
    os.kill(gateway, signal.SIGKILL)
    with pytest.raises(CodeExecutionError, match="the kernel died"):
        await running
    replacing = asyncio.create_task(executor.execute("1"))
    for _ in range(20):  # until the gateway is starting again
        await asyncio.sleep(0)
    await executor.stop()

    async with asyncio.timeout(WAIT):
        with pytest.raises(RuntimeError, match="the code executor has been stopped"):
            await replacing


async def test_a_port_that_is_taken_is_an_error_and_leaves_nothing(tmp_path: Path, mode: Mode):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for options in ({"kernel_gateway_port": port}, {"tool_server_port": port}):
            with pytest.raises(OSError, match=f"can't listen on localhost port {port}: the port is already in use"):
                await CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, **options).start()


async def test_an_exception_of_the_application_stops_the_executor(tmp_path: Path, mode: Mode):
    with pytest.raises(ZeroDivisionError):
        async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox):
            raise ZeroDivisionError


async def test_a_working_directory_that_is_not_there_is_named(tmp_path: Path, mode: Mode):
    with pytest.raises(NotADirectoryError, match=r"no such working directory: '.*/gone'"):
        await CodeExecutor(sandbox=mode.sandbox, working_dir=tmp_path / "gone").start()


@pytest.mark.parametrize("audit", ["Full", "", True])
async def test_a_detail_of_the_audit_that_means_nothing_is_refused(tmp_path: Path, audit: Any):
    with pytest.raises(ValueError, match=rf"^invalid audit={audit!r}: use 'full' or 'hash', or 'off' for an executor$"):
        CodeExecutor(working_dir=tmp_path, audit=audit)


async def test_an_audit_that_is_off_writes_nothing(tmp_path: Path):
    CodeExecutor(working_dir=tmp_path, audit="off")

    assert [*tmp_path.iterdir()] == []


async def test_another_event_loop_is_an_error_at_once_and_harms_nothing(executor: CodeExecutor):
    await executor.execute("kept = 1")

    for use in (lambda: executor.execute("1"), lambda: anext(executor.stream("1")), executor.reset, executor.stop):
        with pytest.raises(RuntimeError, match=r"was started in another event loop: .* or use ipybox\.Executor"):
            await asyncio.to_thread(asyncio.run, _awaited(use))

    assert (await executor.execute("print(kept)")).text == "1"


async def _awaited(use: Callable[[], Awaitable[object]]) -> object:
    return await use()
