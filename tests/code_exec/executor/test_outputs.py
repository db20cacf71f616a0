"""Outputs in order, with all forms of displays, and exceptions with their parts."""

import base64
from pathlib import Path

import pytest

from ipybox import (
    Clear,
    CodeExecutionChunk,
    CodeExecutionError,
    CodeExecutionResult,
    CodeExecutor,
    Display,
    Result,
    Stream,
)
from ipybox.errors import ExecutionTimeoutError
from tests.code_exec.cells import SLEEPS, begun
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

PNG = b"\x89PNG picture"
CHART = {"application/vnd.vegalite.v5+json": {"mark": "bar"}, "text/plain": "chart"}

#: Sends a message to the application in the kernel's name, past IPython.
SEND = """
def send(type_, **content):
    kernel = get_ipython().kernel
    kernel.session.send(kernel.iopub_socket, type_, content, parent=kernel.get_parent())
"""


async def test_outputs_are_in_order_with_all_their_forms(executor: CodeExecutor, workspace: Path):
    result = await executor.execute(f"""
import sys
from IPython.display import HTML, Image
print("one")
print("two", file=sys.stderr)
display(Image({PNG!r}, width=10))
print("three")
display({CHART!r}, raw=True)
HTML("<b>four</b>")
""")

    image, html = (path for output in result.outputs if isinstance(output, Display) for path in output.files)
    assert result.outputs == (
        Stream("stdout", "one\n"),
        Stream("stderr", "two\n"),
        Display(
            {"image/png": base64.b64encode(PNG).decode(), "text/plain": "<IPython.core.display.Image object>"},
            {"image/png": {"width": 10}},
            (image,),
        ),
        Stream("stdout", "three\n"),
        Display(CHART),
        Result(
            {"text/html": "<b>four</b>", "text/plain": "<IPython.core.display.HTML object>"},
            files=(html,),
            execution_count=result.outputs[-1].execution_count if isinstance(result.outputs[-1], Result) else None,
        ),
    )
    assert isinstance(result.outputs[-1], Result)
    assert isinstance(result.outputs[-1].execution_count, int)
    assert ([image], [html]) == (result.images, result.files)
    assert (image.read_bytes(), html.read_text()) == (PNG, "<b>four</b>")
    assert result.text == f"one\ntwo\nthree\nchart\n[HTML saved as {html.name}]"


async def test_displays_are_yielded_while_the_code_runs_and_in_their_place(executor: CodeExecutor, workspace: Path):
    code = f"""
import pathlib, time
from IPython.display import Image
print("before", flush=True)
display(Image({PNG!r}))
while not pathlib.Path("shown").exists(): time.sleep(0.01)
print("after")
"""
    outputs: list[Stream | Display | Clear | None] = []
    async for item in executor.stream(code, WAIT, chunks=True):
        if isinstance(item, CodeExecutionChunk):
            outputs.append(item.output)
            if isinstance(item.output, Display):
                assert item.text == ""
                assert item.output.files == ()
                (workspace / "shown").touch()
        elif isinstance(item, CodeExecutionResult):
            assert item.outputs[0] == Stream("stdout", "before\n")
            assert item.outputs[2] == Stream("stdout", "after\n")

    texts = [output.text if isinstance(output, Stream) else "" for output in outputs]
    (place,) = (place for place, output in enumerate(outputs) if isinstance(output, Display))
    # On a busy machine, a line may come in two chunks.
    assert ("".join(texts[:place]), "".join(texts[place:])) == ("before\n", "after\n")


async def test_a_slow_consumer_gets_displays_with_gaps_and_all_in_the_result(
    executor: CodeExecutor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ipybox.code_exec.cell_runner.MAX_WAITING_CHUNKS", 10_000)
    items = executor.stream("for i in range(50): display({'image/png': 'AAAA' * 250}, raw=True)", chunks=True)
    first = await anext(items)
    assert (await executor.execute("'the one before has ended'")).notices == []
    *chunks, result = [first, *[item async for item in items]]

    shown = [item for item in chunks if isinstance(item, CodeExecutionChunk) and item.output is not None]
    notices = [item.text for item in chunks if isinstance(item, CodeExecutionChunk) and item.notice]
    assert 0 < len(shown) < 50
    assert notices
    assert isinstance(result, CodeExecutionResult)
    assert result.outputs[0] == Display({"image/png": "AAAA" * 250}, files=(result.images[0],))
    assert len(result.outputs) == len(result.images) == 50


async def test_updates_are_yielded_and_replace_what_they_update_in_the_result(executor: CodeExecutor):
    code = "handle = display('old', display_id='here')\nprint('between', flush=True)\nhandle.update('new')"
    *chunks, result = [item async for item in executor.stream(code, chunks=True)]
    shown = [item.output for item in chunks if isinstance(item, CodeExecutionChunk)]
    old, new = (Display({"text/plain": repr(text)}, display_id="here") for text in ("old", "new"))

    assert isinstance(result, CodeExecutionResult)
    assert (shown[0], shown[-1]) == (old, new)
    assert result.outputs == (new, Stream("stdout", "between\n"))


async def test_cleared_output_is_not_in_the_result(executor: CodeExecutor):
    code = "from IPython.display import clear_output\nprint('a')\ndisplay('b')\nclear_output()\nprint('c')"

    assert (await executor.execute(code)).outputs == (Stream("stdout", "c\n"),)


async def test_a_consumer_that_shows_chunks_has_in_the_end_what_the_result_has(executor: CodeExecutor):
    code = """
from IPython.display import clear_output
for percent in (0, 50, 100):
    clear_output(wait=True)
    print(f"{percent} %", flush=True)
clear_output(wait=True)
"""
    shown: list[Stream | Display | Clear | None] = []
    clearings = 0
    async for item in executor.stream(code, chunks=True):
        if isinstance(item, CodeExecutionChunk):
            if item.output == Clear():
                assert item.text == ""
                clearings += 1
                shown.clear()
            else:
                shown.append(item.output)
        elif isinstance(item, CodeExecutionResult):
            assert item.outputs == (Stream("stdout", "100 %\n"),) == tuple(shown)
    assert clearings == 2


async def test_malformed_messages_harm_nothing(executor: CodeExecutor):
    code = f"""{SEND}
send("display_data", data=[], metadata=1, transient=None)
send("display_data", data={{"image/png": 5, "text/html": "\\ud800", "a+json": None}}, metadata=[])
send("stream", name=7, text=["a\\ud800", 1])
send("execute_result", data={{"text/plain": "x"}}, execution_count="many")
"""
    items = [item async for item in executor.stream(code, chunks=True)]

    result = items[-1]
    assert isinstance(result, CodeExecutionResult)
    assert [type(output) for output in result.outputs] == [Display, Stream, Result]
    assert result.outputs[1] == Stream("stdout", "a\N{REPLACEMENT CHARACTER}")
    assert result.outputs[2] == Result({"text/plain": "x"})


async def test_an_exception_has_class_message_traceback_and_the_outputs_before_it(executor: CodeExecutor):
    code = "def fails():\n    raise ValueError('\\x1b[31mred')\nprint('before')\ndisplay('shown')\nfails()"
    with pytest.raises(CodeExecutionError) as raised:
        await executor.execute(code)

    error = raised.value
    assert (error.name, error.value) == ("ValueError", "red")
    assert error.traceback == str(error)
    assert "in fails()" in str(error)
    assert error.outputs == (Stream("stdout", "before\n"), Display({"text/plain": "'shown'"}))


async def test_a_timeout_has_outputs_but_no_exception(executor: CodeExecutor):
    with pytest.raises(ExecutionTimeoutError) as raised:
        await executor.execute(SLEEPS, timeout=0.5)

    error = raised.value
    assert (error.name, error.value, error.traceback) == (None, None, None)
    assert error.outputs == (Stream("stdout", "begun\n"),)


async def test_a_cancelled_execution_has_outputs_but_no_exception(executor: CodeExecutor):
    task = await begun(executor, SLEEPS)
    executor.cancel()
    with pytest.raises(CodeExecutionError) as raised:
        await task

    assert (raised.value.name, raised.value.traceback) == (None, None)
    assert raised.value.outputs == (Stream("stdout", "begun\n"),)


async def test_a_kernel_that_dies_leaves_outputs_but_no_exception(executor: CodeExecutor):
    code = "import os, sys, time\nprint('before', flush=True)\nsys.stdout.flush()\ntime.sleep(0.3)\nos._exit(1)"
    with pytest.raises(CodeExecutionError) as raised:
        await executor.execute(code)

    assert (raised.value.name, raised.value.value, raised.value.traceback) == (None, None, None)
    assert raised.value.outputs == (Stream("stdout", "before\n"),)
