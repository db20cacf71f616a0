"""Accepts connections for the gateway's link and port on its own thread, which no event loop delays or ends."""

import contextlib
import errno
import logging
import select
import socket
import threading
from collections.abc import Callable

from ipybox.support.tasks import start_daemon_thread

logger = logging.getLogger(__name__)

AcceptedSocket = Callable[[socket.socket], None]

#: Seconds before the next attempt after a failure, such as a lack of descriptors.
RETRY_INTERVAL = 0.1


class Acceptor:
    """Passes each connection of a listening socket to a callback, until `stop`.

    If descriptors or memory run out, connections wait in the socket's backlog. The callback runs in the acceptor's
    thread and owns the connection, which is non-blocking; the thread closes the listening socket. If the system lacks
    descriptors or threads for the acceptor itself, creating it raises an OSError, and `listener` stays open.
    """

    def __init__(self, listener: socket.socket, on_connection: AcceptedSocket, *, name: str):
        self._listener = listener
        self._on_connection = on_connection
        self._stopped = threading.Event()
        self._closing = threading.Lock()
        self._woken, self._waker = socket.socketpair()
        try:
            self._thread = start_daemon_thread(self._run, name)
        except BaseException:
            self._woken.close()
            self._waker.close()
            raise

    def stop(self) -> None:
        """Makes the thread end. Any thread may call this, more than once."""
        self._stopped.set()
        self._waker.close()
        # If another process shares the socket and makes `accept` block, this unblocks it. macOS refuses the call.
        with self._closing, contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)

    def join(self, timeout: float) -> None:
        """Waits until the thread has ended and the listening socket is closed."""
        self._thread.join(timeout)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        try:
            while (connection := self._accept(poll)) is not None:
                self._on_connection(connection)
        finally:
            self._woken.close()
            with self._closing:
                self._listener.close()

    def _accept(self, poll: select.poll) -> socket.socket | None:
        failing = False
        while True:
            poll.poll()
            if self._stopped.is_set():
                return None
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:  # the connection has ended, or another process that shares the socket got it
                continue
            except OSError as exc:
                if exc.errno == errno.EINVAL:  # shut down by another process that shares the socket
                    return None
                if not failing:
                    logger.warning("can't accept connections, retrying: %s", exc)
                failing = True
                self._stopped.wait(RETRY_INTERVAL)
            else:
                connection.setblocking(False)
                return connection
