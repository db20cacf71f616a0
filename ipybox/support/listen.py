"""Opens listening sockets on ports, with errors that people understand, and recognizes local hosts."""

import errno
import socket
from functools import lru_cache
from ipaddress import ip_address
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
