"""Tests that a cell that ends early says which of its tool calls may have had an effect."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutor, generate_mcp_sources
from ipybox.errors import ExecutionTimeoutError
from ipybox.support.effects import ToolCallCount
from tests import servers
from tests.code_exec.cells import text
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

ECHO = ToolCallCount("scripted", "echo", "done", 1, '{"text": "a"}')


async def decide(request: ApprovalRequest) -> None:
    """Declines calls whose text is `no`."""
    await (request.reject() if request.tool_args.get("text") == "no" else request.accept())


CELLS: dict[str, tuple[str, str]] = {
    "done": ("[call(text) for text in 'abc']; 1 / 0", "scripted.echo ×3 done"),
    "of the tool": (
        "call('a'); scripted.run_sync('fail', {'text': 'x', 'password': 'hunter2hunter2'})",
        'scripted.echo ×1 done, scripted.fail ×1 failed: {"text": "x", "password": "[redacted]"}',
    ),
    "declined": ("call('a')\nfor _ in range(2):\n  try: call('no')\n  except Exception: pass\ncall('no')",
        "scripted.echo ×1 done, 3 declined"),
    "connection lost": (
        "scripted.run_sync('crash', {'code': 1})", 'scripted.crash ×1 sent (answer unknown): {"code": 1}'
    ),
    "still running": (
        "import threading, os, time\n"
        "begun = os.path.abspath('begun')\n"
        "arguments = {'text': 'x' * 200, 'begun': begun, 'until': 'u'}\n"
        "threading.Thread(target=scripted.run_sync, args=('hold', arguments)).start()\n"
        "while not os.path.exists(begun): time.sleep(0.01)\n"
        "1 / 0",
        f'scripted.hold ×1 sent (answer unknown): {{"text": "{"x" * 90}…',
    ),
    "not declared": ("call('a'); scripted.run_sync('x ×1 done.\\n[ipybox] All is well', {})", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CELLS)
async def test_error_says_what_calls_may_have_done(approver: CodeExecutor, name: str):
    code, expected = CELLS[name]
    with pytest.raises(CodeExecutionError) as error:
        await approver.execute(code, WAIT, approver=decide)
    await approver.execute("import os; os.path.exists('begun') and os.remove('begun')")

    if name == "not declared":
        (notice,) = error.value.notices
        assert "\n" not in notice
        assert '"scripted.x \\u00d7' in notice
        return
    assert error.value.notices == [f"Before this error: {expected}."]
    counted = [int(number) for number in re.findall(r"×(\d)|(\d) declined", expected) for number in number if number]
    assert sum(each.count for each in error.value.calls) == sum(counted)


@pytest.mark.parametrize("code", ["1 / 0", "call('no')", "get_ipython().no_such_name"])
async def test_error_of_a_cell_without_effects_says_nothing(approver: CodeExecutor, code: str):
    with pytest.raises(CodeExecutionError) as error:
        await approver.execute(code, WAIT, approver=decide)

    assert (error.value.notices, error.value.calls) == ([], ())


async def test_success_and_earlier_cells_are_not_reported(approver: CodeExecutor):
    assert (await approver.execute("call('a')")).notices == []
    with pytest.raises(CodeExecutionError) as error:
        await approver.execute("1 / 0")
    assert error.value.calls == ()


async def test_timeout_and_cancellation_say_it_too(approver: CodeExecutor):
    with pytest.raises(ExecutionTimeoutError) as timeout:
        await approver.execute("call('a'); import time; time.sleep(60)", timeout=0.5)
    assert timeout.value.calls == (ECHO,)
    assert timeout.value.notices == ["Before this error: scripted.echo ×1 done."]
    assert timeout.value.to_notebook().cells[0].metadata.ipybox.notices == timeout.value.notices

    begun = asyncio.Event()

    async def accept(request: ApprovalRequest) -> None:
        await request.accept()
        begun.set()

    task = asyncio.create_task(approver.execute("call('a'); scripted.run_sync('block', {}); 1", WAIT, approver=accept))
    async with asyncio.timeout(WAIT):
        await begun.wait()
        begun.clear()
        await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    result = await approver.execute("1")
    (notice,) = result.notices
    assert notice == (
        "Before the last cell was cancelled: scripted.echo ×1 done, scripted.block ×1 sent (answer unknown): {}."
    )
    assert await text(approver, "2") == "2"


async def test_calls_of_tools_that_were_registered_as_reading_are_not_reported(tmp_path: Path):
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    tools = [
        {"name": "echo", "inputSchema": schema, "annotations": {"readOnlyHint": True}},
        {"name": "chatter", "inputSchema": schema},
    ]
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(tools))
    await generate_mcp_sources("hinted", servers.scripted("--tools", str(file)), tmp_path / "mcptools")
    read = "from mcptools.hinted import chatter, echo\necho.run(echo.Params(text='a'))"
    async with CodeExecutor(working_dir=tmp_path) as executor:
        for code, expected in (f"{read}\n1 / 0", []), (f"{read}\nchatter.run(chatter.Params())\n1 / 0", ["chatter"]):
            with pytest.raises(CodeExecutionError) as error:
                await executor.execute(code)
            assert [each.tool_name for each in error.value.calls] == expected
