"""Tells a client how a cell is doing, by notifications of progress, if the client has asked for them.

A notification has the latest line of output, or, where nothing new was printed, a sign of life. Its progress is the
time that has passed, in seconds; there is no total.
https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/progress
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from mcp.server.mcpserver import Context

from ipybox.printable import printable
from ipybox.tasks import TaskSet

#: Seconds between two notifications, at least.
PAUSE = 1.0

#: Seconds after which there is a notification even if nothing was printed.
SILENCE = 5.0

#: Characters of a line that are shown.
MAX_LINE = 200

#: Characters of output in which the latest line is looked for.
_TAIL = 4 * MAX_LINE

Report = Callable[[float, float | None, str], Awaitable[None]]


class Progress:
    """Reports on one cell, for as long as `run` runs.

    Args:
        report: Sends a notification: progress, no total, and a message.
    """

    def __init__(self, report: Report):
        self._report = report
        self._tail = ""
        self._printed = asyncio.Event()

    def note(self, text: str) -> None:
        """Takes output of the cell as it arrives, in whatever pieces."""
        self._tail = (self._tail + text[-_TAIL:])[-_TAIL:]
        self._printed.set()

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
            shown = line
            await self._report(round(elapsed, 1), None, message)


def latest_line(text: str) -> str:
    """Returns the last line that is not blank, cut and without what a terminal would obey; or an empty text."""
    lines = (line.strip() for line in reversed(re.split(r"[\r\n]", text)))
    line = next((line for line in lines if line), "")
    cut = line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…"
    return printable(cut.replace("\t", " "))


@asynccontextmanager
async def progress_of(context: Context[Any, Any]) -> AsyncGenerator[Progress]:
    """Yields what output is noted by, and reports to the client that makes this request meanwhile."""
    progress = Progress(context.report_progress)
    meta = context.request_context.meta or {}
    tasks = TaskSet()
    if "progress_token" in meta:
        tasks.start(progress.run())
    try:
        yield progress
    finally:
        await tasks.cancel()
