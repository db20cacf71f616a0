"""MCP over stdin and stdout, for clients that may write anything.

The SDK accepts lines of any length, and drops invalid messages: the client would wait for an answer until it times out.
Here, each line is a valid message or gets the error response that JSON-RPC defines.
https://www.jsonrpc.org/specification#error_object
"""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

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
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import from_json

from ipybox.mcp_server.handshake import Handshake
from ipybox.mcp_server.standard_streams import input_reader, write_all
from ipybox.support.bounded_json import MAX_VALUES, exceeds_value_limit

#: Maximum bytes of a line: enough for an upload of 64 MiB in base64.
MAX_LINE = 128 << 20


class InvalidMessageError(Exception):
    """A line is not a valid message; `answer` tells the client why, with one of JSON-RPC's error codes."""

    def __init__(self, code: int, why: str, request_id: RequestId | None = None):
        super().__init__(why)
        self.answer = JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=why))


class StrictStdioServer(mcpserver.MCPServer[Any]):
    """The SDK's server, for a stdin that may contain anything."""

    async def run_on(self, stdin: int, stdout: int, handshake: Handshake) -> None:
        """Serves until stdin ends; raises an OSError if stdout can't be written."""
        server = self._lowlevel_server
        serving = anyio.CancelScope()
        answers = AnswerStream(stdout, serving, handshake.answered)
        messages = MessageStream(input_reader(stdin), answers, received=handshake.received)
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

    Invalid messages, and lines with more than `limit` bytes, are answered directly. `received` was read before.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[bytes]],
        answers: "AnswerStream",
        limit: int = MAX_LINE,
        received: bytes = b"",
    ):
        self._read = read
        self._answers = answers
        self._limit = limit
        self._received = bytearray(received)

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
    """Writes the SDK server's messages to stdout; an error cancels the scope.

    The request `answered` has its result already.
    """

    def __init__(self, stdout: int, serving: anyio.CancelScope, answered: RequestId | None = None):
        self._stdout = stdout
        self._serving = serving
        self._answered = answered
        self._turn = anyio.Lock(fast_acquire=True)
        self.failure: OSError | None = None

    async def send(self, item: SessionMessage) -> None:
        """Writes a message; raises an `anyio.BrokenResourceError` if writing to stdout fails."""
        if isinstance(item.message, JSONRPCResponse) and item.message.id == self._answered:
            self._answered = None
            return
        data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        async with self._turn:
            try:
                await write_all(self._stdout, data)
            except OSError as exc:
                self.failure = exc
                self._serving.cancel()
                raise anyio.BrokenResourceError from exc

    async def aclose(self) -> None:
        """Does nothing: `standard_streams` owns stdout."""
