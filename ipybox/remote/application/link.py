"""The application's end of the connection to a node: what it says first, control messages, and tunnels.

Nothing of the node is trusted: what it sends is validated, and only this end opens streams. `EngineGateway` owns the
link.
"""

import asyncio
import itertools
import logging
import socket
from collections.abc import Callable, Iterable
from importlib.metadata import version

from pydantic import ValidationError

from ipybox.remote.wire.connection import Connection
from ipybox.remote.wire.messages import InvalidMessageError, MessageStream
from ipybox.remote.wire.protocol import (
    CONTROL,
    FILES,
    FROM_NODE,
    GATEWAY,
    MAX_NOISE,
    MAX_PREAMBLE,
    NODE_LOST_AFTER,
    PING_INTERVAL,
    PREAMBLE,
    PROTOCOL,
    SPARE_TOOL_STREAMS,
    TOOLS,
    Explain,
    Explained,
    FromNode,
    ToNode,
    Versions,
)
from ipybox.remote.wire.stream import Stream, StreamClosedError
from ipybox.remote.wire.tunnel import tunnel
from ipybox.support.acceptor import AcceptedSocket
from ipybox.support.errors import GatewayError
from ipybox.support.printable import printable
from ipybox.support.tasks import TaskSet

logger = logging.getLogger(__name__)

#: Connections of code to the tool server at a time, with those that wait for code.
MAX_TOOL_CONNECTIONS = 256 + SPARE_TOOL_STREAMS

#: Seconds for the node to explain denials. After that, there are no explanations.
EXPLAIN_TIMEOUT = 3.0


class NodeLink:
    """Connects the application to one node, over the pipes of the engine's command.

    Args:
        on_message: Called with each control message that is no answer.
        on_tool_connection: Receives each connection of code in a kernel to the tool server.
    """

    def __init__(self, on_message: Callable[[FromNode], None], on_tool_connection: AcceptedSocket):
        self._on_message = on_message
        self._on_tool_connection = on_tool_connection
        self._connection = Connection(client=True)
        self._control: MessageStream[FromNode] | None = None
        self._noise = bytearray()
        self._tool_connections = asyncio.Semaphore(MAX_TOOL_CONNECTIONS)
        self._numbers = itertools.count(1)
        self._questions: dict[int, asyncio.Future[list[str]]] = {}
        self._tasks = TaskSet()
        #: Set when the node has said which ipybox it has.
        self.greeted = asyncio.Event()
        #: Set when the link is closed, for whatever reason.
        self.closed = self._connection.closed
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """Why this end closed the link; None if it did not, or was asked to."""
        if self._connection.violation is not None:
            return f"the node sent invalid HTTP/2: {self._connection.violation}"
        return self._problem

    @property
    def noise(self) -> str:
        """What came before the node's first line, or in place of it, for messages."""
        before = self._noise.partition(PREAMBLE)[0]
        return printable(before[-500:].decode(errors="replace"), lines=True).strip()

    async def open(self, read_fd: int, write_fd: int) -> None:
        """Starts to read; takes ownership of the descriptors."""
        await self._connection.open(read_fd, write_fd, self._greet)

    async def close(self) -> None:
        """Closes the link, which ends the node."""
        self._connection.close()
        await self._tasks.cancel()

    def fail(self, problem: str) -> None:
        """Closes the link because of a problem of the node."""
        self._problem = problem
        self._connection.close()

    def start(self) -> None:
        """Starts to receive messages, once the node has greeted; does nothing if the link is closed."""
        try:
            self._control = MessageStream(self._connection.request(CONTROL), FROM_NODE)
        except StreamClosedError:
            return
        self._tasks.start(self._control.send_forever())
        self._tasks.start(self._receive(self._control))
        self._tasks.start(self._ping())
        for _ in range(SPARE_TOOL_STREAMS):
            self._tasks.start(self._offer_tools())

    def post(self, message: ToNode) -> None:
        """Sends a message, unless the link is closed."""
        if self._control is not None and not self.closed.is_set():
            self._control.post(message)

    def connect(self) -> socket.socket:
        """Returns a new connection to the gateway's HTTP server.

        Raises:
            GatewayError: If the link is closed.
        """
        try:
            stream = self._connection.request(GATEWAY, large=True)
        except StreamClosedError:
            raise GatewayError("the node is not connected") from None
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        self._tasks.start(tunnel(stream, theirs))
        return ours

    def open_files(self) -> Stream:
        """Returns a new stream for messages about files.

        Raises:
            StreamClosedError: If the link is closed.
        """
        return self._connection.request(FILES, large=True)

    async def explain(self, text: str, tool_texts: Iterable[str]) -> list[str]:
        """Returns the node's explanations of denials; an empty list if it does not answer."""
        number = next(self._numbers)
        answer = self._questions[number] = asyncio.get_running_loop().create_future()
        self.post(Explain(number=number, text=text, tool_texts=list(tool_texts)))
        closed = asyncio.create_task(self.closed.wait())
        try:
            await asyncio.wait([answer, closed], timeout=EXPLAIN_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else []
        finally:
            closed.cancel()
            del self._questions[number]

    def _greet(self, data: bytes) -> bytes | None:
        """Looks for the node's first line, and returns what follows it; None if it is not there yet."""
        self._noise += data
        start = self._noise.find(PREAMBLE)
        end = self._noise.find(b"\n", start) if start >= 0 else -1
        if end < 0:
            if len(self._noise) > (MAX_NOISE if start < 0 else start + MAX_PREAMBLE):
                self.fail("its output does not come from `python -m ipybox.node`")
            return None
        line, rest = bytes(self._noise[start + len(PREAMBLE) : end]), bytes(self._noise[end + 1 :])
        try:
            node = Versions.model_validate_json(line)
        except ValidationError:
            self.fail("its first line does not come from `python -m ipybox.node`")
            return None
        here = version("ipybox")
        if (node.ipybox, node.protocol) != (here, PROTOCOL):
            self.fail(
                f"the node runs ipybox {printable(node.ipybox)}, but this machine runs {here}: install the same "
                "version on the node"
            )
            return None
        self._connection.start()
        self.greeted.set()
        return rest

    async def _receive(self, control: "MessageStream[FromNode]") -> None:
        try:
            async for message in control.messages():
                if isinstance(message, Explained):
                    question = self._questions.get(message.number)
                    if question is not None and not question.done():
                        question.set_result([printable(line) for line in message.lines])
                else:
                    self._on_message(message)
        except InvalidMessageError as exc:
            self.fail(f"the node sent {exc}")
        self._connection.close()

    async def _ping(self) -> None:
        """Closes the link when the node answers no more, as without a network; then no end of file comes."""
        loop = asyncio.get_running_loop()
        while True:
            self._connection.ping()
            await asyncio.sleep(PING_INTERVAL)
            if loop.time() - self._connection.last_received > NODE_LOST_AFTER:
                self.fail(f"the node has not responded for {NODE_LOST_AFTER:g} s")
                return

    async def _offer_tools(self) -> None:
        """Keeps one stream open that the node answers when code connects to the tool server."""
        while True:
            await self._tool_connections.acquire()  # until the connection ends
            try:
                stream = self._connection.request(TOOLS)
                await stream.accepted()
            except StreamClosedError:
                return
            try:
                ours, theirs = socket.socketpair()
            except OSError as exc:  # a shortage of this machine, such as too many open files
                logger.warning("code on the node can't call a tool: %s", exc)
                stream.reset()
                self._tool_connections.release()
                continue
            for end in (ours, theirs):
                end.setblocking(False)
            self._on_tool_connection(ours)
            self._tasks.start(self._serve_tools(stream, theirs))

    async def _serve_tools(self, stream: Stream, sock: socket.socket) -> None:
        try:
            await tunnel(stream, sock)
        finally:
            self._tool_connections.release()
