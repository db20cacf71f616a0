"""Time limits of executions, and their turns."""

import asyncio
import base64
from pathlib import Path

import pytest

from ipybox import CodeExecutionChunk, CodeExecutionError, CodeExecutionResult, CodeExecutor
from ipybox.errors import ExecutionTimeoutError
from tests.code_exec.cells import SLEEPS, SWALLOWS_INTERRUPTS, begun, text

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
    expected = r"exceeded 0\.5 s: .* ignored the interrupt .* restarted: its state is lost"
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


async def test_a_timeout_of_0_is_an_error_and_the_code_does_not_run(executor: CodeExecutor):
    with pytest.raises(ValueError, match=r"^timeout=0 must be a positive number of seconds, or None for no limit$"):
        await executor.execute("ran = 1", timeout=0)
    with pytest.raises(ValueError, match="must be a positive number of seconds"):
        _ = [item async for item in executor.stream("ran = 1", timeout=0)]
    assert await text(executor, "'ran' in globals()") == "False"


async def test_waiting_for_a_turn_counts_to_the_timeout(executor: CodeExecutor):
    first = await begun(executor, "print('begun', flush=True)\nimport time; time.sleep(1)\nprint('done')")
    with pytest.raises(TimeoutError, match=r"did not start within 0\.2 s: an earlier execution is still running"):
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
