"""Sessions of the MCP server with a real client, and executors that share a gateway, with real kernels."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutionResult, CodeExecutor, ExecutorConfig
from ipybox.code_exec.executor import STATE_LOST
from ipybox.mcp_server import MCPServer, kernel_sessions
from ipybox.mcp_server.kernel_sessions import KernelSessions
from tests import servers
from tests.code_exec.test_lifecycle import command_of
from tests.conftest import Fifo, Mode, both_modes
from tests.mcp_server.in_process import connected
from tests.mcp_server.test_server import call, output, text_of
from tests.servers import WAIT

#: Ends only if the other one runs at the same time.
MEETS = """
import time
from pathlib import Path
Path("here-{me}").touch()
while not Path("here-{other}").exists():
    time.sleep(0.01)
me = "{me}"
"""

#: Shared memory is not limited in the kernel itself, but by the watch.
HOG = """
import mmap, time
hoard = mmap.mmap(-1, 360 << 20)
for _ in range(360):
    hoard.write(b"x" * (1 << 20))
time.sleep(60)
"""

IDLES = "import time\nfrom pathlib import Path\nwhile not Path('over').exists(): time.sleep(0.02)\n'idle'"


def kernels() -> list[int]:
    return [pid for pid in servers.descendants() if "ipybox.guest.kernel" in command_of(pid)]


async def test_sessions_work_at_once_with_variables_of_their_own(tmp_path: Path, mode: Mode):
    servers.register(tmp_path, scripted=servers.scripted())
    server = "from registered import scripted; print(scripted.run_sync('pid', {}))"
    config = ExecutorConfig(working_dir=tmp_path, sandbox=mode.sandbox)
    async with connected(MCPServer(config, max_sessions=3)) as client:
        await asyncio.gather(
            output(client, MEETS.format(me="a", other="b"), session="a", timeout=WAIT),
            output(client, MEETS.format(me="b", other="a"), session="b", timeout=WAIT),
        )
        names = [await output(client, "print(globals().get('me'))", session=name) for name in ("default", "a", "b")]
        assert names == ["None", "a", "b"]
        pids = [await output(client, server, session=name) for name in ("default", "a", "b", "a")]
        assert len(set(pids)) == 3
        assert pids[1] == pids[3]

        one_more = await call(client, "execute_ipython_cell", code="1", session="c")
        assert one_more.is_error
        assert text_of(one_more) == (
            "the limit of 3 sessions (max_sessions) is reached: default, a, b. Use one of these sessions, or end one "
            "by calling reset with its name"
        )
        assert text_of(await call(client, "reset", session="a")) == ("The session a has ended. Other sessions: b")
        assert await output(client, "print(globals().get('me'))", session="b") == "b"
        assert await output(client, "print(globals().get('me'))", session="a") == "None"
        assert text_of(await call(client, "reset")) == "The kernel was reset. Other sessions: b, a"
        assert await output(client, "print(globals().get('me'))", session="b") == "b"


async def test_a_session_ends_while_its_cells_run_and_wait_and_one_that_is_none_is_an_error(
    tmp_path: Path, mode: Mode, fifo: Fifo
):
    config = ExecutorConfig(working_dir=tmp_path, sandbox=mode.sandbox)
    async with connected(MCPServer(config)) as client:
        running, waiting = (
            asyncio.create_task(call(client, "execute_ipython_cell", code=code, session="a"))
            for code in (f"import time; open({str(fifo.path)!r}, 'w').write('begun\\n'); time.sleep(60)", "1")
        )
        await fifo.until("begun")
        assert text_of(await call(client, "reset", session="a")) == "The session a has ended."
        for task in (running, waiting):
            result = await task
            assert result.is_error
            assert text_of(result) == "session 'a' was reset while in use"

        unknown = await call(client, "reset", session="a")
        assert unknown.is_error
        assert text_of(unknown) == "no session named 'a'; existing sessions: default"
        for name in ("", "a b", "../a", "a" * 65):
            invalid = await call(client, "execute_ipython_cell", code="1", session=name)
            assert invalid.is_error
            assert f"{name!r} is not a valid session name: use up to 64 letters" in text_of(invalid)


async def test_no_session_starts_after_the_stop_and_a_failed_one_takes_no_place(tmp_path: Path):
    working = CodeExecutor(working_dir=tmp_path)
    made = iter([CodeExecutor(working_dir=tmp_path / "none"), working])
    sessions = KernelSessions(lambda: next(made), 2)
    with pytest.raises(OSError, match="none"):
        async with sessions.use("a"):
            pass
    assert sessions.names == ["default"]
    await sessions.stop()
    sessions.start()
    with pytest.raises(CodeExecutionError, match="ipybox is shutting down"):
        async with sessions.use("default"):
            pass
    with pytest.raises(ValueError, match="max_sessions=0 is too low"):
        KernelSessions(lambda: working, 0)


async def test_a_session_in_use_is_not_stopped_and_of_stopped_ones_the_last_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kernel_sessions, "MAX_EXPIRED", 1)
    default = CodeExecutor(working_dir=tmp_path)
    sessions = KernelSessions(lambda: default, 3, idle_timeout=0.3)
    async with asyncio.timeout(2 * WAIT):
        for name in ("a", "b"):
            async with sessions.use(name):
                pass
            async with sessions.use(name) as executor:  # before the time is up
                await executor.execute("import time; time.sleep(0.5)")
                assert sessions.running == [name]
            while sessions.running:  # noqa: ASYNC110 -- nothing signals it
                await asyncio.sleep(0.01)
        with pytest.raises(ValueError, match="no session named 'a'"):
            await sessions.reset("a")
        await sessions.reset("b")
        with pytest.raises(RuntimeError, match="of the application"):
            async with sessions.use("c"):
                raise RuntimeError("of the application")
        starting = asyncio.create_task(sessions.use("d").__aenter__())
        await asyncio.sleep(0)
        assert sessions.count("starting") == 1
        await sessions.reset("d")
        with pytest.raises(CodeExecutionError, match="session 'd' was reset while in use"):
            await starting
        await sessions.stop()


# Executors that share a gateway


async def test_executors_that_start_at_once_get_their_own_approvals(tmp_path: Path, mode: Mode):
    servers.register(tmp_path, scripted=servers.scripted())
    code = "from registered import scripted; print(scripted.run_sync('echo', {'text': 'hello'}))"
    first = CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox)
    siblings = [first.sibling() for _ in range(3)]
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(sibling) for sibling in siblings))
        await stack.enter_async_context(first)
        for executor in (first, *siblings):
            assert (await executor.execute(code)).text == "hello"


async def test_an_executor_lists_the_others_that_run_until_they_are_stopped(tmp_path: Path, mode: Mode):
    first = CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox)
    a, b, unnamed = first.sibling("a"), first.sibling("b"), first.sibling()
    assert [each.name for each in (first, a, b, unnamed)] == ["default", "a", "b", None]
    assert first.siblings == ()
    async with first, b, a:
        assert (first.siblings, a.siblings, b.siblings) == ((b, a), (first, b), (first, a))
        assert a.sibling().siblings == (first, b, a)
        await b.stop()
        await b.stop()
        assert first.siblings == (a,)
        assert [(await each.execute("1")).text for each in first.siblings] == ["1"]
        await b.start()
        assert first.siblings == (a, b)
    assert first.siblings == a.siblings == ()


@both_modes
async def test_executors_get_their_own_approvals_and_images_and_share_the_next_gateway(tmp_path: Path, mode: Mode):
    servers.register(tmp_path, scripted=servers.scripted())
    code = "from registered import scripted; print(scripted.run_sync('echo', {'text': '%s'}))"
    plot = "\nimport matplotlib.pyplot as plt; plt.plot([1]); plt.show()"

    async def run(executor: CodeExecutor, name: str, plots: str) -> tuple[list[object], CodeExecutionResult]:
        asked: list[object] = []
        async for item in executor.stream(code % name + plots, timeout=WAIT):
            if isinstance(item, ApprovalRequest):
                asked.append(item.tool_args["text"])
                await item.accept()
            elif isinstance(item, CodeExecutionResult):
                return asked, item
        raise AssertionError

    async with (
        CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, spare_kernel=False) as first,
        first.sibling() as second,
    ):
        outcomes = await asyncio.gather(run(first, "1", ""), run(second, "2", plot))
        assert [asked for asked, _ in outcomes] == [["1"], ["2"]]
        assert [result.text for _, result in outcomes] == ["1", "2"]
        assert [len(result.images) for _, result in outcomes] == [0, 1]

        (gateway,) = {servers.parent(pid) for pid in kernels()}
        os.kill(gateway, signal.SIGKILL)
        executions = (executor.execute("print('fresh')") for executor in (first, second) for _ in range(2))
        outcomes = await asyncio.gather(*executions, return_exceptions=True)
        # The first executions fail if they began before the death was noticed.
        told = [
            (outcome.text, outcome.notices) if isinstance(outcome, CodeExecutionResult) else str(outcome)
            for outcome in outcomes
        ]
        fresh = ("fresh", [STATE_LOST])
        for pair in (told[:2], told[2:]):
            assert pair in (["the kernel died", fresh], [fresh, ("fresh", [])])
        assert len(kernels()) == 2
        assert len({servers.parent(pid) for pid in kernels()}) == 1


@both_modes
async def test_a_limit_ends_the_kernel_that_uses_most_and_cpu_time_is_that_of_ones_own_cell(tmp_path: Path, mode: Mode):
    async with (
        CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, memory_limit=384 << 20, cpu_seconds=2) as first,
        first.sibling() as second,
    ):
        await first.execute("kept = 1")
        with pytest.raises(CodeExecutionError, match=r"^all kernels .*=384 MiB allows: this kernel, which used"):
            await second.execute(HOG)
        following = await second.execute("print('next')")
        assert (following.text, following.notices) == ("next", [STATE_LOST])

        idle = asyncio.create_task(first.execute(f"kept; {IDLES}", timeout=WAIT))
        with pytest.raises(TimeoutError, match=r"^the cell used .* cpu_seconds=2 allows: the kernel was inter"):
            await second.execute("while True: pass", timeout=WAIT)
        (tmp_path / "over").touch()
        assert (await idle).text == "'idle'"


async def test_executors_that_share_a_gateway_start_and_stop_in_any_order(tmp_path: Path):
    first = CodeExecutor(working_dir=tmp_path)
    second = first.sibling()
    await second.start()
    assert (await second.execute("x = 1; x")).text == "1"
    await first.start()
    assert len({servers.parent(pid) for pid in kernels()}) == 1
    await second.stop()
    assert (await first.execute("'x' in globals()")).text == "False"
    await second.start()
    await first.stop()
    assert (await second.execute("'x' in globals()")).text == "False"
    await second.stop()
