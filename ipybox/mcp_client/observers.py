"""Observes a server where the MCP SDK's transports report too little.

StderrTail            its last output, and how its process ended
WatchedStream         the end of its messages, which the SDK reports to calls in flight only
ObservedHTTPClient    HTTP errors, of which the SDK drops the status or, with SSE, everything
"""

import asyncio
import os
import re
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import anyio
import httpx2

from ipybox.mcp_client import process_guard
from ipybox.mcp_client.authorities import trusted_authorities
from ipybox.mcp_client.launcher_log import is_progress
from ipybox.mcp_client.oauth.errors import SignInError

#: Lines of stderr that are kept, and characters of each.
STDERR_LINES = 10
LINE_LENGTH = 500

# Frames in tracebacks of Node and of Python (exception groups have bars before them), and the source below one.
_NODE_FRAME = re.compile(
    r"\s+(?:at .*(?::\d+:\d+\)?|<anonymous>\)?)(?: \{)?|\.{3} \d+ lines matching cause stack trace \.{3})"
)
_PYTHON_FRAME = re.compile(r"[ |]*  File \".*\", line \d+")
_PYTHON_SOURCE = re.compile(r"(?:[ |]*\|)?+ {4}")

# A line without an end is cut into pieces of this many bytes.
_READ_SIZE = 65536
# How long a server may take to acknowledge the end of an HTTP session.
_DELETE_TIMEOUT = 1.0


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


class WatchedStream:
    """The stream of messages from a server, as the SDK's dispatcher reads it; tells when it ends."""

    def __init__(self, stream: Any, on_end: Callable[[], None], on_error: Callable[[Exception], None]):
        self._stream = stream
        self._on_end = on_end
        self._on_error = on_error

    @property
    def last_context(self) -> Any:
        """The sender's context variables, if the transport passes them on."""
        return getattr(self._stream, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            item = await self._stream.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError):
            self._on_end()
            raise
        if isinstance(item, Exception):
            self._on_error(item)
        return item

    async def receive(self) -> Any:
        """Return the next item."""
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stream.__aexit__(exc_type, exc, traceback)


class ObservedHTTPClient(httpx2.AsyncClient):
    """Tells how the server takes the messages that are POSTed to it."""

    def __init__(
        self,
        headers: dict[str, str],
        timeout: httpx2.Timeout,
        auth: httpx2.Auth | None,
        hooks: dict[str, list[Callable[..., Any]]],
        on_answer: Callable[[httpx2.Response], None],
        on_failure: Callable[[Exception], None],
    ):
        super().__init__(headers=headers, timeout=timeout, auth=auth, event_hooks=hooks, verify=trusted_authorities())
        self._on_answer = on_answer
        self._on_failure = on_failure

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request, as everything of the SDK does."""
        if request.method == "DELETE":
            request.extensions = {**request.extensions, "timeout": httpx2.Timeout(_DELETE_TIMEOUT).as_dict()}
        if request.method != "POST":
            return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
        except (httpx2.TransportError, SignInError, OSError) as exc:
            self._on_failure(exc)
            raise
        self._on_answer(response)
        return response
