"""The application's end of the connection to a node: the greeting, requests, and tunnels.

The node isn't trusted: everything it sends is validated, and only this end makes requests. `EngineGateway` owns the
link.
"""

import asyncio
import logging
import socket
from importlib.metadata import version
from typing import TypeVar

from ipybox.remote.wire import protocol
from ipybox.remote.wire.connection import Connection
from ipybox.remote.wire.protocol import Exchange, InvalidMessageError, Message
from ipybox.remote.wire.stream import StreamClosedError, tunnel
from ipybox.support.acceptor import AcceptedSocket
from ipybox.support.errors import GatewayError
from ipybox.support.printable import printable
from ipybox.support.tasks import TaskSet

logger = logging.getLogger(__name__)

#: Concurrent connections from kernels to the tool server, including the spare streams.
MAX_TOOL_CONNECTIONS = 256 + protocol.SPARE_TOOL_STREAMS

Expected = TypeVar("Expected", bound=Message)


class NodeLink:
    """Connects the application to one node, over the pipes of the engine's command.

    `on_tool_connection` receives each connection from a kernel to the tool server.
    """

    def __init__(self, on_tool_connection: AcceptedSocket):
        self._on_tool_connection = on_tool_connection
        #: Done when the node has greeted; cancelled if the link closes before.
        self._settled = asyncio.get_running_loop().create_future()
        self._connection = Connection(client=True, on_closed=self._settled.cancel)
        self._noise = bytearray()
        self._tool_connections = asyncio.Semaphore(MAX_TOOL_CONNECTIONS)
        self._tasks = TaskSet()
        #: Whether the node has confirmed that it runs the same ipybox.
        self.greeted = False
        #: Set when the link is closed, for any reason.
        self.closed = self._connection.closed
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """Why this end closed the link; None if it is open, or was closed by the node or by `close`."""
        if self._connection.violation is not None:
            return f"the node sent invalid HTTP/2: {self._connection.violation}"
        return self._problem

    @property
    def noise(self) -> str:
        """The end of the output before the node's first line, for messages."""
        before = self._noise.partition(protocol.PREAMBLE)[0]
        return printable(before[-500:].decode(errors="replace"), lines=True).strip()

    async def open(self, read_fd: int, write_fd: int) -> None:
        """Starts reading, and takes ownership of the descriptors."""
        await self._connection.open(read_fd, write_fd, self._greet)

    async def settled(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds until the node has greeted or the link is closed; returns whether it has."""
        await asyncio.wait([self._settled], timeout=timeout)
        return self._settled.done()

    async def close(self) -> None:
        """Closes the link, which stops the node."""
        self._connection.close()
        await self._tasks.cancel()

    def fail(self, problem: str) -> None:
        """Closes the link because of a problem with the node."""
        self._problem = problem
        self._connection.close()

    def start(self) -> None:
        """Starts pinging a node that has greeted, and offering it connections to the tool server."""
        self._tasks.start(self._ping())
        for _ in range(protocol.SPARE_TOOL_STREAMS):
            self._tasks.start(self._offer_tools())

    def connect(self) -> socket.socket:
        """Returns a new connection to the gateway's HTTP server; raises a GatewayError if the link is closed."""
        try:
            stream = self._connection.request(protocol.GATEWAY)
        except StreamClosedError:
            raise GatewayError("the node is not connected") from None
        ours, theirs = _pair()
        self._tasks.start(tunnel(stream, theirs))
        return ours

    def request(self, path: str) -> Exchange:
        """Returns a new request to the node; raises a StreamClosedError if the link is closed."""
        return Exchange(self._connection.request(path))

    async def ask(
        self, path: str, request: Message, expected: type[Expected], content: bytes = b"", limit: int = 0
    ) -> tuple[Expected, bytes]:
        """Sends a request, and returns the answer with its content. Closes the link if the answer is invalid.

        Raises:
            InvalidMessageError: If the answer is not the expected message.
            RefusedError: If the node can't do what was requested.
            StreamClosedError: If the link is closed.
        """
        exchange = self.request(path)
        try:
            await exchange.send(request, content)
            return await exchange.receive(expected, limit)
        except InvalidMessageError as exc:
            self.fail(f"the node sent {exc}")
            raise
        finally:
            exchange.stream.reset()

    def _greet(self, data: bytes) -> bytes | None:
        """Looks for the node's first line, and returns what follows it; None if the line is incomplete."""
        self._noise += data
        start = self._noise.find(protocol.PREAMBLE)
        end = self._noise.find(b"\n", start) if start >= 0 else -1
        if end < 0:
            if len(self._noise) > (protocol.MAX_NOISE if start < 0 else start + protocol.MAX_PREAMBLE):
                self.fail("its output does not come from `python -m ipybox.node`")
            return None
        node, rest = self._noise[start + len(protocol.PREAMBLE) : end].decode(errors="replace"), self._noise[end + 1 :]
        if node != (here := version("ipybox")):
            self.fail(
                f"the node runs ipybox {printable(node[:100])}, but this machine runs {here}: install the same version "
                "on the node"
            )
            return None
        self._connection.start()
        self.greeted = True
        self._settled.set_result(None)
        return bytes(rest)

    async def _ping(self) -> None:
        """Closes the link when the node stops answering: if the network fails, there is no end of file."""
        loop = asyncio.get_running_loop()
        while True:
            self._connection.ping()
            await asyncio.sleep(protocol.PING_INTERVAL)
            if loop.time() - self._connection.last_received > protocol.NODE_LOST_AFTER:
                self.fail(f"the node has not responded for {protocol.NODE_LOST_AFTER:g} s")
                return

    async def _offer_tools(self) -> None:
        """Keeps one spare stream open, which the node answers when a kernel connects to the tool server."""
        while True:
            await self._tool_connections.acquire()  # until the connection ends
            try:
                stream = self._connection.request(protocol.TOOLS)
                await stream.accepted()
            except StreamClosedError:
                return
            try:
                ours, theirs = _pair()
            except OSError as exc:  # this machine ran out of something, such as open files
                logger.warning("code on the node can't call a tool: %s", exc)
                stream.reset()
                self._tool_connections.release()
                continue
            self._on_tool_connection(ours)
            self._tasks.start(tunnel(stream, theirs)).add_done_callback(lambda _: self._tool_connections.release())


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    return ours, theirs
