"""MCP over stdin and stdout for clients that may write anything.

The SDK takes lines of any length, and drops those that are no message: a client that counts on an answer would wait
until it gives up. Here each line is a message, or is answered with the error that JSON-RPC has for it.
https://www.jsonrpc.org/specification#error_object
"""

import io
import os
import select
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any, BinaryIO, cast

import anyio
from mcp.server import mcpserver
from mcp.server.stdio import stdio_server
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

from ipybox.bounded_json import MAX_VALUES, costs_too_much

#: Bytes of a line: an upload of 64 MiB in base64, and more.
MAX_LINE = 128 << 20


class MalformedError(Exception):
    """A line is no message.

    Args:
        code: One of JSON-RPC's error codes.
        why: What is wrong.
        request_id: The id of the request that the line would be, if it has one.
    """

    def __init__(self, code: int, why: str, request_id: RequestId | None = None):
        super().__init__(why)
        self.answer = JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=why))


class StdioServer(mcpserver.MCPServer[Any]):
    """The SDK's server, with a stdin that may have anything in it."""

    async def run_stdio_async(self) -> None:
        """Serves until stdin ends.

        Raises:
            OSError: If stdout can't be written, as the client or its disk space is gone.
        """
        try:
            async with _stdio() as (messages, answers):
                server = self._lowlevel_server
                await server.run(messages, answers, server.create_initialization_options())
        except* OSError as group:
            raise OSError(f"the MCP client can't be answered: {_leaf(group)}") from group


def read_line(stdin: BinaryIO, limit: int = MAX_LINE) -> bytes:
    """Returns the next line, or nothing at the end. Blocks.

    Raises:
        MalformedError: If it has more than `limit` bytes; it is skipped.
    """
    line = stdin.readline(limit + 1)
    if len(line) <= limit or line.endswith(b"\n"):
        return line
    while (more := stdin.readline(1 << 20)) and not more.endswith(b"\n"):
        pass
    raise MalformedError(INVALID_REQUEST, f"the message has more than {limit:,} bytes")


def parse_line(line: bytes) -> JSONRPCMessage | None:
    """Returns the message of a line, or None if nobody waits for an answer: it is blank, or no response that is valid.

    Raises:
        MalformedError: If it is no message.
    """
    if line.isspace():
        return None
    if costs_too_much(line):
        raise MalformedError(INVALID_REQUEST, f"the message has more than {MAX_VALUES:,} values")
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        return _not_a_message(line)
    if isinstance(message, JSONRPCNotification) and "id" in from_json(line):
        raise MalformedError(INVALID_REQUEST, "the id is neither a string nor an integer")
    return message


def _not_a_message(line: bytes) -> None:
    try:
        value = from_json(line)
    except ValueError as exc:
        raise MalformedError(PARSE_ERROR, f"the message is not JSON: {exc}") from None
    match value:
        case {"method": _, "id": str() | int() as request_id} if not isinstance(request_id, bool):
            raise MalformedError(
                INVALID_REQUEST, "this is no request of JSON-RPC 2.0 with an object as params", request_id
            )
        case {"result": _} | {"error": _}:
            return
        case _:
            pass
    raise MalformedError(INVALID_REQUEST, "this is no message of JSON-RPC 2.0")


@asynccontextmanager
async def _stdio() -> AsyncGenerator[tuple[Any, Any]]:
    """Yields the stream of messages and the one for answers."""
    send, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    with _private_stdin() as stdin:
        # The SDK writes; what it would read is empty.
        async with (
            stdio_server(anyio.wrap_file(io.StringIO())) as (nothing, answers),
            anyio.create_task_group() as tasks,
        ):
            await nothing.aclose()
            tasks.start_soon(_read, io.BufferedReader(stdin, 1 << 16), send, answers)
            try:
                yield messages, answers
            finally:
                stdin.wake()
                tasks.cancel_scope.cancel()


async def _read(stdin: BinaryIO, messages: Any, answers: Any) -> None:
    """Passes messages on until stdin ends."""
    async with messages:
        while True:
            try:
                line = await anyio.to_thread.run_sync(read_line, stdin)
                if not line:
                    return
                message = parse_line(line)
            except MalformedError as exc:
                await answers.send(SessionMessage(exc.answer))
            else:
                if message is not None:
                    await messages.send(SessionMessage(message))


class _Stdin(io.RawIOBase):
    """Stdin, whose reader on another thread can be woken: it gets the end of file then.

    Args:
        fd: Its descriptor, which stays the caller's.
    """

    def __init__(self, fd: int):
        self._fd = fd
        self._woken, self._wake = os.pipe()

    def readable(self) -> bool:
        """Says that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads what is there, and blocks while nothing is; returns the number of bytes."""
        # Not poll(2), which on macOS knows no terminals.
        ready, _, _ = select.select([self._fd, self._woken], [], [])
        return 0 if self._woken in ready else os.readv(self._fd, [buffer])

    def wake(self) -> None:
        """Lets this be the end of stdin. Waking twice does nothing."""
        if self._wake >= 0:
            os.close(self._wake)
            self._wake = -1

    def close(self) -> None:
        """Closes what is not stdin itself."""
        if not self.closed:
            self.wake()
            os.close(self._woken)
        super().close()


@contextmanager
def _private_stdin() -> Generator[_Stdin]:
    """Yields stdin; children and libraries find it empty meanwhile."""
    original = os.dup(0)
    with open(os.devnull, "rb") as empty:
        os.dup2(empty.fileno(), 0)
    try:
        with closing(_Stdin(original)) as stdin:
            yield stdin
    finally:
        os.dup2(original, 0)
        os.close(original)


def _leaf(exc: BaseException) -> BaseException:
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    return exc
