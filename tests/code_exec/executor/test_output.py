"""All that code puts out arrives, in order."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from ipybox import CodeExecutionChunk, CodeExecutionResult, CodeExecutor
from tests import servers
from tests.code_exec.cells import text
from tests.code_exec.test_lifecycle import command_of
from tests.conftest import Fifo, Mode
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.slow
async def test_hundreds_of_executions_each_return_their_own_output(executor: CodeExecutor):
    texts = [(await executor.execute(f"print({i})")).text for i in range(300)]

    assert texts == [str(i) for i in range(300)]


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
    if i == 100:
        tell("displayed\\n")
"""
    others = servers.descendants()
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, spare_kernel=False) as executor:
        task = asyncio.create_task(executor.execute(code, timeout=WAIT))
        await fifo.until("begun")
        kernels = {pid for pid in servers.descendants() - others if "ipybox.guest.kernel" in command_of(pid)}
        # Gateways of other tests may have made spare ones.
        (gateway,) = {servers.parent(pid) for pid in kernels} - others
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
