"""Reads what a stdio server writes to stderr, and its launcher, such as the progress of downloads by npx and uvx."""

import asyncio
import os
import re
from collections import deque
from collections.abc import Callable
from typing import Self

from ipybox.mcp_client import process_guard

#: Variables that make npm report each of its requests. Otherwise it reports a failed one only after its last attempt,
#: later than any client waits.
NPM_VARIABLES = {"npm_config_loglevel": "http"}

#: Lines of stderr that are kept, and characters of each.
STDERR_LINES = 10
LINE_LENGTH = 500

_FETCHED = re.compile(r"npm http (?:fetch|cache) (?:GET |POST )?(?:[23]\d\d )?(?:\S+@)?(?P<url>\w+://\S+) .*\d+ms\b.*")
_UV = re.compile(r"(?:Downloading|Downloaded|Building|Built|Installed|Prepared|Resolved|Updating|Updated) \S.*")

# Frames in tracebacks of Node and of Python (exception groups have bars before them), and the source below one.
_NODE_FRAME = re.compile(
    r"\s+(?:at .*(?::\d+:\d+\)?|<anonymous>\)?)(?: \{)?|\.{3} \d+ lines matching cause stack trace \.{3})"
)
_PYTHON_FRAME = re.compile(r"[ |]*  File \".*\", line \d+")
_PYTHON_SOURCE = re.compile(r"(?:[ |]*\|)?+ {4}")

# A line without an end is cut into pieces of this many bytes.
_READ_SIZE = 65536


class StderrTail:
    """Reads what a server writes to stderr as it comes, and keeps the end, without frames of tracebacks and downloads.

    A context manager: leaving it closes both ends of the pipe.
    """

    def __init__(self, log: Callable[[str], None]):
        #: The last lines, without line ends.
        self.lines: deque[str] = deque(maxlen=STDERR_LINES)
        #: How the server ended ("exited with code 3"), if the guard has said so.
        self.report: str | None = None
        #: Set when all writing ends are closed.
        self.ended = asyncio.Event()
        self._log = log
        self._partial = b""
        self._in_frame = False

    def __enter__(self) -> Self:
        self._fd, write_end = os.pipe()
        os.set_blocking(self._fd, False)
        #: Give it to the server's process, then close it.
        self.writer = os.fdopen(write_end, "w")
        asyncio.get_running_loop().add_reader(self._fd, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        while not self.ended.is_set() and self._read():
            pass  # what is still in the pipe
        self._finish()
        self.writer.close()
        os.close(self._fd)

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, _READ_SIZE)
        except BlockingIOError:
            return False
        if not data:
            self._finish()
            return False
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _READ_SIZE:
            lines.append(self._partial)
            self._partial = b""
        for line in lines:
            self._take(line)
        return True

    def _take(self, line: bytes) -> None:
        text = line[:LINE_LENGTH].decode(errors="replace").rstrip()
        if text.startswith(process_guard.REPORT):
            self.report = text.removeprefix(process_guard.REPORT)
        elif text:
            self._log(text)
            if not is_progress(text) and not self._is_frame(text):
                self.lines.append(text)

    def _is_frame(self, line: str) -> bool:
        """Tells whether a line is part of a frame: many of them would leave no room for the error itself."""
        is_source = self._in_frame and _PYTHON_SOURCE.match(line) is not None
        self._in_frame = is_source or _PYTHON_FRAME.match(line) is not None
        return self._in_frame or _NODE_FRAME.fullmatch(line) is not None

    def _finish(self) -> None:
        if not self.ended.is_set():
            asyncio.get_running_loop().remove_reader(self._fd)
            self._take(self._partial)
            self.ended.set()


def is_progress(line: str) -> bool:
    """Returns whether a line reports successful work, and so explains no failure."""
    return _FETCHED.fullmatch(line) is not None or _UV.fullmatch(line.strip()) is not None


def readable_line(line: str) -> str:
    """Returns a line of progress as a person should see it; other lines are returned unchanged."""
    if (match := _FETCHED.fullmatch(line)) is None:
        return line
    name = match["url"].partition("://")[2].partition("/")[2] or match["url"]
    return f"downloading {name.rpartition('/')[2]}" if name.endswith(".tgz") else f"looking up {name}"
