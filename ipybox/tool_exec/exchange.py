"""One HTTP/1.1 request and its answer, for blocking and for asyncio sockets alike.

This runs in the kernel. HTTP itself is h11's, which does no I/O; here are the two ways to move its bytes, and
the connections that are kept for the next request.
"""

import asyncio
import os
import select
import socket
import weakref
from collections.abc import Generator
from dataclasses import dataclass

import h11

RECEIVE_BYTES = 1 << 18


@dataclass(frozen=True)
class Address:
    """Where a server listens, and the token that it asks for."""

    host: str
    port: int
    token: str | None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Connection:
    """A connection on which one exchange after the other takes place."""

    def __init__(self, address: Address, sock: socket.socket):
        # Small messages go both ways in turn: Nagle's algorithm would delay each by up to 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        # Idle connections end with the runner that has them, which nobody has to close.
        self._close = weakref.finalize(self, sock.close)
        self._address = address
        self._http = h11.Connection(h11.CLIENT)

    @property
    def usable(self) -> bool:
        """Whether another exchange can take place: an idle connection that is readable has been closed."""
        if self._http.our_state is not h11.IDLE:
            return False
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return not poll.poll(0)

    def exchange(self, method: str, path: str, body: bytes) -> Generator[bytes | None, bytes, tuple[int, bytes]]:
        """Yields bytes to send, then None for each time that bytes have to be received and sent in.

        Returns the status and the body of the answer.

        Raises:
            ConnectionError: If the answer is not HTTP, or ends early.
        """
        headers = [
            ("Host", "localhost"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
        ]
        if self._address.token is not None:
            headers.append(("Authorization", f"token {self._address.token}"))
        http = self._http
        yield b"".join(
            part or b""
            for part in (
                http.send(h11.Request(method=method, target=path, headers=headers)),
                http.send(h11.Data(data=body)),
                http.send(h11.EndOfMessage()),
            )
        )
        status = 0
        chunks: list[bytes] = []
        try:
            while True:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    http.receive_data((yield None))
                elif isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    chunks.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    break
                elif isinstance(event, h11.ConnectionClosed):
                    raise ConnectionError("the tool server closed the connection before it answered")
            if http.our_state is h11.DONE:
                http.start_next_cycle()
        except h11.ProtocolError as exc:
            raise ConnectionError(f"the tool server's answer is no HTTP: {exc}") from exc
        return status, b"".join(chunks)

    def close(self) -> None:
        """Closes the connection, which also withdraws a request under way."""
        self._close()


def _take_usable(idle: list[Connection]) -> Connection | None:
    """Takes a usable connection from `idle`, which threads may do at the same time; closes the others."""
    while True:
        try:
            connection = idle.pop()
        except IndexError:
            return None
        if connection.usable:
            return connection
        connection.close()


class SyncPool:
    """Connections of blocking requests, for use by any thread. A forked child starts with an empty one."""

    def __init__(self, address: Address):
        self._address = address
        self._idle: list[Connection] = []
        _sync_pools.add(self)

    def request(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Makes a request and returns the status and body of the answer."""
        connection = _take_usable(self._idle) or Connection(
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
        """Drops all idle connections without closing them for a process that shares them."""
        self._idle = []


class AsyncPool:
    """Connections of asynchronous requests, for use by the tasks of one event loop."""

    def __init__(self, address: Address):
        self._address = address
        self._idle: list[Connection] = []

    async def request(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Makes a request and returns the status and body of the answer. Cancelling it withdraws the request."""
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

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> Connection:
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
                return Connection(self._address, sock)
        raise OSError(f"{self._address.host} has no address")


_sync_pools: weakref.WeakSet[SyncPool] = weakref.WeakSet()


def _forget_connections() -> None:
    for pool in _sync_pools:
        pool.forget()


os.register_at_fork(after_in_child=_forget_connections)
