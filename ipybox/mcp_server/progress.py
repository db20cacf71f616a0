"""Reports the progress of a cell or a registration to clients that ask for it, as MCP notifications.

A notification says what the cell is waiting for, the latest line of output, or that the cell is still running. Its
progress is the elapsed time in seconds, without a total.
https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/progress
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from mcp.server.mcpserver import Context

from ipybox.kernel_mgr.display_forms import text_of
from ipybox.support.outputs import Clear, Display, Stream
from ipybox.support.printable import printable
from ipybox.support.tasks import TaskSet

#: Minimum and maximum seconds between two notifications, even if nothing was printed.
PAUSE = 1.0
SILENCE = 5.0

#: Maximum characters of a notification's line, and of the output that is searched for the latest line.
MAX_LINE = 200
_TAIL = 4 * MAX_LINE

Report = Callable[[float, float | None, str], Awaitable[None]]


class Progress:
    """Reports on one cell while `run` runs.

    `report` sends a notification. `waits_for` returns what the cell is waiting for, such as a scheduler's queue, or "".
    """

    def __init__(self, report: Report, waits_for: Callable[[], str] = str):
        self._report = report
        self._tail = ""
        self._waits_for = waits_for
        self._printed = asyncio.Event()

    def note(self, text: str) -> None:
        """Adds text, in pieces of any size."""
        self._tail = (self._tail + text[-_TAIL:])[-_TAIL:]
        self._printed.set()

    def note_output(self, output: Stream | Display | Clear, _size: int) -> None:
        """Adds output of the cell as it arrives."""
        self.note(text_of(output))

    async def run(self) -> None:
        """Reports until it is cancelled."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        shown = ""
        while True:
            await asyncio.sleep(PAUSE)
            with suppress(TimeoutError):
                async with asyncio.timeout(SILENCE - PAUSE):
                    await self._printed.wait()
            self._printed.clear()
            elapsed = loop.time() - started
            line = latest_line(self._tail)
            message = line if line != shown else f"still running after {elapsed:.0f} s"
            if waits_for := latest_line(self._waits_for()):
                message = f"waiting for {waits_for}"
            shown = line
            await self._report(round(elapsed, 1), None, message)


def latest_line(text: str) -> str:
    """Returns the last line that is not blank, truncated and without terminal escapes."""
    lines = (line.strip() for line in reversed(re.split(r"[\r\n]", text)))
    line = next((line for line in lines if line), "")
    cut = line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…"
    return printable(cut.replace("\t", " "))


@asynccontextmanager
async def progress_of(
    context: Context[Any, Any], waits_for: Callable[[], str] = str
) -> AsyncGenerator[Progress | None]:
    """Yields a `Progress` that reports to a request's client in the background, or None if the client didn't ask."""
    if "progress_token" not in (context.request_context.meta or {}):
        yield None
        return
    progress, tasks = Progress(context.report_progress, waits_for), TaskSet()
    tasks.start(progress.run())
    try:
        yield progress
    finally:
        await tasks.cancel()
