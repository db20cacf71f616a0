"""One HTTP/1.1 request and its response, for blocking and for asyncio sockets alike.

This runs in the kernel for each tool call, and supports only the part of HTTP/1.1 (RFC 9112) that the tool server uses,
which gives the length of all its responses. A complete parser (h11) costs a tool call 0.2 ms more, a sixth of a call.
`HTTPConnection` does no I/O; the pools move its bytes in two ways, and keep connections for the next request.
"""

import asyncio
import os
import re
import select
import socket
import weakref
from collections.abc import Generator
from dataclasses import dataclass

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

    def find_token(self) -> str | None:
        """Returns the token, read again for each connection, because a restarted server has a new one."""
        if self.token is not None:
            return self.token
        from ipybox.support.tokens import find_token  # kernels have a token, and need no import

        return find_token("tool-server", self.port)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class HTTPConnection:
    """A connection for one exchange after the other."""

    def __init__(self, address: ServerAddress, sock: socket.socket):
        # Small messages go both ways in turn: Nagle's algorithm would delay each by up to 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        # Idle connections end with their runner, which needs no close.
        self._close = weakref.finalize(self, sock.close)
        # Whether the response to every request has been read, and the server keeps the connection.
        self._in_step = True
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

    def exchange(self, method: str, path: str, body: bytes) -> Generator[bytes | None, bytes, tuple[int, bytes]]:
        """Yields bytes to send, then None each time it needs received bytes to be sent in.

        Returns the status and the body of the response.

        Raises:
            ConnectionError: If the response is not HTTP as the tool server uses it, or ends early.
        """
        self._in_step = False
        yield f"{method} {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(body)}\r\n\r\n".encode() + body
        answer = bytearray()
        while (end := answer.find(HEAD_END)) < 0:
            if len(answer) > MAX_HEAD_BYTES:
                raise ConnectionError("the tool server's response is not HTTP: its headers are too long")
            answer += yield from _received()
        status, length, stays = _parse_head(answer[:end].decode("latin-1"))
        end += len(HEAD_END)
        while len(answer) < end + length:
            answer += yield from _received()
        # After a rejected token, the next connection reads the token again.
        self._in_step = stays and len(answer) == end + length and status != UNAUTHORIZED
        return status, bytes(answer[end : end + length])

    def close(self) -> None:
        """Closes the connection, which also cancels a request in progress."""
        self._close()


def _received() -> Generator[None, bytes, bytes]:
    data = yield None
    if not data:
        raise ConnectionError("the tool server closed the connection before responding")
    return data


def _parse_head(head: str) -> tuple[int, int, bool]:
    """Returns status, length of the body, and whether the connection stays, from the head of a response.

    Raises:
        ConnectionError: If it is not HTTP/1.1, or does not give the length.
    """
    status_line, *lines = head.split("\r\n")
    status = STATUS_LINE.match(status_line)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "")
    if status is None or not (length.isascii() and length.isdecimal()):
        raise ConnectionError(
            f"the tool server's response is not HTTP with a valid Content-Length: {status_line[:100]!r}"
        )
    return int(status[1]), int(length), headers.get("connection", "").lower() != "close"


def _take_usable(idle: list[HTTPConnection]) -> HTTPConnection | None:
    """Takes a usable connection from `idle`, which threads may do at the same time; closes the others."""
    while True:
        try:
            connection = idle.pop()
        except IndexError:
            return None
        if connection.usable:
            return connection
        connection.close()


class SyncConnectionPool:
    """Connections of blocking requests, for use by any thread. A forked child starts with an empty one."""

    def __init__(self, address: ServerAddress):
        self._address = address
        self._idle: list[HTTPConnection] = []
        _sync_pools.add(self)

    def request(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Makes a request and returns the status and body of the response."""
        connection = _take_usable(self._idle) or HTTPConnection(
            self._address, socket.create_connection((self._address.host, self._address.port))
        )
        try:
            steps = connection.exchange(method, path, body)
            data = next(steps)
            while True:
                if data is not None:
                    connection.sock.sendall(data)
                    data = next(steps)
                else:
                    data = steps.send(connection.sock.recv(RECEIVE_BYTES))
        except StopIteration as done:
            self._idle.append(connection)
            return done.value
        except BaseException:
            connection.close()
            raise

    def forget(self) -> None:
        """Drops all idle connections, without closing them for another process that shares them."""
        self._idle = []


class AsyncConnectionPool:
    """Connections of asynchronous requests, for use by the tasks of one event loop."""

    def __init__(self, address: ServerAddress):
        self._address = address
        self._idle: list[HTTPConnection] = []

    async def request(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Makes a request and returns the status and body of the response. Cancelling it cancels the request."""
        loop = asyncio.get_running_loop()
        connection = _take_usable(self._idle) or await self._connect(loop)
        try:
            steps = connection.exchange(method, path, body)
            data = next(steps)
            while True:
                if data is not None:
                    await loop.sock_sendall(connection.sock, data)
                    data = next(steps)
                else:
                    data = steps.send(await loop.sock_recv(connection.sock, RECEIVE_BYTES))
        except StopIteration as done:
            self._idle.append(connection)
            return done.value
        except BaseException:
            connection.close()
            raise

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> HTTPConnection:
        addresses = await loop.getaddrinfo(self._address.host, self._address.port, type=socket.SOCK_STREAM)
        for number, (family, kind, proto, _, address) in enumerate(addresses, start=1):
            sock = socket.socket(family, kind, proto)
            try:
                sock.setblocking(False)
                await loop.sock_connect(sock, address)
            except BaseException as exc:
                sock.close()
                if not isinstance(exc, OSError) or number == len(addresses):
                    raise
            else:
                return HTTPConnection(self._address, sock)
        raise OSError(f"{self._address.host} has no address")


_sync_pools: weakref.WeakSet[SyncConnectionPool] = weakref.WeakSet()


def _forget_connections() -> None:
    for pool in _sync_pools:
        pool.forget()


os.register_at_fork(after_in_child=_forget_connections)
