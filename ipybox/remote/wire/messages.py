"""The control messages of one stream: lines of JSON, validated and limited in size."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from ipybox.remote.wire.protocol import MAX_MESSAGE_BYTES, FromNode, ToNode, encoded
from ipybox.remote.wire.stream import Stream, StreamClosedError

Received = TypeVar("Received", ToNode, FromNode)


class InvalidMessageError(Exception):
    """The peer sent something that is not a message."""


class MessageStream(Generic[Received]):
    """Sends and receives the control messages of one end.

    Args:
        stream: The stream.
        received: Validates the messages of the peer.
    """

    def __init__(self, stream: Stream, received: TypeAdapter[Received]):
        self._stream = stream
        self._received = received
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()

    def post(self, message: ToNode | FromNode) -> None:
        """Sends a message as soon as `send_forever` can."""
        self._waiting.put_nowait(encoded(message))

    async def send_forever(self) -> None:
        """Sends what is posted, until the stream is closed."""
        while True:
            try:
                await self._stream.send(await self._waiting.get())
            except StreamClosedError:
                return

    async def messages(self) -> AsyncGenerator[Received]:
        """Yields the messages of the peer until it ends its side.

        Raises:
            InvalidMessageError: If the peer sends something else.
        """
        buffer = bytearray()
        while data := await self._stream.receive():
            buffer += data
            *lines, rest = buffer.split(b"\n")
            for line in lines:
                yield self._parsed(bytes(line))
            if len(rest) > MAX_MESSAGE_BYTES:
                raise InvalidMessageError(f"a control message larger than {MAX_MESSAGE_BYTES} bytes")
            buffer = rest

    def _parsed(self, line: bytes) -> Received:
        try:
            return self._received.validate_json(line)
        except ValidationError as exc:
            problem = exc.errors(include_url=False, include_input=False)[0]["msg"]
            raise InvalidMessageError(f"an invalid control message: {problem}") from None
