"""The application's end of the link to the gateway process (see `ipybox.guest.protocol`). `GatewayProcess` owns it.

The application trusts nothing that arrives here. It accepts one listening socket and one readiness byte, and closes
every other descriptor. It accepts connections to the tool server itself: an accepted socket has its own file
description, whereas a connected descriptor *received* from the gateway would share its O_NONBLOCK flag with the
gateway, which could then block the application's event loop. For the same reason `accept` runs on its own thread
(`ipybox.support.acceptor`), because the listening socket's flags are shared. Received descriptors are also handled and
closed on a thread, because closing a socket's last descriptor can block for as long as the gateway likes (SO_LINGER).
"""

import asyncio
import contextlib
import logging
import os
import select
import socket
import struct
import threading
from functools import partial

from ipybox.guest.protocol import CONNECTION, LISTENER, MAX_FDS, READY
from ipybox.support.acceptor import AcceptedSocket, Acceptor
from ipybox.support.errors import GatewayError
from ipybox.support.tasks import start_daemon_thread

logger = logging.getLogger(__name__)

#: Maximum accepted connections that the event loop has not processed yet.
MAX_WAITING = 16

#: Makes `close` return immediately. Accepted sockets inherit the options of the listener, which the gateway chooses.
NO_LINGER = struct.pack("ii", 0, 0)

#: Keeps programs that start concurrently from inheriting received descriptors. macOS has no such flag.
CLOEXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Link:
    """Connects the application to one gateway process by a single socket.

    Pass `guest_end` to the process as its standard input, then call `open`. The creator owns the link; `close` makes
    the gateway end.
    """

    def __init__(self) -> None:
        self._host_end, self.guest_end = socket.socketpair()
        self._host_end.setblocking(False)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._acceptor: Acceptor | None = None
        self._on_tool_connection: AcceptedSocket | None = None
        self._stopped = threading.Event()
        #: Held to use this end from any thread, so that nothing is sent to a descriptor that was just closed.
        self._using = threading.Lock()
        self._waiting = threading.Semaphore(MAX_WAITING)
        #: Why this end closed the link by itself, if it did.
        self.failure: str | None = None
        #: Set when the gateway answers requests, or never will.
        self.settled = asyncio.Event()
        #: Set when the gateway has closed its end, or this end was closed.
        self.closed = asyncio.Event()

    def open(self, on_tool_connection: AcceptedSocket | None) -> None:
        """Starts reading from the gateway; passes each connection from a kernel to `on_tool_connection`.

        Raises:
            OSError: If the reader thread can't start.
        """
        self.guest_end.close()
        self._on_tool_connection = on_tool_connection
        loop = asyncio.get_running_loop()
        start_daemon_thread(partial(self._receive_forever, loop), "ipybox-link")
        self._loop = loop

    def connect(self) -> socket.socket:
        """Returns a new connection to the gateway's HTTP server.

        Raises:
            GatewayError: If the gateway has ended or does not read from the link.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self.hand_over(theirs)
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        return ours

    def hand_over(self, connection: socket.socket) -> None:
        """Sends a connected stream socket to the gateway's HTTP server; the caller closes its own copy.

        Any thread may call this.

        Raises:
            GatewayError: If the gateway has ended or does not read from the link.
        """
        if self.closed.is_set():
            raise GatewayError("the kernel gateway has exited")
        try:
            with self._using:
                socket.send_fds(self._host_end, [CONNECTION], [connection.fileno()])
        except OSError as exc:
            raise GatewayError(f"the kernel gateway accepts no connections: {exc}") from exc

    def close(self) -> None:
        """Closes the link, which ends the gateway. Closing twice does nothing."""
        self.guest_end.close()
        self._stopped.set()
        self._waiting.release()
        if self._loop is None:
            self._host_end.close()
        else:
            with self._using, contextlib.suppress(OSError):  # one of the ends is closed
                self._host_end.shutdown(socket.SHUT_RDWR)  # wakes the receiving thread, which closes the socket
        if self._acceptor is not None:
            self._acceptor.stop()
        self.closed.set()
        self.settled.set()

    def _receive_forever(self, loop: asyncio.AbstractEventLoop) -> None:
        """Receives until the link is closed; runs on its own thread, which may block here at any time."""
        try:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._receive(loop)
        finally:
            with self._using:
                self._host_end.close()

    def _receive(self, loop: asyncio.AbstractEventLoop) -> None:
        poll = select.poll()
        poll.register(self._host_end, select.POLLIN)
        while not self._stopped.is_set():
            poll.poll()
            try:
                data, fds, _, _ = socket.recv_fds(self._host_end, 4096, MAX_FDS, CLOEXEC)
            except BlockingIOError:
                continue
            except OSError as exc:
                logger.debug("link to the gateway failed: %s", exc)
                data, fds = b"", []
            for fd in fds:
                self._accept_listener(fd, loop, expected=LISTENER in data)
            if READY in data and not self.settled.is_set():
                loop.call_soon_threadsafe(self.settled.set)
            if not data:
                loop.call_soon_threadsafe(self.close)
                return

    def _accept_listener(self, fd: int, loop: asyncio.AbstractEventLoop, *, expected: bool) -> None:
        acceptable = expected and self._acceptor is None and self._on_tool_connection is not None
        received = _listening_socket(fd) if acceptable else None
        if received is None:
            logger.debug("closed an unexpected file descriptor from the gateway")
            os.close(fd)
            return
        try:
            self._acceptor = Acceptor(received, partial(self._pass_on, loop), name="ipybox-accept")
        except OSError as exc:
            received.close()
            self.failure = f"kernels can't reach the tool server: {exc}"
            loop.call_soon_threadsafe(self.close)
            return
        if self._stopped.is_set():  # `close` ran before the acceptor existed
            self._acceptor.stop()

    def _pass_on(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        """Passes a connection to the event loop; runs on the acceptor's thread, which may block here at any time."""
        with contextlib.suppress(OSError):  # macOS refuses this if the connection has ended
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        self._waiting.acquire()
        try:
            loop.call_soon_threadsafe(self._deliver, connection)
        except RuntimeError:  # the loop is closed, so nothing can serve the connection
            connection.close()

    def _deliver(self, connection: socket.socket) -> None:
        self._waiting.release()
        if self._stopped.is_set() or self._on_tool_connection is None:
            connection.close()
        else:
            self._on_tool_connection(connection)


def _listening_socket(fd: int) -> socket.socket | None:
    """Returns the socket behind `fd` if it is a listening TCP socket; otherwise `fd` stays the caller's."""
    try:
        candidate = socket.socket(fileno=fd)
    except OSError:
        return None
    if (
        candidate.family in (socket.AF_INET, socket.AF_INET6)
        and candidate.type == socket.SOCK_STREAM
        and candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    ):
        return candidate
    candidate.detach()
    return None
