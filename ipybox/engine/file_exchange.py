"""Asks a node about files, within a time limit, and checks the kind of its answers."""

import asyncio
from collections.abc import Callable
from typing import Self

from ipybox.node.file_messages import FROM_NODE, FileStream, FromNode, Stored, ToNode
from ipybox.node.messages import InvalidMessageError
from ipybox.node.stream import Stream

#: Seconds in which the node must answer one message.
ANSWER_TIMEOUT = 60.0

#: Bytes per second of a link that is slow, in addition to that time.
SLOWEST = 1 << 20


class FileExchange:
    """Messages to the node on one stream, which is opened with the first one, in a context that closes it."""

    def __init__(self, open_stream: Callable[[], Stream]):
        self._open_stream = open_stream
        self._stream: Stream | None = None
        self._files: FileStream[FromNode] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.end()
            self._stream.reset()

    async def ask(self, message: ToNode, content: bytes = b"") -> FromNode:
        """Returns the node's answer to a message.

        Raises:
            InvalidMessageError: If it is no message.
            StreamClosedError: If the link is closed.
            TimeoutError: If the node does not answer in time.
        """
        if self._files is None:
            self._stream = self._open_stream()
            self._files = FileStream(self._stream, FROM_NODE)
        async with asyncio.timeout(ANSWER_TIMEOUT + len(content) / SLOWEST):
            await self._files.send(message, content)
            return await self._files.receive()

    async def stored(self, message: ToNode, content: bytes = b"") -> Stored:
        """Returns the answer to a message that changes files on the node. Raises what `ask` raises."""
        answer = await self.ask(message, content)
        if not isinstance(answer, Stored):
            raise InvalidMessageError("an answer of another kind")
        return answer

    async def content(self, size: int) -> bytes:
        """Returns the content that follows an answer. Raises what `ask` raises."""
        assert self._files is not None
        async with asyncio.timeout(ANSWER_TIMEOUT + size / SLOWEST):
            return await self._files.content(size)
