"""What cells have left behind puts out between two cells is the start of the next result, marked as such."""

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipybox import CodeExecutionChunk, CodeExecutionError, CodeExecutor, Display, Stream
from ipybox.kernel_mgr import output_collector
from ipybox.kernel_mgr.display_forms import text_of_all
from ipybox.kernel_mgr.messages import Message
from ipybox.kernel_mgr.output_collector import END, LATE, LateOutput, OutputCollector
from tests.code_exec.cells import text
from tests.conftest import Fifo
from tests.kernel_mgr.test_output_collector import display, message, stream
from tests.servers import WAIT

START = LATE.format("")

#: Code that lets `work()` go on when the cell has ended, and then tells the test.
LATER = """
import asyncio, logging, os, subprocess, sys, threading
mark = 1
def wait():
    with open("pipes/go", "rb", buffering=0) as file:
        file.read(1)
def tell():
    sys.stdout.flush(); sys.stderr.flush()
    with open("pipes/fifo", "w") as file:
        file.write("done\\n")
"""
THREAD = """
def work():
    {work}
def later():
    wait()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    tell()
threading.Thread(target=later).start()
"""
TASK = """
async def later():
    await asyncio.to_thread(wait)
    {work}
    tell()
task = asyncio.create_task(later())
"""


class Later:
    """Lets what a cell has left behind go on, and waits until it has put out something."""

    def __init__(self, directory: Path):
        self._go, self._done = Fifo(directory / "go"), Fifo(directory / "fifo")

    async def go(self, executor: CodeExecutor) -> None:
        self._go.path.write_text(".")
        async with asyncio.timeout(WAIT):
            await self._done.until("done")
        await executor.get("mark")  # what was put out before has arrived, too

    def close(self) -> None:
        self._go.close()
        self._done.close()


@pytest.fixture
def later(workspace: Path) -> Iterator[Later]:
    directory = workspace / "pipes"
    os.mkdir(directory)
    later = Later(directory)
    yield later
    later.close()
    shutil.rmtree(directory)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("code", "parts"),
    [
        pytest.param(THREAD.format(work="print('epoch 1')"), ["epoch 1"], id="thread"),
        pytest.param(THREAD.format(work="print('no end', end='')"), ["no end"], id="without_newline"),
        pytest.param(
            THREAD.format(work="raise KeyError('job')"), ["Exception in thread", "KeyError: 'job'"], id="traceback"
        ),
        pytest.param(THREAD.format(work="logging.warning('in use')"), ["WARNING:root:in use"], id="log"),
        pytest.param(THREAD.format(work="subprocess.run(['echo', 'child'])"), ["child"], id="child"),
        pytest.param(THREAD.format(work="os.write(1, b'direct')"), ["direct"], id="descriptor"),
        pytest.param(THREAD.format(work="display('shown')"), ["'shown'"], id="display"),
        pytest.param(TASK.format(work="print('task')"), ["task"], id="task"),
    ],
)
async def test_output_between_two_cells_comes_with_the_next_result(
    executor: CodeExecutor, later: Later, code: str, parts: list[str]
):
    assert await text(executor, LATER + code) is None
    await later.go(executor)
    printed = await text(executor, "print('next')")

    assert printed is not None
    assert printed.startswith(START)
    late, _, following = printed.removeprefix(START).partition(END)
    assert all(part in late for part in parts)
    assert following == "next"
    assert await text(executor, "print('next')") == "next"


@pytest.mark.asyncio(loop_scope="module")
async def test_it_comes_with_an_error_and_in_a_stream_too(executor: CodeExecutor, later: Later):
    await executor.execute(LATER + THREAD.format(work="print('late')"))
    await later.go(executor)
    with pytest.raises(CodeExecutionError, match="ZeroDivisionError") as error:
        await executor.execute("1 / 0")
    assert error.value.text == f"{START}late\n{END}".rstrip("\n")

    await executor.execute(LATER + THREAD.format(work="print('late')"))
    await later.go(executor)
    chunks = [
        item.text async for item in executor.stream("print(1)", chunks=True) if isinstance(item, CodeExecutionChunk)
    ]
    assert "".join(chunks) == f"{START}late\n{END}1\n"


@pytest.mark.asyncio(loop_scope="module")
async def test_it_outlives_the_kernel_but_no_reset(executor: CodeExecutor, later: Later):
    await executor.execute(LATER + THREAD.format(work="print('late')"))
    await later.go(executor)
    await executor.reset()
    assert await text(executor, "1") == "1"

    await executor.execute(LATER + THREAD.format(work="print('last words'); tell(); os._exit(7)"))
    with pytest.raises(CodeExecutionError, match=r"exited with code 7|the kernel died or was restarted"):
        await later.go(executor)
    assert await text(executor, "1") == f"{START}last words\n{END}1"


@pytest.mark.asyncio(loop_scope="module")
async def test_what_a_task_prints_while_a_later_cell_runs_is_part_of_that_cell(executor: CodeExecutor):
    start = "import asyncio\ngo = asyncio.Event()\nasync def work():\n    await go.wait(); print('task')\n"
    assert await text(executor, f"{start}task = asyncio.create_task(work());") is None
    assert await text(executor, "go.set(); await task; print('cell')") == "task\ncell"


def collected(late: LateOutput) -> OutputCollector:
    outputs = OutputCollector()
    late.begin_cell(outputs)
    late.running = None
    return outputs


def kept(*messages: Message) -> LateOutput:
    late = LateOutput()
    for each in messages:
        late.add(each)
    return late


def test_it_is_output_in_order():
    late = kept(stream("a"), message("stream", name="stderr", text="b"), display("c"))

    assert collected(late).outputs() == [
        Stream("stdout", f"{START}a"),
        Stream("stderr", "b"),
        Display({"text/plain": "c"}),
        Stream("stdout", END),
    ]
    assert text_of_all(collected(late).outputs()) is None


@pytest.mark.parametrize(
    "type_", ["status", "execute_result", "clear_output", "update_display_data", "error", "comm_msg"]
)
def test_other_messages_are_not_kept(type_: str):
    assert (
        text_of_all(collected(kept(message(type_, data={"text/plain": "a"}, execution_state="idle"))).outputs()) is None
    )


def test_the_oldest_is_dropped_beyond_the_limit():
    messages = [stream(f"{number:>999}\n") for number in range(1000)]
    shown = (text_of_all(collected(kept(*messages)).outputs()) or "").splitlines()

    assert shown[0].startswith("[output from earlier cells, printed after they finished; the first ")
    assert shown[0].endswith(" were dropped]")
    assert shown[1:-1] == [f"{number:>999}" for number in range(1000 - len(shown) + 2, 1000)]
    assert output_collector.MAX_LATE_BYTES - 10_000 < sum(map(len, shown)) < output_collector.MAX_LATE_BYTES


def test_one_message_beyond_the_limit_is_dropped_and_counted():
    text = text_of_all(collected(kept(stream("x" * output_collector.MAX_LATE_BYTES))).outputs())

    assert text == f"{LATE.format('; the first 256 KiB were dropped')}{END}".rstrip("\n")


def test_buffers_and_headers_of_late_messages_are_not_kept():
    memory = bytearray(8)
    header = {"msg_type": "stream", "more": "x"}
    late = LateOutput()
    for _ in range(output_collector.MAX_LATE_MESSAGES + 1):
        late.add(Message("iopub", header, header, b"{}", (memoryview(memory),)))

    memory.append(0)  # raises if a view of it is left
    assert sys.getrefcount(header) == 2
    outputs = OutputCollector()
    late.begin_cell(outputs)
    assert "the first 2 bytes were dropped" in (text_of_all(outputs.outputs()) or "")
