"""MCP over stdin and stdout, for clients that may write anything.

The SDK accepts lines of any length, and drops invalid messages: the client would wait for an answer until it times out.
Here, each line is a valid message or gets the error response that JSON-RPC defines.
https://www.jsonrpc.org/specification#error_object

Both streams may be pipes, sockets, files or terminals, and the other end may be slow or gone. Their descriptors stay in
blocking mode, because other processes may share them.
"""

import json
import os
import select
import stat
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.server import mcpserver
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import from_json

from ipybox.support.bounded_json import MAX_VALUES, exceeds_value_limit

#: Maximum bytes of a line: enough for an upload of 64 MiB in base64.
MAX_LINE = 128 << 20

#: Maximum bytes per read, which is a pipe's default capacity.
MAX_READ = 1 << 16


class InvalidMessageError(Exception):
    """A line is not a valid message; `answer` tells the client why, with one of JSON-RPC's error codes."""

    def __init__(self, code: int, why: str, request_id: RequestId | None = None):
        super().__init__(why)
        self.answer = JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=why))


class StrictStdioServer(mcpserver.MCPServer[Any]):
    """The SDK's server, for a stdin that may contain anything."""

    async def run_stdio_async(self) -> None:
        """Serves until stdin ends; raises an OSError if stdout can't be written."""
        server = self._lowlevel_server
        with standard_streams() as (stdin, stdout):
            serving = anyio.CancelScope()
            answers = AnswerStream(stdout, serving)
            messages = MessageStream(input_reader(stdin), answers)
            with serving:
                await server.run(messages, answers, server.create_initialization_options())
            if answers.failure is not None:
                raise OSError(f"can't answer the MCP client: {answers.failure}") from answers.failure


def parse_line(line: bytes) -> JSONRPCMessage | None:
    """Returns a line's message, or None if the line needs no answer because it is blank or an invalid response.

    Raises an `InvalidMessageError` if it is not a valid message.
    """
    if line.isspace():
        return None
    if exceeds_value_limit(line):
        raise InvalidMessageError(INVALID_REQUEST, f"the message contains more than {MAX_VALUES:,} values")
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        return _not_a_message(line)
    if isinstance(message, JSONRPCNotification) and "id" in from_json(line):
        raise InvalidMessageError(INVALID_REQUEST, "the id is neither a string nor an integer")
    return message


def _not_a_message(line: bytes) -> None:
    try:
        value = from_json(line)
    except ValueError as exc:
        raise InvalidMessageError(PARSE_ERROR, f"the message is not JSON: {exc}", _id_in(line)) from None
    if (request_id := _request_id(value)) is not None:
        raise InvalidMessageError(INVALID_REQUEST, "not a JSON-RPC 2.0 request with an object as params", request_id)
    match value:
        case {"result": _} | {"error": _}:
            return
        case _:
            raise InvalidMessageError(INVALID_REQUEST, "not a JSON-RPC 2.0 message")


def _id_in(line: bytes) -> RequestId | None:
    """Returns the id of a request that is valid JSON except for an escaped lone surrogate."""
    with suppress(ValueError, RecursionError):
        request_id = _request_id(json.loads(line))
        str(request_id).encode()  # otherwise, the answer could not be encoded
        return request_id
    return None


def _request_id(value: Any) -> RequestId | None:
    """Returns the id of a value that looks like a request; None if it is missing or invalid."""
    match value:
        case {"method": _, "id": str() | int() as request_id} if not isinstance(request_id, bool):
            return request_id
        case _:
            return None


class MessageStream(ObjectReceiveStream[SessionMessage | Exception]):
    """The client's messages, for the SDK's server; read without a separate task, which would cost time.

    Invalid messages, and lines with more than `limit` bytes, are answered directly.
    """

    def __init__(self, read: Callable[[], Awaitable[bytes]], answers: "AnswerStream", limit: int = MAX_LINE):
        self._read = read
        self._answers = answers
        self._limit = limit
        self._received = bytearray()

    async def next_line(self) -> bytes:
        """Returns the next line, or nothing at the end. Skips an overlong line and raises an `InvalidMessageError`."""
        received, searched, too_long = self._received, 0, False
        while not (end := received.find(b"\n", searched) + 1):
            searched = len(received)
            if searched > self._limit:
                too_long, searched = True, 0
                received.clear()
            if not (more := await self._read()):
                end = searched
                break
            received += more
        line = bytes(received[:end])
        del received[:end]
        if too_long or len(line) - line.endswith(b"\n") > self._limit:
            raise InvalidMessageError(INVALID_REQUEST, f"the message is larger than {self._limit:,} bytes")
        return line

    async def receive(self) -> SessionMessage:
        """Returns the next message; raises an OSError if stdin can't be read."""
        while True:
            try:
                if not (line := await self.next_line()):
                    raise anyio.EndOfStream
                message = parse_line(line)
            except InvalidMessageError as exc:
                with suppress(anyio.BrokenResourceError):  # the server ends with stdout's error
                    await self._answers.send(SessionMessage(exc.answer))
            else:
                if message is not None:
                    return SessionMessage(message)

    async def aclose(self) -> None:
        """Does nothing: `standard_streams` owns stdin."""


class AnswerStream(ObjectSendStream[SessionMessage]):
    """Writes the SDK server's messages to stdout; its first error cancels the scope."""

    def __init__(self, stdout: int, serving: anyio.CancelScope):
        self._stdout = stdout
        self._serving = serving
        self._turn = anyio.Lock(fast_acquire=True)
        self.failure: OSError | None = None

    async def send(self, item: SessionMessage) -> None:
        """Writes a message; raises an `anyio.BrokenResourceError` if writing to stdout fails or has failed."""
        data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        async with self._turn:
            if self.failure is not None:
                raise anyio.BrokenResourceError
            try:
                await write_all(self._stdout, data)
            except OSError as exc:
                self.failure = exc
                self._serving.cancel()
                raise anyio.BrokenResourceError from exc

    async def aclose(self) -> None:
        """Does nothing: `standard_streams` owns stdout."""


def input_reader(fd: int) -> Callable[[], Awaitable[bytes]]:
    """Returns a function that reads available bytes, or nothing at the end, for one task; it may raise an OSError."""
    mode = os.fstat(fd).st_mode
    # Files and /dev/null never block, and an event loop can't wait for them.
    waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)

    async def read() -> bytes:
        # A thread would take longer.
        await (anyio.wait_readable(fd) if waits else anyio.lowlevel.checkpoint())
        return os.read(fd, MAX_READ)

    return read


async def write_all(fd: int, data: bytes) -> None:
    """Writes all data, for one task at a time; raises an OSError if that fails."""
    # If the descriptor is ready, writing so little does not block, and is faster than a thread.
    if len(data) <= select.PIPE_BUF and select.select([], [fd], [], 0)[1]:
        data = data[os.write(fd, data) :]
    if data:
        await anyio.to_thread.run_sync(_write, fd, data)


def _write(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


@contextmanager
def standard_streams() -> Generator[tuple[int, int]]:
    """Yields stdin and stdout. Meanwhile, children and libraries find stdin empty, and their output goes to stderr."""
    empty = os.open(os.devnull, os.O_RDONLY)
    try:
        stderr = os.dup(2)
    except OSError:  # it is closed
        stderr = os.open(os.devnull, os.O_WRONLY)
    with _diverted(0, empty) as stdin, _diverted(1, stderr) as stdout:
        yield stdin, stdout


@contextmanager
def _diverted(number: int, other: int) -> Generator[int]:
    """Yields a duplicate of a standard stream; inside the context, the stream's own number refers to `other`."""
    original = os.dup(number)
    os.dup2(other, number)
    os.close(other)
    try:
        yield original
    finally:
        os.dup2(original, number)
        os.close(original)
