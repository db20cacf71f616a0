"""MCP over stdin and stdout, for clients that may write anything.

The SDK accepts lines of any length, and drops invalid messages: the client would wait for an answer until it times out.
Here each line is a message, or is answered with the error that JSON-RPC defines for it.
https://www.jsonrpc.org/specification#error_object
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import anyio
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

from ipybox.mcp_server.standard_streams import MessageOutput, message_input, message_output
from ipybox.support.bounded_json import MAX_VALUES, exceeds_value_limit

#: Bytes of a line: enough for an upload of 64 MiB in base64.
MAX_LINE = 128 << 20


class InvalidMessageError(Exception):
    """A line is not a valid message.

    Args:
        code: One of JSON-RPC's error codes.
        why: What is wrong.
        request_id: The id of the request, if the line has a valid one.
    """

    def __init__(self, code: int, why: str, request_id: RequestId | None = None):
        super().__init__(why)
        self.answer = JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=why))


class StrictStdioServer(mcpserver.MCPServer[Any]):
    """The SDK's server, with a stdin that may contain anything."""

    async def run_stdio_async(self) -> None:
        """Serves until stdin ends.

        Raises:
            OSError: If stdout can't be written, because the client or its disk space is gone.
        """
        try:
            async with _stdio() as (messages, answers):
                server = self._lowlevel_server
                await server.run(messages, answers, server.create_initialization_options())
        except BaseExceptionGroup as group:  # an error that `except*` raises is in a group before Python 3.11.4
            failed, others = group.split(OSError)
            if failed is None or others is not None:
                raise
            raise OSError(f"can't answer the MCP client: {_leaf(failed)}") from group


class LineReader:
    """Splits what is read into lines, which one task takes.

    Args:
        read: Returns the next bytes, or nothing at the end.
        limit: Maximum bytes of a line, without its end.
    """

    def __init__(self, read: Callable[[], Awaitable[bytes]], limit: int = MAX_LINE):
        self._read = read
        self._limit = limit
        self._received = bytearray()

    async def next_line(self) -> bytes:
        """Returns the next line, or nothing at the end.

        Raises:
            InvalidMessageError: If the line is too long; it is skipped.
            OSError: If it can't be read.
        """
        received = self._received
        searched = 0
        while not (end := received.find(b"\n", searched) + 1):
            searched = len(received)
            if searched > self._limit:
                await self._skip_line()
                raise self._too_long()
            if not (more := await self._read()):
                end = searched
                break
            received += more
        line = bytes(received[:end])
        del received[:end]
        if len(line) - line.endswith(b"\n") > self._limit:
            raise self._too_long()
        return line

    async def _skip_line(self) -> None:
        """Skips the rest of a line, of which nothing is kept."""
        self._received.clear()
        while (more := await self._read()) and b"\n" not in more:
            pass
        self._received += more.partition(b"\n")[2]

    def _too_long(self) -> InvalidMessageError:
        return InvalidMessageError(INVALID_REQUEST, f"the message is larger than {self._limit:,} bytes")


def parse_line(line: bytes) -> JSONRPCMessage | None:
    """Returns the message of a line, or None if the line needs no answer: it is blank, or not a valid response.

    Raises:
        InvalidMessageError: If it is not a valid message.
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
    """Returns the id of a request that is valid JSON, but escapes half a surrogate pair, which is not a text."""
    with suppress(ValueError, RecursionError):
        request_id = _request_id(json.loads(line))
        str(request_id).encode()  # else an answer with it could not be written
        return request_id
    return None


def _request_id(value: Any) -> RequestId | None:
    """Returns the id of a value that looks like a request, or None if the id is missing or invalid."""
    match value:
        case {"method": _, "id": str() | int() as request_id} if not isinstance(request_id, bool):
            return request_id
        case _:
            return None


class MessageStream(ObjectReceiveStream[SessionMessage | Exception]):
    """The messages of the client, as the SDK's server takes them. It has no task of its own, which would cost time.

    Args:
        lines: The lines of stdin.
        answers: Receives the answers to lines that are no messages.
    """

    def __init__(self, lines: LineReader, answers: "AnswerStream"):
        self._lines = lines
        self._answers = answers

    async def receive(self) -> SessionMessage:
        """Returns the next message.

        Raises:
            anyio.EndOfStream: At the end of stdin.
            OSError: If stdin can't be read.
        """
        while True:
            try:
                if not (line := await self._lines.next_line()):
                    raise anyio.EndOfStream
                message = parse_line(line)
            except InvalidMessageError as exc:
                with suppress(anyio.BrokenResourceError):  # the server ends with the error of stdout
                    await self._answers.send(SessionMessage(exc.answer))
            else:
                if message is not None:
                    return SessionMessage(message)

    async def aclose(self) -> None:
        """Does nothing: stdin has an owner."""


class AnswerStream(ObjectSendStream[SessionMessage]):
    """Writes messages to stdout, as the SDK's server sends them.

    Args:
        stdout: Stdout.
        on_failure: Called with the first error of stdout.
    """

    def __init__(self, stdout: MessageOutput, on_failure: Callable[[OSError], object]):
        self._stdout = stdout
        self._on_failure = on_failure
        self._turn = anyio.Lock(fast_acquire=True)
        self._failed = False

    async def send(self, item: SessionMessage) -> None:
        """Writes a message.

        Raises:
            anyio.BrokenResourceError: If stdout can't be written, now or before.
        """
        data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        async with self._turn:
            if self._failed:
                raise anyio.BrokenResourceError
            try:
                await self._stdout.write(data)
            except OSError as exc:
                self._failed = True
                self._on_failure(exc)
                raise anyio.BrokenResourceError from exc

    async def aclose(self) -> None:
        """Does nothing: stdout has an owner."""


@asynccontextmanager
async def _stdio() -> AsyncGenerator[tuple[MessageStream, AnswerStream]]:
    """Yields the stream of messages and the one for answers.

    Raises:
        ExceptionGroup: With an OSError as soon as stdout can't be written; the body is cancelled.
    """
    with message_input() as stdin, message_output() as stdout:
        async with anyio.create_task_group() as failures:
            answers = AnswerStream(stdout, lambda exc: failures.start_soon(_fail, exc))
            yield MessageStream(LineReader(stdin.read), answers), answers


async def _fail(exc: OSError) -> None:
    raise exc


def _leaf(exc: BaseException) -> BaseException:
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    return exc
