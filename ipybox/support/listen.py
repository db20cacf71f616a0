"""Listening sockets on ports, with errors that people understand, their new connections, and local hosts."""

import asyncio
import errno
import socket
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit


def listen(host: str, port: int) -> socket.socket:
    """Returns a non-blocking socket that listens at `host` and `port`; port 0 picks a free one."""
    if not 0 <= port < 1 << 16:  # `getaddrinfo` would wrap it around
        raise OSError(errno.EINVAL, f"can't listen on {host} port {port}: the port must be between 0 and 65535")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family)
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            reason = "the port is already in use: stop the program that uses it, or choose another port"
        else:
            reason = str(exc)
        raise OSError(exc.errno, f"can't listen on {host} port {port}: {reason}") from exc
    listener.setblocking(False)
    # Connections inherit it. asyncio sets it only on sockets with an explicit protocol; without it, each response of
    # two writes takes 40 ms: https://github.com/python/cpython/blob/3.11/Lib/asyncio/base_events.py
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


@lru_cache(maxsize=64)
def is_local(host: str) -> bool:
    """Returns whether a `Host` header names this machine, as only its own programs do."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


class NewConnections:
    """The connections that have not sent a valid request yet, oldest first, limited so that nobody can use them all up.

    `close` closes one that is late or makes room for another.
    """

    def __init__(self, close: Callable[[Any], object]):
        self._close = close
        self._timers: dict[Any, asyncio.TimerHandle] = {}

    def add(self, connection: Any, limit: int, timeout: float) -> None:
        """Adds a connection, which must be removed within `timeout` seconds; closes the oldest one at the limit."""
        if len(self._timers) >= limit:
            self._expire(next(iter(self._timers)))
        self._timers[connection] = asyncio.get_running_loop().call_later(timeout, self._expire, connection)

    def remove(self, connection: Any) -> None:
        """Removes a connection, unless it has been removed before."""
        if (timer := self._timers.pop(connection, None)) is not None:
            timer.cancel()

    def _expire(self, connection: Any) -> None:
        self.remove(connection)
        self._close(connection)
