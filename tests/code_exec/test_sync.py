"""`Executor`: the same execution for code without an event loop, from any thread, and in programs that forget it."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ipybox import (
    ApprovalRequest,
    CodeExecutionChunk,
    CodeExecutionError,
    CodeExecutionResult,
    Executor,
    StreamedRequest,
)
from ipybox.code_exec import sync
from ipybox.code_exec.sync import Portal
from ipybox.errors import ExecutionCancelledError, ExecutionTimeoutError
from ipybox.tool_exec.approval.request import accepts_batches
from tests import servers
from tests.conftest import Mode
from tests.servers import WAIT

CALL = "from registered import scripted\nprint(scripted.run_sync('echo', {'text': 'hello'}))"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sync")
    servers.register(directory, scripted=servers.scripted())
    return directory


@pytest.fixture(scope="module")
def executor(workspace: Path, mode: Mode, shared: None) -> Iterator[Executor]:
    with Executor(working_dir=workspace, sandbox=mode.sandbox) as running:
        yield running


def test_variables_stay_and_errors_are_those_of_code_executor(executor: Executor):
    assert executor.run("x = 6").text is None
    assert executor.run("print('six'); x * 7").text == "six\n42"
    with pytest.raises(CodeExecutionError, match="ZeroDivisionError"):
        executor.run("1 / 0")
    with pytest.raises(ExecutionTimeoutError):
        executor.run("import time; print('a'); time.sleep(60)", timeout=0.5)
    assert executor.run("x").text == "6"


def test_output_is_yielded_while_the_code_runs(executor: Executor, workspace: Path):
    items = executor.stream(
        "import pathlib, time\nprint('first', flush=True)\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.01)\nprint('second')",
        timeout=WAIT,
    )
    first = next(items)
    assert isinstance(first, CodeExecutionChunk)
    assert first.text == "first\n"
    (workspace / "go").touch()
    *_, last = items
    assert isinstance(last, CodeExecutionResult)
    assert last.text == "first\nsecond"


def test_a_closed_stream_interrupts_the_code(executor: Executor):
    items = executor.stream("state = 1\nprint('runs', flush=True)\nimport time\ntime.sleep(60)", timeout=WAIT)
    next(items)
    items.close()
    assert executor.run("state", timeout=WAIT).text == "1"


def test_a_plain_function_accepts_batches(tmp_path: Path, mode: Mode):
    seen: list[list[dict[str, Any]]] = []

    @accepts_batches
    def approver(request: ApprovalRequest) -> bool:
        seen.append(request.calls)
        return True

    def put(text: str) -> str:
        return text

    code = "from mcptools.app import put; print(*put.run_many([put.Params(text=text) for text in 'ab']))"
    with Executor(working_dir=tmp_path, sandbox=mode.sandbox, tools=[put], approver=approver) as executor:
        assert executor.run(code).text == "a b"
        results = [each for each in executor.stream(code) if isinstance(each, CodeExecutionResult)]
        assert [each.text for each in results] == ["a b"]
    assert seen == [[{"text": "a"}, {"text": "b"}]] * 2


def test_questions_that_nobody_answers_take_a_limited_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sync, "MAX_UNANSWERED", 2)
    answered = threading.Event()

    def approver(_: ApprovalRequest) -> bool:
        return answered.wait(WAIT)

    def put(text: str) -> str:
        return text

    code = "from mcptools.app import put; print(*put.run_many([put.Params(text=text) for text in 'abcd']), sep='\\n')"
    with Executor(working_dir=tmp_path, tools=[put], approver=approver, approval_timeout=0.1) as executor:
        lines = (executor.run(code).text or "").splitlines()
        assert ["expired" in line for line in lines] == [True, True, False, False]
        assert "the approver failed: RuntimeError: it has not answered 2 earlier questions" in lines[-1]
        answered.set()
        while (executor.run(code).text or "").splitlines() != [*"abcd"]:
            pass


def test_functions_of_the_application_are_tools(tmp_path: Path, mode: Mode):
    threads: list[str] = []

    def shout(text: str) -> str:
        threads.append(threading.current_thread().name)
        return text.upper()

    async def whisper(text: str) -> str:
        threads.append(threading.current_thread().name)
        return text.lower()

    code = """
from mcptools.app import shout, whisper
print(shout.run(shout.Params(text="Tea")), whisper.run(whisper.Params(text="Tea")))
"""
    with Executor(working_dir=tmp_path, sandbox=mode.sandbox, tools=[shout, whisper]) as executor:
        assert executor.run(code).text == "TEA tea"
    assert threads == ["ipybox-shout", "ipybox"]  # a thread of its own, and that of the event loop


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Has Python handle SIGINT as usual: a shell that starts a program in the background has it ignored there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("way", ["run", "stream"])
def test_ctrl_c_interrupts_the_code_and_the_kernel_keeps_its_state(executor: Executor, way: str):
    def interrupt(_: ApprovalRequest) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return True

    code = f"state = {way!r}\n{CALL}\nimport time\ntime.sleep(60)"
    with pytest.raises(KeyboardInterrupt):
        executor.run(code, approver=interrupt) if way == "run" else list(executor.stream(code, approver=interrupt))
    assert executor.run("state", timeout=WAIT).text == repr(way)


def test_no_task_is_dropped_by_the_callers_thread_where_ctrl_c_might_be_ignored():
    dropped: list[bool] = []

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        weakref.finalize(task, lambda: dropped.append(threading.current_thread() is threading.main_thread()))

    portal = Portal()
    for _ in range(20):
        portal.call(work)
    portal.close()
    assert dropped == [False] * 20


@pytest.mark.parametrize("way", ["run", "stream"])
def test_a_plain_function_decides_on_tool_calls_in_a_thread_of_its_own(executor: Executor, way: str):
    asked: list[tuple[str, object, bool]] = []

    def decide(request: ApprovalRequest) -> bool:
        asked.append((request.tool_name, request.tool_args, threading.current_thread() is threading.main_thread()))
        return len(asked) == 1

    def run() -> None:
        if way == "run":
            assert executor.run(CALL, approver=decide).text == "hello"
        else:
            *_, result = executor.stream(CALL, approver=decide)
            assert isinstance(result, CodeExecutionResult)
            assert result.text == "hello"

    run()
    with pytest.raises(CodeExecutionError, match="rejected"):
        run()
    assert asked == [("echo", {"text": "hello"}, False)] * 2


def run_or_stream(executor: Executor, way: str, **options: Any) -> CodeExecutionResult:
    if way == "run":
        return executor.run(CALL, WAIT, **options)
    *_, result = executor.stream(CALL, WAIT, **options)
    assert isinstance(result, CodeExecutionResult)
    return result


@pytest.mark.parametrize("way", ["run", "stream"])
@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (LookupError("no such rule"), "LookupError: no such rule"),
        (SystemExit("quit"), r"RuntimeError: SystemExit\('quit'\)"),
        (StopIteration(), "RuntimeError: the function raised StopIteration"),
    ],
)
def test_an_approver_that_raises_fails_the_call_in_the_code(
    executor: Executor, way: str, failure: BaseException, reason: str
):
    def decide(request: ApprovalRequest) -> bool:
        raise failure

    with pytest.raises(CodeExecutionError, match=f"the approver failed: {reason}$"):
        run_or_stream(executor, way, approver=decide)
    assert run_or_stream(executor, way).text == "hello"


@pytest.mark.parametrize("way", ["run", "stream"])
def test_what_is_not_true_rejects_and_an_awaitable_does_not_accept(executor: Executor, way: str):
    async def accept() -> bool:
        return True

    def returns_nothing(_: ApprovalRequest) -> None:
        pass

    class Later:
        def __await__(self) -> Iterator[None]:
            yield

    with pytest.raises(CodeExecutionError, match=r"call to scripted\.echo was rejected$"):
        run_or_stream(executor, way, approver=returns_nothing)

    def answers_no(_: ApprovalRequest) -> str:
        return "no"

    with pytest.raises(CodeExecutionError, match="the approver returned str: return True to accept, False to reject"):
        run_or_stream(executor, way, approver=answers_no)
    made: list[Callable[[], object]] = [accept, Later]

    def returns_awaitable(_: ApprovalRequest) -> object:
        return made.pop()()

    while made:
        with pytest.raises(CodeExecutionError, match="an Executor needs a synchronous approver"):
            run_or_stream(executor, way, approver=returns_awaitable)


@pytest.mark.parametrize("way", ["run", "stream"])
def test_the_approver_of_the_constructor_decides_unless_the_call_has_its_own(workspace: Path, mode: Mode, way: str):
    asked: list[str] = []

    def of_constructor(request: ApprovalRequest) -> bool:
        asked.append("constructor")
        return False

    def of_call(request: ApprovalRequest) -> bool:
        asked.append("call")
        return True

    with Executor(working_dir=workspace, sandbox=mode.sandbox, approver=of_constructor) as executor:
        with pytest.raises(CodeExecutionError, match="rejected"):
            run_or_stream(executor, way)
        assert run_or_stream(executor, way, approver=of_call).text == "hello"
    assert asked == ["constructor", "call"]


@pytest.mark.parametrize("way", ["run", "stream"])
def test_what_an_approver_returns_after_its_request_has_expired_has_no_effect(workspace: Path, mode: Mode, way: str):
    expired, returns = threading.Event(), threading.Event()
    states: list[str] = []

    def decide(request: ApprovalRequest) -> bool:
        expired.wait(WAIT)
        states.append(request.state)
        returns.set()
        return True

    with Executor(working_dir=workspace, sandbox=mode.sandbox, approval_timeout=0.2, approver=decide) as executor:
        with pytest.raises(CodeExecutionError, match=r"the approval request expired after 0\.2 s"):
            run_or_stream(executor, way)
        expired.set()
        assert returns.wait(WAIT)
        assert executor.run("1 + 1").text == "2"
    assert states == ["expired"]


def test_a_coroutine_function_is_no_approver(executor: Executor):
    async def decide(request: ApprovalRequest) -> bool:
        return True

    with pytest.raises(TypeError, match="synchronous approver: for an async one, use CodeExecutor"):
        Executor(approver=decide)
    with pytest.raises(TypeError, match="synchronous approver: for an async one, use CodeExecutor"):
        executor.run(CALL, approver=decide)


def test_threads_execute_one_after_the_other(executor: Executor):
    executor.run("seen = []")
    threads = [threading.Thread(target=executor.run, args=(f"seen.append({number})",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert executor.run("sorted(seen)").text == str(list(range(8)))


def test_another_thread_cancels(executor: Executor):
    assert executor.cancel() is False
    items = executor.stream("print('runs', flush=True)\nimport time\ntime.sleep(60)", timeout=WAIT)
    next(items)
    threading.Thread(target=executor.cancel).start()
    with pytest.raises(ExecutionCancelledError):
        list(items)


async def test_it_works_where_an_event_loop_runs_as_in_a_notebook(executor: Executor):
    assert asyncio.get_running_loop().is_running()
    assert executor.run("1 + 1").text == "2"


IN_A_CHILD = {
    "nothing": "sys.exit(0)",
    "run": "executor.run('1')",
    "stream": "list(executor.stream('1'))",
    "start": "executor.start()",
    "stop": "executor.stop(); executor.run('1')",
    "exit": "executor.__exit__(None, None, None); sys.exit(0)",
    "own": "with Executor() as own: print(own.run('1 + 1').text, flush=True)\n    sys.exit(0)",
}
FORKED = "RuntimeError: the executor was started in the parent process and can't be used in a forked child: create "


@pytest.mark.kernel
def test_a_forked_child_neither_hangs_nor_disturbs_the_executor_of_its_parent(tmp_path: Path):
    code = f"""
import os, signal, sys
from ipybox import Executor
executor = Executor()
executor.start()
executor.run("x = 1")
for name, work in {IN_A_CHILD!r}.items():
    if os.fork() == 0:
        signal.alarm({int(WAIT)})  # ends a child that hangs
        try:
            exec("if True:\\n    " + work)
        except RuntimeError as exc:
            print(type(exc).__name__, exc, sep=": ", flush=True)
        sys.exit(5)
    print(name, os.waitstatus_to_exitcode(os.wait()[1]), executor.run("x").text, flush=True)
executor.stop()
"""
    with program(code, tmp_path) as process:
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
    refused = [name for name, work in IN_A_CHILD.items() if "sys.exit" not in work]
    expected: list[str] = []
    for name in IN_A_CHILD:
        expected += [f"{FORKED}another one here"] if name in refused else ["2"] if name == "own" else []
        expected.append(f"{name} {5 if name in refused else 0} 1")
    assert lines == expected


UNSTOPPED = {
    "async": "import asyncio\nasync def main(): await CodeExecutor().start()\nasyncio.run(main())",
    "sibling": """import asyncio
async def main():
    async with CodeExecutor() as executor:
        sibling = executor.sibling()
        await sibling.start()
        await sibling.reset()
        await sibling.execute("1")
asyncio.run(main())""",
    "sync": "Executor().start()",
    "stopped": "with Executor() as executor: pass",
    "failed": "try: Executor(memory_limit=1)\nexcept ValueError: pass",
}


@pytest.mark.kernel
@pytest.mark.parametrize("how", UNSTOPPED)
def test_an_executor_that_nobody_stopped_is_a_resource_warning(how: str, tmp_path: Path):
    code = f"from ipybox import CodeExecutor, Executor\n{UNSTOPPED[how]}"
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT, check=True)
    warned = [line for line in done.stderr.splitlines() if "Executor object" in line and "was never stopped" in line]
    assert len(warned) == (1 if how in ("async", "sibling", "sync") else 0)


@pytest.mark.kernel
@pytest.mark.parametrize("how", ["async", "sibling"])
def test_an_executor_that_nobody_stopped_leaves_no_errors_of_the_connections_to_its_kernel(how: str, tmp_path: Path):
    command = [sys.executable, "-c", f"from ipybox import CodeExecutor\n{UNSTOPPED[how]}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT, check=True)
    # asyncio itself logs this before Python 3.12.
    assert [line for line in done.stderr.splitlines() if not line.startswith("Loop <")] == []


def test_a_call_of_a_closed_portal_ends():
    portal = Portal()

    async def work() -> None:
        pass

    portal.close()
    with pytest.raises(RuntimeError, match="the executor was stopped"):
        portal.call(work)


def test_it_starts_and_stops_more_than_once(tmp_path: Path):
    executor = Executor(working_dir=tmp_path)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not running: use `with Executor"):
            executor.run("1")
        executor.start()
        with pytest.raises(RuntimeError, match="already running"):
            executor.start()
        assert executor.run("'x' in globals()").text == "False"
        executor.run("x = 1")
        executor.stop()
        executor.stop()


def test_a_start_that_fails_leaves_no_thread(tmp_path: Path):
    before = threading.active_count()
    executor = Executor(working_dir=tmp_path / "missing")
    with pytest.raises(OSError, match="missing"):
        executor.start()
    assert threading.active_count() == before


def test_code_that_runs_when_the_executor_stops_fails(tmp_path: Path):
    executor = Executor(working_dir=tmp_path)
    executor.start()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            list(items)
        except BaseException as exc:
            failures.append(exc)

    items = executor.stream("print('runs', flush=True)\nimport time\ntime.sleep(60)", timeout=WAIT)
    next(items)
    thread = threading.Thread(target=run)
    thread.start()
    executor.stop()
    thread.join(WAIT)
    assert not thread.is_alive()
    assert [str(failure) for failure in failures] == ["the code executor has been stopped"]


def test_a_stream_that_is_continued_after_the_stop_says_so(tmp_path: Path):
    with Executor(working_dir=tmp_path) as executor:
        begun = executor.stream("print('runs', flush=True)\nimport time\ntime.sleep(60)", timeout=WAIT)
        next(begun)
        new = executor.stream("1")
    with pytest.raises(RuntimeError, match="the executor was stopped"):
        list(begun)
    with pytest.raises(RuntimeError, match="the executor is not running"):
        list(new)


def program(code: str, cwd: Path) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], cwd=cwd, stdin=pipe, stdout=pipe, text=True)


@pytest.mark.kernel
def test_a_program_that_forgets_to_stop_it_ends_and_leaves_nothing(tmp_path: Path):
    code = (
        "from ipybox import Executor\nexecutor = Executor()\nexecutor.start()\n"
        "print(executor.run('import os; os.getpid()').text, flush=True)"
    )
    with program(code, tmp_path) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert process.wait(WAIT) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.kernel
@pytest.mark.parametrize("waits", ["time.sleep(3600)", "input()"])
def test_a_person_who_does_not_answer_does_not_keep_the_program(waits: str, tmp_path: Path):
    servers.register(tmp_path, scripted=servers.scripted())
    code = f"""
import time
from ipybox import Executor
with Executor(approval_timeout=0.5) as executor:
    try:
        executor.run({CALL!r}, approver=lambda request: {waits})
    except Exception as exc:
        print("expired" if "expired" in str(exc) else exc, flush=True)
"""
    with program(code, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "expired\n"
        assert process.wait(WAIT) == 0


@pytest.mark.kernel
def test_a_function_that_does_not_return_does_not_keep_the_program(tmp_path: Path):
    code = """
import time
from ipybox import Executor
def sleep() -> None:
    print("asleep", flush=True)
    time.sleep(3600)
with Executor(tools=[sleep]) as executor:
    try:
        executor.run("from mcptools.app import sleep\\nsleep.run(sleep.Params())", timeout=5)
    except TimeoutError:
        print("timed out", flush=True)
"""
    with program(code, tmp_path) as process:
        assert process.stdout is not None
        assert [process.stdout.readline(), process.stdout.readline()] == ["asleep\n", "timed out\n"]
        assert process.wait(WAIT) == 0


def test_variables_go_in_and_out(executor: Executor):
    result = executor.run("import os; y = given + 1; os.environ['A']", variables={"given": 1}, env={"A": "b"})
    assert (result.text, executor.get("y", WAIT)) == ("'b'", 2)
    *_, last = executor.stream("given, os.environ['A']", variables={"given": 2}, env={"A": "c"})
    assert isinstance(last, CodeExecutionResult)
    assert last.text == "(2, 'c')"


def test_siblings_run_in_parallel_and_end_in_any_order(workspace: Path):
    before = threading.active_count()
    with Executor(working_dir=workspace, approver=lambda request: False) as first:
        second = first.sibling("second")
        with pytest.raises(RuntimeError, match="not running"):
            second.run("1")
        second.start()
        busy = first.stream("x = 1\nprint('busy', flush=True)\nimport time; time.sleep(60)")
        assert isinstance(next(busy), CodeExecutionChunk)
        assert second.run("'x' in globals()").text == "False"
        assert second.run(CALL, raise_errors=False).error is not None, "it has the same approver"
        busy.close()
        first.stop()
        assert second.run("y = 2; y").text == "2"
        first.start()
        second.stop()
        assert first.run("'usable'").text == "'usable'"
    assert threading.active_count() == before


def test_stream_yields_requests_and_errors(executor: Executor):
    code = "print(1, flush=True)\n" + CALL
    seen: list[str] = []
    for decision in (True, False):
        for item in executor.stream(code, WAIT, requests=True, raise_errors=False):
            if isinstance(item, StreamedRequest):
                assert str(item) == str(item.request)
                seen.append(item.request.tool_name)
                assert item.accept() if decision else item.reject("not today")
                assert not item.accept()
            elif isinstance(item, CodeExecutionResult):
                seen.append(f"{item.text} {item.error and item.error.value}")
    assert seen[:3] == ["echo", "1\nhello None", "echo"]
    assert seen[3].startswith("1 ")
    assert "not today" in seen[3]
    with pytest.raises(TypeError, match=r"either approver=\.\.\. or requests"):
        next(executor.stream("1", approver=lambda request: True, requests=True))
