"""Requests and answers on a stream. Each message is a line of JSON, followed by the content it announces."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from pydantic import ValidationError

from ipybox.remote.wire.protocol import Failed, Message
from ipybox.remote.wire.stream import Stream, StreamClosedError
from ipybox.support.errors import GatewayError, IpyboxError, SandboxError
from ipybox.support.printable import printable

#: Maximum bytes of a message.
MAX_MESSAGE_BYTES: Final = 4 << 20

#: The errors that `Failed` can report; the first class that matches is used.
ERRORS: Final[dict[str, type[Exception]]] = {
    "sandbox": SandboxError,
    "gateway": GatewayError,
    "missing": FileNotFoundError,
    "denied": PermissionError,
    "value": ValueError,
    "other": OSError,
}

#: Maximum characters of an error's reason.
MAX_REASON: Final = 32 << 10

Expected = TypeVar("Expected", bound=Message)


class InvalidMessageError(Exception):
    """The peer sent something that is not the expected message."""


class RefusedError(Exception):
    """The peer could not do what was requested."""

    def __init__(self, failed: Failed):
        super().__init__(failed.reason)
        self.kind = ERRORS[failed.kind]
        self.reason = failed.reason


class Exchange:
    """One request and its answers."""

    def __init__(self, stream: Stream):
        self.stream = stream
        self._buffer = bytearray()

    async def send(self, message: Message, content: bytes = b"") -> None:
        """Sends a message and its content; raises a StreamClosedError if the peer stops reading."""
        message = message.model_copy(update={"size": len(content)})
        await self.stream.send(message.model_dump_json().encode() + b"\n")
        await self.stream.send(content)

    async def receive(self, expected: type[Expected], limit: int = 0) -> tuple[Expected, bytes]:
        """Returns the peer's next message and its content.

        Args:
            limit: Maximum bytes of content.

        Raises:
            InvalidMessageError: If the peer sends anything else.
            RefusedError: If the peer sends `Failed`.
            StreamClosedError: If the stream ends before the message and its content are complete.
        """
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_MESSAGE_BYTES:
                raise InvalidMessageError(f"a message larger than {MAX_MESSAGE_BYTES} bytes")
            await self._read()
        message = _parsed(bytes(self._buffer[:end]), expected)
        if message.size > limit:
            raise InvalidMessageError(f"content of {message.size} bytes")
        del self._buffer[: end + 1]
        while len(self._buffer) < message.size:
            await self._read()
        content = bytes(self._buffer[: message.size])
        del self._buffer[: message.size]
        return message, content

    async def _read(self) -> None:
        if not (data := await self.stream.receive()):
            raise StreamClosedError
        self._buffer += data


async def answer(stream: Stream, handler: Callable[[Exchange], Awaitable[None]]) -> None:
    """Lets a handler answer a stream's request. Sends errors from ipybox and the operating system as the answer.

    Raises:
        InvalidMessageError: If the peer sends a message that the handler doesn't expect.
    """
    exchange = Exchange(stream)
    try:
        try:
            await handler(exchange)
        except (IpyboxError, OSError, ValueError) as exc:
            kind = next((kind for kind, error in ERRORS.items() if isinstance(exc, error)), "other")
            reason = printable(str(exc), lines=True)[:MAX_REASON]
            await exchange.send(Failed.model_validate({"kind": kind, "reason": reason}))
        stream.end()
    except StreamClosedError:
        pass
    finally:
        stream.reset()


def _parsed(line: bytes, expected: type[Expected]) -> Expected:
    try:
        return expected.model_validate_json(line)
    except ValidationError as exc:
        problem = exc.errors(include_url=False, include_input=False)[0]["msg"]
    try:
        failed = Failed.model_validate_json(line)
    except ValidationError:
        raise InvalidMessageError(f"an invalid message: {problem}") from None
    raise RefusedError(failed)
