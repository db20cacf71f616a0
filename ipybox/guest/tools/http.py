"""One HTTP/1.1 request and its response, for blocking and for asyncio sockets alike.

It supports only the part of HTTP/1.1 (RFC 9112) that the tool server uses: each response states its length. A complete
parser (h11) would add 0.2 ms to a tool call, a sixth of its time. `HTTPConnection` does no I/O; the pool does.
"""

import asyncio
import os
import re
import select
import socket
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from ipybox.guest.tools.protocol import DEFAULT_PORT, HOST_VARIABLE, PORT_VARIABLE, TOKEN_VARIABLE

RECEIVE_BYTES = 1 << 18
MAX_HEAD_BYTES = 1 << 16

#: The status of a response to a request without a valid token.
UNAUTHORIZED = 401

HEAD_END = b"\r\n\r\n"
STATUS_LINE = re.compile(r"HTTP/1\.1 ([1-5][0-9]{2})(?: |$)")


@dataclass(frozen=True)
class ServerAddress:
    """The address of a tool server, and its token; `None` to use the token that it has published."""

    host: str
    port: int
    token: str | None

    @classmethod
    def of_kernel(cls) -> Self:
        """Returns the address that the environment names, as it does in a kernel."""
        host, port = os.environ.get(HOST_VARIABLE, "localhost"), int(os.environ.get(PORT_VARIABLE, DEFAULT_PORT))
        return cls(host, port, os.environ.get(TOKEN_VARIABLE))

    def find_token(self) -> str | None:
        """Returns the token, read again for each connection, because a restarted server has a new one."""
        if self.token is not None:
            return self.token
        from ipybox.support.tokens import find_token  # kernels have a token, and need no import

        return find_token("tool-server", self.port)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class HTTPConnection:
    """A connection for consecutive exchanges: `begin`, then `receive` until it returns the response."""

    def __init__(self, address: ServerAddress, sock: socket.socket):
        # Small messages go both ways in turn: Nagle's algorithm would delay each by up to 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        # Closes idle connections with their runner, which has no `close`.
        self.close = weakref.finalize(self, sock.close)
        # Whether the response to every request has been read, and the server keeps the connection open.
        self._in_step = True
        self._answer = bytearray()
        #: Status, length of the body, and whether the connection stays open; None before the head has arrived.
        self._head: tuple[int, int, bool] | None = None
        token = address.find_token()
        authorization = f"Authorization: token {token}\r\n" if token is not None else ""
        self._headers = f"Host: localhost\r\nContent-Type: application/json\r\n{authorization}"

    @property
    def usable(self) -> bool:
        """Whether another exchange can take place: a readable idle connection has been closed by the server."""
        if not self._in_step:
            return False
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return not poll.poll(0)

    def begin(self, method: str, path: str, body: bytes) -> bytes:
        """Returns a request to send."""
        self._in_step, self._answer, self._head = False, bytearray(), None
        return f"{method} {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def receive(self, data: bytes) -> tuple[int, bytearray] | None:
        """Adds received bytes, and returns the status and the body of the response as soon as it is complete.

        Raises:
            ConnectionError: If the response is not HTTP as the tool server uses it, or ends early.
        """
        if not data:
            raise ConnectionError("the tool server closed the connection before responding")
        self._answer += data
        if self._head is None:
            head, end, rest = self._answer.partition(HEAD_END)
            if not end:
                if len(head) > MAX_HEAD_BYTES:
                    raise ConnectionError("the tool server's response is not HTTP: its headers are too long")
                return None
            self._head, self._answer = _parse_head(head.decode("latin-1")), rest
        status, length, stays = self._head
        if len(self._answer) < length:
            return None
        # After a rejected token, the next connection reads the token again.
        body, self._answer = self._answer, bytearray()
        self._in_step = stays and len(body) == length and status != UNAUTHORIZED
        del body[length:]
        return status, body


def _parse_head(head: str) -> tuple[int, int, bool]:
    """Returns the status, body length, and whether the connection stays open, from the head of a response."""
    status_line, *lines = head.split("\r\n")
    status = STATUS_LINE.match(status_line)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "")
    if status is None or not (length.isascii() and length.isdecimal()):
        raise ConnectionError(
            f"the tool server's response is not HTTP with a valid Content-Length: {status_line[:100]!r}"
        )
    return int(status[1]), int(length), headers.get("connection", "").lower() != "close"


class ConnectionPool:
    """Connections for any thread and the tasks of any event loop. A forked child starts with an empty pool."""

    def __init__(self, address: ServerAddress):
        self._address = address
        self._idle: list[HTTPConnection] = []
        self._process = os.getpid()

    def request(self, method: str, path: str, body: bytes) -> tuple[int, bytearray]:
        """Makes a request and returns the status and body of the response."""
        connection = self._pop_usable() or self._connect()
        with self._given_back(connection):
            connection.sock.setblocking(True)
            connection.sock.sendall(connection.begin(method, path, body))
            while (answer := connection.receive(connection.sock.recv(RECEIVE_BYTES))) is None:
                pass
            return answer

    async def request_async(self, method: str, path: str, body: bytes) -> tuple[int, bytearray]:
        """Like `request`, but doesn't block. Cancelling it cancels the request."""
        loop = asyncio.get_running_loop()
        connection = self._pop_usable() or await asyncio.to_thread(self._connect)
        with self._given_back(connection):
            connection.sock.setblocking(False)
            await loop.sock_sendall(connection.sock, connection.begin(method, path, body))
            while (answer := connection.receive(await loop.sock_recv(connection.sock, RECEIVE_BYTES))) is None:
                pass
            return answer

    def _connect(self) -> HTTPConnection:
        return HTTPConnection(self._address, socket.create_connection((self._address.host, self._address.port)))

    def _pop_usable(self) -> HTTPConnection | None:
        if self._process != os.getpid():  # a forked child, whose parent uses the connections
            self._process, self._idle = os.getpid(), []
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:  # not checked before, because other threads pop at the same time
                return None
            if connection.usable:
                return connection
            connection.close()

    @contextmanager
    def _given_back(self, connection: HTTPConnection) -> Generator[None]:
        try:
            yield
        except BaseException:
            connection.close()  # which also cancels the request
            raise
        self._idle.append(connection)
