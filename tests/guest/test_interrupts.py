"""An interrupt ends cells, in what they wait for and in what they do, and the kernel keeps its state."""

import signal
from pathlib import Path

import pytest

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.errors import ExecutionTimeoutError
from tests.conftest import Mode
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Seconds until a cell is interrupted.
TIMEOUT = 0.3
KEPT = r"the execution exceeded 0\.3 s: the kernel was interrupted and keeps its state"

SLEEPS = "time.sleep(60)"
AWAITS = "await asyncio.sleep(60)"
PAUSE = "await asyncio.sleep(0)"


async def interrupted(executor: CodeExecutor, code: str) -> str | None:
    """Interrupts code, which must end then, and returns what it has printed."""
    await executor.execute("import asyncio, time\nkept = 1")
    with pytest.raises(ExecutionTimeoutError, match=KEPT) as error:
        await executor.execute(code, timeout=TIMEOUT)
    assert (await executor.execute("kept")).text == "1"
    return error.value.text


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(f"{PAUSE}; {SLEEPS}", id="code_after_await"),
        pytest.param(f"{PAUSE}; {SLEEPS}; {PAUSE}", id="code_between_awaits"),
        pytest.param(f"{PAUSE}; {AWAITS}", id="await"),
        pytest.param(f"{PAUSE}; time.sleep(0.01); {AWAITS}; {SLEEPS}", id="await_after_code"),
        pytest.param(f"async def run(): {PAUSE}; {SLEEPS}\nawait run()", id="code_in_a_coroutine"),
        pytest.param(f"async def run(): {PAUSE}; {SLEEPS}\nawait asyncio.create_task(run())", id="code_in_a_task"),
        pytest.param(f"async def run(): {SLEEPS}\nawait asyncio.gather(run(), run())", id="code_in_gathered_tasks"),
        pytest.param(
            f"async def run(): {SLEEPS}\ntask = asyncio.create_task(run())\n{AWAITS}", id="code_in_another_task"
        ),
        pytest.param(f"async with asyncio.timeout(60): {PAUSE}; {SLEEPS}", id="code_within_a_timeout"),
        pytest.param(f"{PAUSE}\nwhile True: pass", id="code_that_computes"),
        pytest.param(f"{PAUSE}\nimport subprocess; subprocess.run(['sleep', '60'])", id="a_child_process"),
        pytest.param("await asyncio.to_thread(time.sleep, 1)", id="a_thread"),
    ],
)
async def test_an_interrupt_ends_a_cell_that_awaits_whatever_it_does(executor: CodeExecutor, code: str):
    await interrupted(executor, code)


@pytest.mark.parametrize(
    ("does", "raised"),
    [
        pytest.param(f"{PAUSE}; {SLEEPS}", "KeyboardInterrupt", id="code"),
        pytest.param(AWAITS, "CancelledError", id="await"),
    ],
)
async def test_code_sees_an_interrupt_as_with_asyncio_run(executor: CodeExecutor, does: str, raised: str):
    code = f"""
try:
    {does}
except BaseException as error:
    print("except", type(error).__name__)
    raise
finally:
    {PAUSE}
    print("finally")
"""
    assert await interrupted(executor, code) == f"except {raised}\nfinally"


async def test_an_interrupt_of_code_after_an_await_is_an_error_at_its_line(executor: CodeExecutor):
    code = "import asyncio, os, signal\nawait asyncio.sleep(0)\nos.kill(os.getpid(), signal.SIGINT)\nprint('on')"
    with pytest.raises(CodeExecutionError) as error:
        await executor.execute(code, timeout=WAIT)

    assert "----> 3 os.kill(os.getpid(), signal.SIGINT)" in str(error.value)
    assert str(error.value).rstrip().endswith("KeyboardInterrupt:")
    assert error.value.text is None


async def test_an_interrupt_of_asyncio_between_two_steps_of_a_task_ends_the_cell(executor: CodeExecutor):
    code = """
import asyncio, os, signal
loop = asyncio.get_running_loop()
def call_soon(*args, **kwargs):
    del loop.call_soon
    os.kill(os.getpid(), signal.SIGINT)
    return loop.call_soon(*args, **kwargs)
loop.call_soon = call_soon
while True: await asyncio.sleep(0)
"""
    with pytest.raises(CodeExecutionError, match="CancelledError"):
        await executor.execute(code, timeout=WAIT)
    assert (await executor.execute("'loop' in globals()")).text == "True"


async def raises_interrupt(executor: CodeExecutor, code: str) -> None:
    """Runs code that interrupts itself, which must end then, and leaves a kernel that prints."""
    with pytest.raises(CodeExecutionError, match="KeyboardInterrupt"):
        await executor.execute(f"import os, signal, threading, time\n{code}", timeout=WAIT)
    assert (await executor.execute("print('prints')", timeout=WAIT)).text == "prints"


async def test_an_interrupt_ends_a_system_call_that_it_did_not_wake(executor: CodeExecutor):
    # As if the signal came just before the call: Python notes it, in a thread, but nothing ends the call.
    code = """
import signal, threading
ends = threading.Event()
thread = threading.Thread(target=ends.wait)
thread.start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
try:
    time.sleep(60)
finally:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    ends.set()
    thread.join()
"""
    await interrupted(executor, code)


async def test_an_interrupt_of_a_finalizer_ends_the_cell(executor: CodeExecutor):
    code = "class Finalized:\n    def __del__(self): time.sleep(60)\nFinalized()\ntime.sleep(60)"
    assert "Exception ignored in" in (await interrupted(executor, code) or "")


async def test_an_interrupt_of_a_callback_before_the_code_ends_the_cell(executor: CodeExecutor):
    await executor.execute("""
import os, signal
def interrupt_once(*_):
    get_ipython().events.unregister("pre_run_cell", interrupt_once)
    os.kill(os.getpid(), signal.SIGINT)
get_ipython().events.register("pre_run_cell", interrupt_once)
""")
    await raises_interrupt(executor, "ran = True")
    assert (await executor.execute("'ran' in globals()")).text == "False"


@pytest.mark.parametrize("before", [True, False])
async def test_an_interrupt_before_ipykernel_waits_for_the_code_ends_the_cell_in_silence(
    executor: CodeExecutor, before: bool
):
    await executor.execute(f"""
import asyncio, os, signal
make_task = asyncio.ensure_future
def make_interrupted_task(coroutine):
    if getattr(coroutine, "__name__", None) != "run_cell_async":
        return make_task(coroutine)
    asyncio.ensure_future = make_task
    task = None if {before} else make_task(coroutine)
    os.kill(os.getpid(), signal.SIGINT)
    return task or make_task(coroutine)
asyncio.ensure_future = make_interrupted_task
""")
    with pytest.raises(CodeExecutionError, match="KeyboardInterrupt") as error:
        await executor.execute("ran = True; await asyncio.sleep(0)", timeout=WAIT)
    assert error.value.output is not None
    assert error.value.output.text is None
    assert (await executor.execute("'ran' in globals()")).text == "False"


async def test_an_interrupt_anywhere_in_print_leaves_the_output_working(executor: CodeExecutor):
    # Python runs handlers of signals where a function begins, and after a call.
    code = """
import sys
def printed(left):
    def trace(frame, event, arg):
        nonlocal left
        frame.f_trace_lines = False
        left -= event != "line"
        if left < 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace
    sys.settrace(trace)
    try:
        print("x", flush=True)
    except KeyboardInterrupt:
        return False
    finally:
        sys.settrace(None)
    return True
tried = 0
while not printed(tried):
    tried += 1
    print("still", flush=True)
assert tried > 20, tried
raise KeyboardInterrupt
"""
    await raises_interrupt(executor, code)


async def test_an_application_that_blocks_signals_keeps_no_interrupt_from_a_cell(tmp_path: Path, mode: Mode):
    """Supervisors block them in all threads, and wait for them in one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:
            await interrupted(executor, SLEEPS)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
