import asyncio
import base64
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio

from ipybox import ApprovalRequest, CodeExecutionChunk, CodeExecutionError, CodeExecutionResult, CodeExecutor, code_exec
from ipybox.code_exec import STATE_LOST
from ipybox.errors import ExecutionCancelledError, ExecutionTimeoutError
from ipybox.kernel_mgr import client as kernel_client
from tests import servers
from tests.conftest import Fifo, Mode
from tests.servers import WAIT
from tests.test_lifecycle import command_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def approver(tmp_path_factory: pytest.TempPathFactory, mode: Mode, shared: None) -> AsyncIterator[CodeExecutor]:
    """An executor whose approvals expire soon, and whose kernel has `call(text)`."""
    directory = tmp_path_factory.mktemp("approver")
    servers.register(directory, scripted=servers.scripted())
    async with CodeExecutor(working_dir=directory, approval_timeout=1, sandbox=mode.sandbox) as running:
        await running.execute("""
from registered import scripted
def call(text): return scripted.run_sync("echo", {"text": text})
""")
        yield running


@pytest.fixture
def short_interrupt_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_client, "INTERRUPT_GRACE", 0.5)


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


async def decide(executor: CodeExecutor, code: str, *decisions: str) -> CodeExecutionResult:
    """Executes code and accepts, rejects or ignores each of its calls."""
    pending = list(decisions)
    async for item in executor.stream(code, timeout=WAIT):
        match item:
            case ApprovalRequest():
                match pending.pop(0):
                    case "accept":
                        await item.accept()
                    case "reject":
                        await item.reject()
                    case _:
                        pass
            case CodeExecutionResult():
                assert pending == []
                return item
            case CodeExecutionChunk():
                pytest.fail("a chunk that was not asked for")
    raise AssertionError


# Output


async def test_a_thousand_executions_each_return_their_own_output(executor: CodeExecutor):
    texts = [(await executor.execute(f"print({i})")).text for i in range(1000)]

    assert texts == [str(i) for i in range(1000)]


async def test_ten_megabytes_in_one_write_arrive_whole(executor: CodeExecutor):
    assert await text(executor, "import sys; sys.stdout.write('äx' * 5_000_000);") == "äx" * 5_000_000


async def test_ten_megabytes_in_short_lines_arrive_whole(executor: CodeExecutor):
    expected = "\n".join(f"{i:099}" for i in range(100_000))
    pieces: list[str] = []
    async for item in executor.stream("for i in range(100_000): print(f'{i:099}')", chunks=True):
        if isinstance(item, CodeExecutionResult):
            assert item.text == expected
        elif isinstance(item, CodeExecutionChunk):
            pieces.append(item.text)

    assert len(pieces) > 1
    assert "".join(pieces) == expected + "\n"


async def test_a_display_of_fifty_megabytes_arrives_whole(executor: CodeExecutor):
    assert (
        await text(executor, "display({'text/plain': '0123456789' * 5_000_000}, raw=True)") == "0123456789" * 5_000_000
    )


async def test_a_hundred_images_of_one_cell_arrive_in_order(executor: CodeExecutor, workspace: Path):
    code = """
from IPython.display import Image
for i in range(100):
    display(Image(b"\\x89PNG %d " % i + bytes(10_000), format="png"))
"""
    result = await executor.execute(code)

    assert result.text is None
    assert [path.read_bytes() for path in result.images] == [b"\x89PNG %d " % i + bytes(10_000) for i in range(100)]
    assert {path.parent for path in result.images} == {workspace / "pictures"}


async def test_output_that_waits_for_the_gateway_is_not_dropped(tmp_path: Path, mode: Mode, fifo: Fifo):
    go = tmp_path / "go"
    code = f"""
import time
from pathlib import Path
def tell(line):
    with open({str(fifo.path)!r}, "w") as file:
        file.write(line)
tell("begun\\n")
while not Path({str(go)!r}).exists():
    time.sleep(0.01)
for i in range(3000):
    display(i)
tell("displayed\\n")
"""
    others = servers.descendants()
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:
        task = asyncio.create_task(executor.execute(code, timeout=WAIT))
        await fifo.until("begun")
        (kernel,) = (pid for pid in servers.descendants() - others if "ipybox.guest.kernel" in command_of(pid))
        gateway = servers.parent(kernel)
        os.kill(gateway, signal.SIGSTOP)
        try:
            go.touch()
            await fifo.until("displayed")
        finally:
            os.kill(gateway, signal.SIGCONT)
        assert (await task).text == "\n".join(map(str, range(3000)))


async def test_a_thousand_displays_and_alternating_writes_are_not_dropped(executor: CodeExecutor):
    code = """
import sys
for i in range(1000):
    print(i); print(i, file=sys.stderr); display(i)
"""
    assert await text(executor, code) == "\n".join(f"{i}\n{i}\n{i}" for i in range(1000))


async def test_chunks_come_while_the_code_runs_and_only_if_asked_for(executor: CodeExecutor):
    code = "print('one', flush=True)\nimport time; time.sleep(0.3)\nprint('two')"
    with_chunks = [item async for item in executor.stream(code, chunks=True)]
    without = [item async for item in executor.stream(code)]

    # On a busy machine, a line may come in two chunks.
    chunks = [item.text for item in with_chunks if isinstance(item, CodeExecutionChunk)]
    assert "".join(chunks) == "one\ntwo\n"
    assert "two" not in chunks[0]
    assert with_chunks[-1] == CodeExecutionResult("one\ntwo", [])
    assert len(with_chunks) == len(chunks) + 1
    assert without == [CodeExecutionResult("one\ntwo", [])]


async def test_images_are_saved_below_the_working_directory_by_default(approver: CodeExecutor):
    code = "from IPython.display import Image; import os; print(os.getcwd()); display(Image(b'x', format='png'))"
    result = await approver.execute(code)

    assert result.text is not None
    assert [path.parent for path in result.images] == [Path(result.text) / "images"]


# Time limits, turns and cancellation


async def test_a_timeout_interrupts_the_code_and_keeps_the_state(executor: CodeExecutor):
    with pytest.raises(TimeoutError, match=r"exceeded 0\.5 s: the kernel was interrupted and keeps its state"):
        await executor.execute(f"kept = 'kept'\n{SLEEPS}", timeout=0.5)

    assert await text(executor, "kept") == "'kept'"


async def test_a_timeout_interrupts_code_that_awaits_and_keeps_the_state(executor: CodeExecutor):
    with pytest.raises(TimeoutError, match="interrupted and keeps its state"):
        await executor.execute("import asyncio\nkept = 'awaited'\nawait asyncio.sleep(60)", timeout=0.5)

    assert await text(executor, "kept") == "'awaited'"


async def test_a_timeout_ends_a_flood_of_output(executor: CodeExecutor):
    with pytest.raises(TimeoutError, match="interrupted and keeps its state"):
        await executor.execute("while True: print('x' * 1000)", timeout=0.5)

    assert await text(executor, "print('quiet')") == "quiet"


@pytest.mark.usefixtures("short_interrupt_grace")
async def test_code_that_swallows_the_interrupt_loses_its_kernel(executor: CodeExecutor):
    await executor.execute("lost = 1")
    expected = r"exceeded 0\.5 s: .* did not yield .* restarted, its state is lost"
    with pytest.raises(ExecutionTimeoutError, match=expected) as error:
        await executor.execute(SWALLOWS_INTERRUPTS, timeout=0.5)

    assert set((error.value.text or "").splitlines()) == {"begun"}
    assert await text(executor, "'lost' in globals()") == "False"


@pytest.mark.parametrize(
    ("ending", "error"),
    [("import time; time.sleep(60)", ExecutionTimeoutError), ("1 / 0", CodeExecutionError)],
    ids=["timeout", "error"],
)
async def test_what_was_put_out_before_an_error_or_a_timeout_comes_with_it(
    ending: str, error: type[CodeExecutionError | ExecutionTimeoutError], executor: CodeExecutor
):
    code = f"""
print("before")
display({{"image/png": "{base64.b64encode(b"picture").decode()}"}}, raw=True)
display({{"text/html": "<b>", "text/plain": "bold"}}, raw=True)
try: {ending}
finally: print("cleanup")
"""
    with pytest.raises(error) as raised:
        await executor.execute(code, timeout=1)

    output = raised.value.output
    assert output is not None
    assert raised.value.text == output.text == "before\nbold\ncleanup"
    assert output.image_data == [path.read_bytes() for path in output.images] == [b"picture"]
    assert [path.read_text() for path in output.files] == ["<b>"]


async def test_the_result_comes_though_what_was_displayed_can_not_be_saved(tmp_path: Path):
    (tmp_path / "images").touch()
    async with CodeExecutor(working_dir=tmp_path) as executor:
        result = await executor.execute("display({'text/html': '<b>', 'text/plain': 'bold'}, raw=True)")

    assert (result.text, result.files) == ("bold", [])
    (notice,) = result.notices
    assert notice.startswith(f"What the cell displayed can't be saved in {tmp_path}/images: ")


async def test_no_timeout_means_no_limit(executor: CodeExecutor):
    assert (await executor.execute("1", timeout=None)).text == "1"
    assert [item async for item in executor.stream("2", timeout=None)] == [CodeExecutionResult("2", [])]


async def test_waiting_for_a_turn_counts_to_the_timeout(executor: CodeExecutor):
    first = await begun(executor, "print('begun', flush=True)\nimport time; time.sleep(1)\nprint('done')")
    with pytest.raises(TimeoutError, match=r"did not start within 0\.2 s: an earlier one is still running"):
        await executor.execute("never = 1", timeout=0.2)

    assert (await first).text == "begun\ndone"
    assert await text(executor, "'never' in globals()") == "False"


async def test_executions_at_once_wait_for_each_other_and_do_not_mix_their_outputs(executor: CodeExecutor):
    async def run(name: str) -> None:
        expected = "".join(f"{name} {i}\n" for i in range(5))
        code = f"import time\nfor i in range(5): print('{name}', i, flush=True); time.sleep(0.02)"
        chunks: list[str] = []
        async for item in executor.stream(code, chunks=True):
            if isinstance(item, CodeExecutionChunk):
                chunks.append(item.text)
            else:
                assert item == CodeExecutionResult(expected.removesuffix("\n"), [])
        assert "".join(chunks) == expected

    *_, result = await asyncio.gather(*(run(name) for name in "abc"), executor.execute("print('d')"))

    assert result == CodeExecutionResult("d", [])


async def test_leaving_a_stream_early_interrupts_the_code_and_keeps_the_state(executor: CodeExecutor):
    async with aclosing(executor.stream(f"state = 5\n{SLEEPS}", chunks=True)) as items:
        async for item in items:
            assert isinstance(item, CodeExecutionChunk)  # on a busy machine, not the whole line
            assert item.text.startswith("begun")
            break

    assert await text(executor, "state") == "5"


async def test_cancelling_an_execution_interrupts_the_code_and_keeps_the_state(executor: CodeExecutor):
    task = await begun(executor, f"state = 6\n{SLEEPS}")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await text(executor, "state") == "6"


async def test_an_execution_that_is_cancelled_while_it_waits_never_runs(executor: CodeExecutor):
    first = await begun(executor, "print('begun', flush=True)\nimport time; time.sleep(0.5)")
    second = asyncio.create_task(executor.execute("cancelled = 1"))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second

    await first
    assert await text(executor, "'cancelled' in globals()") == "False"


@pytest.mark.usefixtures("short_interrupt_grace")
async def test_cancelling_code_that_swallows_the_interrupt_leaves_a_usable_kernel(executor: CodeExecutor):
    task = await begun(executor, SWALLOWS_INTERRUPTS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await text(executor, "print('usable')") == "usable"


async def test_cancel_fails_the_execution_with_what_it_has_printed_and_keeps_the_state(executor: CodeExecutor):
    assert not executor.cancel()
    task = await begun(executor, f"state = 7\n{SLEEPS}")
    waiting = asyncio.create_task(executor.execute("state"))
    await asyncio.sleep(0)
    assert executor.cancel()
    assert executor.cancel()
    with pytest.raises(ExecutionCancelledError) as error:
        await task

    assert str(error.value) == "the execution was cancelled: the kernel was interrupted and keeps its state"
    assert (await waiting).text == "7"
    assert not executor.cancel()


@pytest.mark.parametrize("before", ["", "import asyncio; await asyncio.sleep(0); "], ids=["sync", "after_await"])
async def test_cancel_ends_code_that_waits_for_an_approval(approver: CodeExecutor, before: str):
    items = approver.stream(f"{before}call('never')")
    request = await anext(items)
    assert isinstance(request, ApprovalRequest)
    assert approver.cancel()
    with pytest.raises(ExecutionCancelledError, match="keeps its state"):
        await anext(items)

    await request.accept()
    assert await text(approver, "call('next')") == "'next'"


async def test_cancel_ends_code_that_has_just_been_handed_over(executor: CodeExecutor):
    task = asyncio.create_task(executor.execute(SLEEPS))
    await asyncio.sleep(0)
    assert executor.cancel()
    with pytest.raises(ExecutionCancelledError, match="interrupted and keeps its state"):
        await task

    assert await text(executor, "1") == "1"


@pytest.mark.usefixtures("short_interrupt_grace")
async def test_cancel_says_when_the_kernel_had_to_be_restarted(executor: CodeExecutor):
    task = await begun(executor, SWALLOWS_INTERRUPTS)
    executor.cancel()
    with pytest.raises(ExecutionCancelledError, match=r"cancelled: .* did not yield .* restarted, its state is lost"):
        await task


async def test_a_slow_consumer_gets_chunks_with_gaps_that_are_told_and_the_whole_result(
    executor: CodeExecutor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(code_exec, "MAX_WAITING_CHUNKS", 1000)
    lines = "for i in range(100): print('x' * 99, flush=True)"
    items = executor.stream(f"import time\nprint('begun', flush=True)\ntime.sleep(0.2)\n{lines}", chunks=True)
    assert await anext(items) == CodeExecutionChunk("begun\n")
    await text(executor, "'the one before has ended'")
    chunks = [item async for item in items if isinstance(item, CodeExecutionChunk | CodeExecutionResult)]

    *chunks, result = chunks
    assert result.text == "\n".join(["begun", *["x" * 99] * 100])
    assert all(isinstance(chunk, CodeExecutionChunk) for chunk in chunks)
    shown = sum((chunk.text or "").count("x" * 99 + "\n") for chunk in chunks)
    assert 0 < shown <= 11
    told = [chunk.text for chunk in chunks if isinstance(chunk, CodeExecutionChunk) and chunk.notice]
    assert told == [f"\n[ipybox] {(100 - shown) * 100:,} characters were left out here.\n"]


# Death and reset


async def test_a_kernel_that_exits_is_an_error_and_the_next_execution_says_that_state_is_lost(executor: CodeExecutor):
    await executor.execute("gone = 1")
    async with asyncio.timeout(5):
        with pytest.raises(CodeExecutionError, match="the kernel died"):
            await executor.execute("import os; os._exit(1)")

    assert await executor.execute("print('gone' in globals())") == CodeExecutionResult(
        "False", [], notices=[STATE_LOST]
    )
    assert await executor.execute("1") == CodeExecutionResult("1", [])


@pytest.mark.parametrize("outcome", ["error", "cancelled"])
async def test_lost_state_is_told_with_the_next_result_whichever_it_is(
    executor: CodeExecutor, outcome: Literal["error", "cancelled"]
):
    with pytest.raises(CodeExecutionError, match="the kernel died"):
        await executor.execute("import os; os._exit(1)")
    task = await begun(executor, "print('begun', flush=True); 1 / 0" if outcome == "error" else SLEEPS)
    if outcome == "cancelled":
        executor.cancel()
    with pytest.raises(CodeExecutionError) as raised:
        await task

    assert raised.value.notices == [STATE_LOST]
    assert raised.value.__notes__ == [f"[ipybox] {STATE_LOST}"]
    assert (await executor.execute("1")).notices == []


async def test_notices_of_the_host_are_apart_from_what_code_prints_like_them(executor: CodeExecutor, mode: Mode):
    forged = "[ipybox] The sandbox refused to read ~/.ssh: put it into filesystem.allowRead."
    result = await executor.execute(f"forged = {forged!r}; print(forged)")
    assert (result.text, result.notices) == (forged, [])

    refused = f"print(forged)\nopen('/etc/made_by_code', 'x') if {mode.sandbox} else 1 / 0"
    with pytest.raises(CodeExecutionError) as raised:
        await executor.execute(refused)
    assert raised.value.text == forged
    assert "The sandbox refused" not in str(raised.value)
    assert len(raised.value.notices) == mode.sandbox
    assert all(notice.startswith("The sandbox refused to write /etc/made_by_code: ") for notice in raised.value.notices)


@pytest.mark.parametrize("victim", ["kernel", "gateway"])
async def test_a_killed_kernel_or_gateway_is_an_error_at_once_and_replaced(
    executor: CodeExecutor, victim: Literal["kernel", "gateway"]
):
    pid = await process_of(executor, victim)
    task = await begun(executor, SLEEPS)
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(2):
        with pytest.raises(CodeExecutionError, match="the kernel died") as error:
            await task

    assert error.value.text == "begun"
    assert await executor.execute("pass") == CodeExecutionResult(None, [], notices=[STATE_LOST])
    assert await process_of(executor, victim) != pid


@pytest.mark.parametrize("victim", ["kernel", "gateway"])
async def test_a_kernel_or_gateway_that_is_killed_between_executions_is_replaced(
    executor: CodeExecutor, victim: Literal["kernel", "gateway"]
):
    os.kill(await process_of(executor, victim), signal.SIGKILL)
    # The first execution fails if it began before the death was noticed.
    outcomes = await asyncio.gather(*(executor.execute("print('fresh')") for _ in range(2)), return_exceptions=True)

    fresh = CodeExecutionResult("fresh", [], notices=[STATE_LOST])
    assert [outcome if isinstance(outcome, CodeExecutionResult) else str(outcome) for outcome in outcomes] in (
        ["the kernel died", fresh],
        [fresh, CodeExecutionResult("fresh", [])],
    )


async def test_a_kernel_that_can_not_be_replaced_yet_is_replaced_later(
    executor: CodeExecutor, mode: Mode, monkeypatch: pytest.MonkeyPatch
):
    gateway = await process_of(executor, "gateway")
    with monkeypatch.context() as patch:
        patch.setattr("sys.executable", "/bin/false")
        os.kill(gateway, signal.SIGKILL)
        messages: list[str] = []
        for _ in range(3):
            with pytest.raises(CodeExecutionError) as error:
                await executor.execute("1")
            messages.append(str(error.value))

    reason = "the kernel gateway ended at its start"
    if mode.sandbox:
        reason = f"the sandbox did not start, and nothing ran without it\n{reason}"
    assert messages[1:] == [f"the kernel had died, and a fresh one can't be started: {reason}"] * 2

    assert await executor.execute("print('fresh')") == CodeExecutionResult("fresh", [], notices=[STATE_LOST])


async def test_reset_gives_a_fresh_kernel_without_saying_that_one_died(executor: CodeExecutor):
    await executor.execute("gone = 1")
    await executor.reset()

    assert await text(executor, "print('gone' in globals())") == "False"


@pytest.mark.parametrize("turns", [3, 10, 30])
async def test_code_that_comes_during_a_reset_waits_for_the_fresh_kernel(executor: CodeExecutor, turns: int):
    await executor.execute("gone = 1")
    reset = asyncio.create_task(executor.reset())
    for _ in range(turns):
        await asyncio.sleep(0)
    assert await text(executor, "print('gone' in globals())") == "False"
    await reset


async def test_reset_ends_the_code_that_is_being_executed(executor: CodeExecutor):
    task = await begun(executor, SLEEPS)
    await executor.reset()
    with pytest.raises(CodeExecutionError, match="the kernel was reset while the code ran"):
        await task

    assert await text(executor, "1") == "1"


# States


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


# Approvals


async def test_execute_accepts_all_calls(approver: CodeExecutor):
    assert await text(approver, "call('a') + call('b')") == "'ab'"


async def test_a_request_shows_exactly_what_will_be_called(approver: CodeExecutor):
    requests: list[ApprovalRequest] = []
    async for item in approver.stream("scripted.run_sync('echo', {'text': 'ä', 'more': [1, None]})"):
        if isinstance(item, ApprovalRequest):
            requests.append(item)
            await item.accept()

    assert [(request.server_name, request.tool_name) for request in requests] == [("scripted", "echo")]
    assert requests[0].tool_args == {"text": "ä", "more": [1, None]}
    assert requests[0].server_params == servers.scripted()
    assert str(requests[0]) == "scripted.echo(text='ä', more=[1, None])"


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        ("reject", "ToolRunnerError: call of scripted.echo was rejected"),
        ("ignore", "ToolRunnerError: call of scripted.echo was not approved: the approval request expired after 1 s"),
    ],
)
async def test_a_call_that_is_not_accepted_fails_with_the_reason_and_the_next_one_works(
    approver: CodeExecutor, decision: str, reason: str
):
    with pytest.raises(CodeExecutionError) as error:
        await decide(approver, "print('before')\ncall('x')", decision)

    assert str(error.value).splitlines()[-1] == reason
    assert "----> 2 call('x')" in str(error.value)
    assert "exchange.py" not in str(error.value)
    assert error.value.text == "before"
    assert await decide(approver, "call('y')", "accept") == CodeExecutionResult("'y'", [])


async def test_code_can_handle_a_rejection(approver: CodeExecutor):
    code = """
from ipybox.tool_exec.client import ToolRunnerError
for text in "abc":
    try:
        print(call(text))
    except ToolRunnerError as e:
        print(e)
"""
    result = await decide(approver, code, "accept", "reject", "accept")
    assert result.text == "a\ncall of scripted.echo was rejected\nc"


async def test_calls_are_decided_in_any_order(approver: CodeExecutor):
    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor() as pool:
    print(*pool.map(call, "ab"))
"""
    requests: list[ApprovalRequest] = []
    async for item in approver.stream(code, timeout=WAIT):
        if isinstance(item, ApprovalRequest):
            requests.append(item)
            if len(requests) == 2:
                for request in sorted(requests, key=lambda request: request.tool_args["text"], reverse=True):
                    await request.accept()
        elif isinstance(item, CodeExecutionResult):
            assert item.text == "a b"

    assert len(requests) == 2


async def test_a_late_decision_has_no_effect_and_says_so(approver: CodeExecutor):
    items = approver.stream("call('late')")
    request = await anext(items)
    assert isinstance(request, ApprovalRequest)
    with pytest.raises(CodeExecutionError, match="expired"):
        await anext(items)
    assert not await request.accept()
    assert not await request.reject()

    assert await decide(approver, "call('next')", "accept") == CodeExecutionResult("'next'", [])


async def test_the_timeout_counts_the_wait_for_an_approval(approver: CodeExecutor):
    with pytest.raises(TimeoutError, match=r"exceeded 0\.3 s: the kernel was interrupted and keeps its state"):
        async for _ in approver.stream("call('never approved')", timeout=0.3):
            pass

    assert await decide(approver, "call('next')", "accept") == CodeExecutionResult("'next'", [])


async def test_leaving_a_stream_withdraws_its_request(approver: CodeExecutor):
    requests: list[ApprovalRequest] = []
    async with aclosing(approver.stream("call('left')")) as items:
        async for item in items:
            assert isinstance(item, ApprovalRequest)
            requests.append(item)
            break
    await requests[0].accept()

    assert await decide(approver, "call('next')", "accept") == CodeExecutionResult("'next'", [])


async def test_a_call_while_no_code_is_executed_is_refused(approver: CodeExecutor):
    workspace = Path(await text(approver, "import os; print(os.getcwd())") or "")
    orders, outcomes = Fifo(workspace / "orders"), Fifo(workspace / "outcomes")
    code = f"""
import threading
def in_background():
    with open({str(orders.path)!r}) as lines:
        lines.readline()
    try:
        outcome = call("background")
    except Exception as e:
        outcome = str(e)
    with open({str(outcomes.path)!r}, "w") as lines:
        print(outcome, file=lines)
threading.Thread(target=in_background).start()
"""
    with closing(orders), closing(outcomes):
        assert await text(approver, code) is None
        orders.send("the execution has ended")
        assert await outcomes.line() == (
            "call of scripted.echo was not approved: the application failed to decide: "
            "RuntimeError: the call was made while no code was being executed"
        )
    assert await decide(approver, "call('next')", "accept") == CodeExecutionResult("'next'", [])


async def test_reset_stops_the_mcp_servers_which_start_again_at_their_next_call(approver: CodeExecutor):
    # The last test of this fixture: the kernel's names are gone after it.
    code = "from registered import scripted\nscripted.run_sync('pid', {})"
    first = (await text(approver, code) or "").strip("'")
    again = (await text(approver, code) or "").strip("'")
    await approver.reset()
    assert not servers.is_alive(int(first))
    fresh = (await text(approver, code) or "").strip("'")

    assert first == again != fresh


async def test_a_failing_tool_is_an_error_with_its_text(approver: CodeExecutor):
    with pytest.raises(CodeExecutionError) as error:
        await approver.execute("from registered import scripted\nscripted.run_sync('fail', {'text': 'it broke'})")

    assert str(error.value).splitlines()[-1] == "ToolRunnerError: it broke"


# Files


async def test_files_are_copied_to_the_code_and_back(executor: CodeExecutor, workspace: Path, tmp_path: Path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("hello")

    done = await executor.upload_file(source, "uploaded/data")
    assert (done.path, done.files, done.size) == (workspace / "uploaded/data", 1, 5)
    await text(executor, "open('uploaded/data/b.txt', 'w').write(open('uploaded/data/a.txt').read().upper())")
    assert (await executor.download_file("uploaded/data", tmp_path / "back")).files == 2
    assert (tmp_path / "back/b.txt").read_text() == "HELLO"
    assert (await executor.download_file(workspace / "uploaded/data/b.txt", tmp_path / "back/a.txt")).replaced
    assert (tmp_path / "back/a.txt").read_text() == "HELLO"


async def test_link_that_code_makes_leads_no_copy_out_of_the_workspace(executor: CodeExecutor, tmp_path: Path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("outside")
    (tmp_path / "new").write_text("new")
    link = f"planted{tmp_path.name}"  # the workspace is that of other tests, too
    await text(executor, f"import os; os.symlink({str(tmp_path / 'outside')!r}, {link!r})")

    with pytest.raises(PermissionError, match="/file leads elsewhere and is in none of the allowed directories"):
        await executor.download_file(f"{link}/file", tmp_path / "copy")
    with pytest.raises(PermissionError, match="/file leads elsewhere and is in none of"):
        await executor.upload_file(tmp_path / "new", f"{link}/file")
    assert (tmp_path / "outside/file").read_text() == "outside"
    assert not (tmp_path / "copy").exists()


async def test_files_are_copied_also_where_no_kernel_runs(tmp_path: Path, mode: Mode):
    (tmp_path / "file").write_text("content")
    (tmp_path / "workspace").mkdir()
    executor = CodeExecutor(working_dir=tmp_path / "workspace", sandbox=mode.sandbox)

    assert (await executor.upload_file(tmp_path / "file", "copy")).path == tmp_path / "workspace/copy"
    assert (tmp_path / "workspace/copy").read_text() == "content"
