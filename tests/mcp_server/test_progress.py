"""What a client is told of a cell, and what it can do about it."""

import asyncio
from pathlib import Path

import pytest
from mcp_types import CallToolResult

from ipybox.mcp_server import progress
from ipybox.mcp_server.progress import MAX_LINE, Progress, latest_line
from tests.conftest import Fifo, Mode
from tests.mcp_server.test_server import client_of, output, text_of
from tests.servers import WAIT

#: Goes on when the test says so.
WAITS = """
import time
from pathlib import Path
state = "kept"
print("first\\n\\x1b[31mlatest\\x07", flush=True)
while not Path("go").exists():
    time.sleep(0.02)
print("done")
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("\n \n", "", id="blank"),
        pytest.param("first\nsecond\n\n", "second", id="last_line"),
        pytest.param("first\nsec", "sec", id="a_line_that_goes_on"),
        pytest.param("  5%|#   \r 10%|##  ", "10%|##", id="progress_bar"),
        pytest.param("a\tb", "a b", id="tab"),
        pytest.param("a\x1b]0;b\x07\u202e\x9b\udc80", r"a\u001b]0;b\u0007\u202e\u009b\udc80", id="control_characters"),
        pytest.param("x" * 300, "x" * (MAX_LINE - 1) + "…", id="long"),
    ],
)
def test_the_latest_line_is_bounded_and_harmless(text: str, expected: str):
    assert latest_line(text) == expected


async def test_new_output_is_told_at_once_but_not_more_often_than_allowed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "PAUSE", 0.05)
    monkeypatch.setattr(progress, "SILENCE", 60.0)
    told: asyncio.Queue[tuple[float, str]] = asyncio.Queue()

    async def report(elapsed: float, total: float | None, message: str) -> None:
        assert total is None
        told.put_nowait((asyncio.get_running_loop().time(), message))

    reporting = Progress(report)
    running = asyncio.create_task(reporting.run())
    async with asyncio.timeout(10):
        for number in range(3):
            for piece in ("not ", "this\n", f"line {number}\n", "\n"):
                reporting.note(piece)
            assert (await told.get())[1] == f"line {number}"
    assert told.empty()
    running.cancel()
    await asyncio.wait([running])


async def test_silence_is_told_with_the_time_that_has_passed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "PAUSE", 0.01)
    monkeypatch.setattr(progress, "SILENCE", 0.02)
    told: asyncio.Queue[tuple[float, str]] = asyncio.Queue()

    async def report(elapsed: float, total: float | None, message: str) -> None:
        told.put_nowait((elapsed, message))

    reporting = Progress(report)
    running = asyncio.create_task(reporting.run())
    async with asyncio.timeout(10):
        assert (await told.get())[1] == "still running after 0 s"
        reporting.note("here")
        while (await told.get())[1] != "here":
            pass
        elapsed, message = await told.get()
        assert message == "still running after 0 s"
        assert elapsed >= 0
    running.cancel()
    await asyncio.wait([running])


async def test_a_client_is_told_what_a_cell_prints_and_one_that_it_cancels_is_interrupted(
    tmp_path: Path, mode: Mode, fifo: Fifo
):
    told: asyncio.Queue[tuple[float, float | None, str | None]] = asyncio.Queue()

    async def take(progress: float, total: float | None, message: str | None) -> None:
        told.put_nowait((progress, total, message))

    async with client_of(tmp_path, *mode.options) as client, asyncio.timeout(4 * WAIT):
        asked = asyncio.create_task(client.call_tool("execute_ipython_cell", {"code": WAITS}, progress_callback=take))
        elapsed, total, message = await told.get()
        while message != r"latest\u0007":  # it may take a while until the kernel is there
            before, (elapsed, total, message) = elapsed, await told.get()
            assert elapsed > before
        assert total is None
        (tmp_path / "go").touch()
        result = await asked
        assert isinstance(result, CallToolResult)
        assert text_of(result) == "first\nlatest\\u0007\ndone"

        sleeps = f"import time; open({str(fifo.path)!r}, 'w').write('begun\\n'); time.sleep(60)"
        running = asyncio.create_task(client.call_tool("execute_ipython_cell", {"code": sleeps}))
        await fifo.until("begun")
        waiting = asyncio.create_task(client.call_tool("execute_ipython_cell", {"code": "state = 'changed'"}))
        await client.list_tools()  # by then it waits for its turn
        for task in (waiting, running):
            task.cancel()
        async with asyncio.timeout(WAIT):
            assert await output(client, "state") == "'kept'"
        await asyncio.wait([waiting, running])
    assert told.empty()
