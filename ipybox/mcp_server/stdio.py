"""MCP over stdin and stdout, for clients that may write anything.

The SDK accepts lines of any length, and drops invalid messages: the client would wait for an answer until it times out.
Here each line is a message, or is answered with the error that JSON-RPC defines for it.
https://www.jsonrpc.org/specification#error_object
"""

import io
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, BinaryIO, cast

import anyio
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
        except* OSError as group:
            raise OSError(f"can't answer the MCP client: {_leaf(group)}") from group


def read_line(stdin: BinaryIO, limit: int = MAX_LINE) -> bytes:
    """Returns the next line, or nothing at the end. Blocks.

    Raises:
        InvalidMessageError: If it has more than `limit` bytes; it is skipped.
    """
    line = stdin.readline(limit + 1)
    if len(line) <= limit or line.endswith(b"\n"):
        return line
    while (more := stdin.readline(1 << 20)) and not more.endswith(b"\n"):
        pass
    raise InvalidMessageError(INVALID_REQUEST, f"the message has more than {limit:,} bytes")


def parse_line(line: bytes) -> JSONRPCMessage | None:
    """Returns the message of a line, or None if the line needs no answer: it is blank, or not a valid response.

    Raises:
        InvalidMessageError: If it is not a valid message.
    """
    if line.isspace():
        return None
    if exceeds_value_limit(line):
        raise InvalidMessageError(INVALID_REQUEST, f"the message has more than {MAX_VALUES:,} values")
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
        raise InvalidMessageError(
            INVALID_REQUEST, "this is not a request of JSON-RPC 2.0 with an object as params", request_id
        )
    match value:
        case {"result": _} | {"error": _}:
            return
        case _:
            raise InvalidMessageError(INVALID_REQUEST, "this is not a message of JSON-RPC 2.0")


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


@asynccontextmanager
async def _stdio() -> AsyncGenerator[tuple[Any, Any]]:
    """Yields the stream of messages and the one for answers."""
    send, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    answers, written = anyio.create_memory_object_stream[SessionMessage](0)
    with message_input() as stdin, message_output() as stdout:
        # Kept until stdin is closed: a buffer closes its file when it is collected, and that may be on the reader's
        # thread, at any time.
        reader = io.BufferedReader(stdin, 1 << 16)
        async with anyio.create_task_group() as writing, anyio.create_task_group() as reading:
            writing.start_soon(_write, stdout, written)
            reading.start_soon(_read, reader, send, answers)
            try:
                yield messages, answers
            finally:
                stdin.wake()
                reading.cancel_scope.cancel()


async def _write(stdout: MessageOutput, answers: Any) -> None:
    """Writes answers until there are no more."""
    async with answers:
        async for answer in answers:
            await stdout.write(answer.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")


async def _read(stdin: BinaryIO, messages: Any, answers: Any) -> None:
    """Passes messages on until stdin ends."""
    async with messages:
        while True:
            try:
                line = await anyio.to_thread.run_sync(read_line, stdin)
                if not line:
                    return
                message = parse_line(line)
            except InvalidMessageError as exc:
                await answers.send(SessionMessage(exc.answer))
            else:
                if message is not None:
                    await messages.send(SessionMessage(message))


def _leaf(exc: BaseException) -> BaseException:
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    return exc
