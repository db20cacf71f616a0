"""The last output of a kernel, kept where it survives the kernel process.

Flushed output spends a moment in a ZeroMQ thread, and what other programs write to the kernel's stdout and stderr is in
pipes. If the kernel ends at that moment, this output would be lost, often with the reason why it ended. Therefore the
gateway creates the pipes, and an in-memory file for copies of the last messages, and reads them when the kernel has
died.

The file has two halves. When one is full, new messages replace those in the other. Data from a pipe goes to the space
after the halves: a single system call moves it there, so it is always either in the pipe or in the file.
"""

import mmap
import os
import select
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

#: Bytes of each half.
HALF = 1 << 17

#: The capacity of a pipe.
_PIPE_BYTES = 1 << 16
STREAMS = ("stdout", "stderr")

#: The half in use, the bytes used in each, and the number (from 1) of the stream whose pipe is being read, or 0.
_HEAD = struct.Struct("<4Q")
_COUNT = struct.Struct("<I")

#: The offset of the data from a pipe, which zeros follow, and the size of the file.
_MOVED = _HEAD.size + 2 * HALF
_SIZE = _MOVED + _PIPE_BYTES

_MESSAGE = b"o"
_DESCRIPTORS = 1 + 2 * len(STREAMS)

#: Of a larger message, only the parts that identify it are kept: topic, delimiter and signature.
MAX_MESSAGE = HALF - (1 << 12)
PARTS = 3

#: Replaces the topic for data that was read from a descriptor.
_READ = b"read"

#: The parts of a message as the kernel sent it.
Frames = Sequence[bytes]


class KernelOutput:
    """The kernel's side of the last output."""

    def __init__(self, channel: socket.socket):
        """Receives the descriptors; ends this process if the gateway has ended."""
        data, fds, _, _ = socket.recv_fds(channel, len(_MESSAGE), _DESCRIPTORS)
        if not data:
            os._exit(0)
        for fd in fds:
            os.set_inheritable(fd, False)
        file, *ends = fds
        #: The read and write ends of each stream's pipe.
        self.pipes: dict[str, tuple[int, int]] = dict(
            zip(STREAMS, zip(ends[::2], ends[1::2], strict=True), strict=True)
        )
        self._copies = mmap.mmap(file, _SIZE)
        os.close(file)
        self._lock = threading.Lock()
        self._half = 0
        self._used = [0, 0]
        self._moved = self._stream = 0

    def add(self, frames: Frames) -> None:
        """Copies a message that is about to be sent, or the first parts of one that is too large or has buffers."""
        lengths = [*map(len, frames)]
        if sum(lengths) > MAX_MESSAGE or {*map(type, frames)} != {bytes}:
            frames, lengths = frames[:PARTS], lengths[:PARTS]
        with self._lock:
            self._add(frames, lengths, self._stream)

    def read(self, name: str) -> bytes:
        """Returns the content of a stream's pipe, which is kept until the stream's next message."""
        with self._lock:
            self._copies[_MOVED : _MOVED + self._moved] = bytes(self._moved)
            self._moved, self._stream = _PIPE_BYTES, 1 + STREAMS.index(name)
            self._write_head()
            with memoryview(self._copies) as whole, whole[_MOVED:] as place:
                self._moved = _move(self.pipes[name][0], place)
                data = bytes(place[: self._moved])
            self._add((_READ, name.encode(), data), (len(_READ), len(name), len(data)), 0)
            return data

    def _add(self, frames: Frames, lengths: Sequence[int], stream: int) -> None:
        copy = b"".join((struct.pack(f"<{1 + len(lengths)}I", len(lengths), *lengths), *frames))
        used = self._used[self._half]
        if used + len(copy) > HALF:
            self._half ^= 1
            self._used[self._half] = used = 0
            self._write_head()
        start = _HEAD.size + self._half * HALF + used
        self._copies[start : start + len(copy)] = copy
        self._used[self._half], self._stream = used + len(copy), stream
        self._write_head()

    def _write_head(self) -> None:
        _HEAD.pack_into(self._copies, 0, self._half, *self._used, self._stream)


@dataclass(frozen=True)
class Remains:
    """What a dead kernel left behind. All of it is as untrusted as other output."""

    #: Its last messages, some of which may already have arrived.
    messages: list[list[bytes]]
    #: By stream name, the text that was written to the stream's descriptor and is in no message.
    texts: dict[str, str]

    def after(self, last: bytes | None) -> list[list[bytes]]:
        """Returns the messages after the one with this signature (third part), which is unique."""
        place = next((i for i, message in enumerate(self.messages) if message[2] == last), -1)
        return [message for message in self.messages[place + 1 :] if len(message) > PARTS]


class LastOutput:
    """The gateway's side of the last output, from before the kernel starts until it has died."""

    def __init__(self) -> None:
        self._fds: list[int] = []
        try:
            self._fds.append(_memory_file())
            os.ftruncate(self._fds[0], _SIZE)
            for _ in STREAMS:
                self._fds += os.pipe()
        except OSError:
            self.close()
            raise

    def send(self, channel: socket.socket) -> None:
        """Sends the descriptors to the kernel; this process then keeps only the file and the read ends."""
        socket.send_fds(channel, [_MESSAGE], self._fds)
        for fd in self._fds[2::2]:
            os.close(fd)
        self._fds[1:] = self._fds[1::2]

    def read(self) -> Remains:
        """Returns what the kernel left behind; call it when the kernel has died."""
        file, *pipes = self._fds
        messages: list[list[bytes]] = []
        read = dict.fromkeys(STREAMS, b"")
        data = os.pread(file, _SIZE, 0)
        for message in _messages(data):
            topic, second = message[0], message[1].decode(errors="replace")
            if topic == _READ and second in read:
                read[second] += message[2]
            else:
                messages.append(message)
                read |= {name: b"" for name in STREAMS if topic == f"stream.{name}".encode()}
        if len(data) == _SIZE and 0 < (stream := _HEAD.unpack_from(data)[-1]) <= len(STREAMS):
            read[STREAMS[stream - 1]] += data[_MOVED:].rstrip(b"\0")
        texts = {name: read[name] + _available(fd) for name, fd in zip(STREAMS, pipes, strict=True)}
        return Remains(messages, {name: text.decode(errors="replace") for name, text in texts.items()})

    def close(self) -> None:
        """Closes the descriptors."""
        while self._fds:
            with suppress(OSError):
                os.close(self._fds.pop())


def _memory_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("ipybox-output")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _move(pipe: int, place: memoryview) -> int:
    return os.readv(pipe, [place])


def _available(fd: int) -> bytes:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return os.read(fd, _PIPE_BYTES) if any(events & select.POLLIN for _, events in poll.poll(0)) else b""


def _messages(data: bytes) -> Iterator[list[bytes]]:
    if len(data) != _SIZE:
        return
    half, *used = _HEAD.unpack_from(data)[:3]
    for each in (half & 1 ^ 1, half & 1):
        start = _HEAD.size + each * HALF
        yield from _parsed(memoryview(data)[start : start + min(used[each], HALF)])


def _parsed(rest: memoryview) -> Iterator[list[bytes]]:
    """Yields messages up to the first invalid one: code can write to the file."""
    with suppress(struct.error):
        while rest:
            (count,) = _COUNT.unpack_from(rest)
            if not PARTS <= count <= len(rest) // _COUNT.size:
                return
            lengths = struct.unpack_from(f"<{count}I", rest, _COUNT.size)
            rest = rest[_COUNT.size * (1 + count) :]
            if sum(lengths) > len(rest):
                return
            message: list[bytes] = []
            for length in lengths:
                message.append(bytes(rest[:length]))
                rest = rest[length:]
            yield message
