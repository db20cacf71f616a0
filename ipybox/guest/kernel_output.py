"""The connection on which a kernel sends its output to the gateway, so that it survives the kernel process.

With ZeroMQ, flushed output would spend a moment in a thread of the kernel. If the kernel ended at that moment, the
output would be lost, often with the reason why it ended. What is in a socket arrives, whatever happens to its sender.

What other programs write to the kernel's stdout and stderr is in pipes, which the kernel reads. The gateway creates
them, and reads what is left when the kernel has died. A single system call moves data from a pipe to a file in memory,
so it is always in one of them until the kernel has sent it.
"""

import asyncio
import logging
import mmap
import os
import socket
import struct
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import Any

from ipybox.guest.protocol import MAX_MESSAGE_BYTES

logger = logging.getLogger(__name__)

STREAMS = ("stdout", "stderr")

#: The capacity of a pipe.
_PIPE_BYTES = 1 << 16

#: What the file starts with: the number (from 1) of the stream whose data follows, or 0, and of the messages before it.
_HEAD = struct.Struct("<2Q")
_FILE_BYTES = _HEAD.size + _PIPE_BYTES

#: What a message starts with: the number of its parts, whose lengths follow. Jupyter's have at least six.
_COUNT = struct.Struct("<I")
MIN_PARTS, MAX_PARTS = 6, 1 << 12

#: Bytes that a kernel can send before it waits for the gateway; the operating system may allow fewer.
SEND_BYTES = 1 << 20

#: Bytes to receive at once, and of a large message: few small ones, because other kernels' clients wait meanwhile.
RECEIVE_BYTES = 1 << 13
RECEIVE_LARGE = 1 << 18

#: Maximum number of times to receive from a kernel that has died, more than a socket needs.
MAX_LEFT = 1 << 8

_MESSAGE = b"o"
_DESCRIPTORS = 2 + 2 * len(STREAMS)


class KernelOutput:
    """The kernel's side, which takes the place of ipykernel's ZeroMQ socket. Only one thread uses it."""

    #: The ZeroMQ context of the kernel, which ipykernel looks up here.
    context: Any = None

    def __init__(self, channel: socket.socket):
        """Receives the descriptors; ends this process if the gateway has ended."""
        data, fds, _, _ = socket.recv_fds(channel, len(_MESSAGE), _DESCRIPTORS)
        if not data:
            os._exit(0)
        for fd in fds:
            os.set_inheritable(fd, False)
        connection, file, *ends = fds
        #: The read and write ends of each stream's pipe.
        self.pipes: dict[str, tuple[int, int]] = dict(
            zip(STREAMS, zip(ends[::2], ends[1::2], strict=True), strict=True)
        )
        self._socket = socket.socket(fileno=connection)
        self._file = mmap.mmap(file, _FILE_BYTES)
        os.close(file)
        self._sent = 0

    def send_multipart(self, parts: Sequence[bytes], *_: object, **__: object) -> None:
        """Sends a message; ends this process if the connection is broken, because no cell would end any more."""
        lengths = struct.pack(f"<{1 + len(parts)}I", len(parts), *map(len, parts))
        try:
            self._socket.sendall(b"".join((lengths, *parts)))
        except OSError:
            if self._socket.fileno() >= 0:  # not closed at exit, in another thread
                os._exit(1)
        self._sent += 1

    def read(self, name: str, pass_on: Callable[[bytes], object]) -> None:
        """Reads a stream's pipe, and passes the data on to a function that sends it in one message."""
        _HEAD.pack_into(self._file, 0, 1 + STREAMS.index(name), self._sent)
        with memoryview(self._file) as whole, whole[_HEAD.size :] as place:
            data = bytes(place[: _move(self.pipes[name][0], place)])
        pass_on(data)
        end = _HEAD.size + len(data)
        self._file[:end] = bytes(end)

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()


class GatewayOutput:
    """The gateway's side, from before the kernel starts until it has died. All that it receives is untrusted."""

    def __init__(self) -> None:
        #: Called with each message.
        self.receivers: set[Callable[[list[bytes]], object]] = set()
        self._received = bytearray()
        #: The bytes of the message that is arriving, as far as they are known.
        self._size = 0
        #: The number of messages that have arrived.
        self._count = 0
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        self._fds = [theirs.detach()]
        try:
            self._fds.append(_memory_file())
            os.ftruncate(self._fds[1], _FILE_BYTES)
            for _ in STREAMS:
                self._fds += os.pipe()
        except OSError:
            self.close()
            raise

    def send(self, channel: socket.socket) -> None:
        """Sends the kernel its descriptors, and begins to receive its messages."""
        theirs, file, *ends = self._fds
        # If the process has ended, the thread that waits for it notices.
        with suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(channel, [_MESSAGE], self._fds)
        for fd in (theirs, *ends[1::2]):
            os.close(fd)
        self._fds = [file, *ends[::2]]
        asyncio.get_running_loop().add_reader(self._socket, self._receive)

    def finish(self) -> dict[str, str]:
        """Receives the last messages; call it when the kernel has died.

        Returns:
            By stream name, the text that was written to the stream's descriptor and is in no message.
        """
        for _ in range(MAX_LEFT):
            if not self._receive():
                break
        file, *pipes = self._fds
        data = os.pread(file, _FILE_BYTES, 0).ljust(_HEAD.size, b"\0")
        stream, sent = _HEAD.unpack_from(data)
        moved = {stream - 1: data[_HEAD.size :].rstrip(b"\0")} if sent == self._count else {}
        left = [moved.get(number, b"") + _available(pipe) for number, pipe in enumerate(pipes)]
        return {name: text.decode(errors="replace") for name, text in zip(STREAMS, left, strict=True)}

    def close(self) -> None:
        """Closes the descriptors."""
        self._stop()
        self._socket.close()
        self._received.clear()
        while self._fds:
            with suppress(OSError):
                os.close(self._fds.pop())

    def _receive(self) -> bool:
        """Receives data, and passes on messages that are complete; returns whether more can arrive."""
        try:
            missing = min(self._size - len(self._received), RECEIVE_LARGE)
            data = self._socket.recv(max(missing, RECEIVE_BYTES))
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self._received += data
        try:
            while (message := self._next()) is not None:
                self._pass_on(message)
        except ValueError as error:
            logger.warning("receive no more output of a kernel: %s", error)
            data = b""
        if not data:
            self._stop()
        return bool(data)

    def _stop(self) -> None:
        with suppress(RuntimeError):  # there is no event loop
            asyncio.get_running_loop().remove_reader(self._socket)
        with suppress(OSError):  # the kernel has closed it
            self._socket.shutdown(socket.SHUT_RDWR)

    def _next(self) -> list[bytes] | None:
        """Returns the next message; None if it has not arrived.

        Raises:
            ValueError: If it is too large.
        """
        received = self._received
        if len(received) < max(self._size, _COUNT.size):
            return None
        (count,) = _COUNT.unpack_from(received)
        if not MIN_PARTS <= count <= MAX_PARTS:
            raise ValueError(f"a message has {count:,} parts")
        self._size = start = _COUNT.size * (1 + count)
        if len(received) < start:
            return None
        lengths = struct.unpack_from(f"<{count}I", received, _COUNT.size)
        self._size = start + sum(lengths)
        if self._size > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message has {self._size:,} bytes")
        if len(received) < self._size:
            return None
        with memoryview(received) as view:
            message = [bytes(view[first:last]) for first, last in pairwise(accumulate(lengths, initial=start))]
        del received[: self._size]
        self._size = 0
        self._count += 1
        return message

    def _pass_on(self, message: list[bytes]) -> None:
        for receive in tuple(self.receivers):
            try:
                receive(message)
            except Exception:  # the client is gone, or code has sent no message of Jupyter
                logger.debug("can't pass on a kernel's output", exc_info=True)


def _memory_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("ipybox-output")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _move(pipe: int, place: memoryview) -> int:
    return os.readv(pipe, [place])


def _available(pipe: int) -> bytes:
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        return os.read(pipe, _PIPE_BYTES)
    return b""
