"""HTTP/2 over the standard streams of a process: many streams in one pair of pipes, each with a window of its own.

The `h2` library does framing and flow control, and checks them: a peer that sends more than a window allows, opens a
stream that it may not open, or breaks the format has its connection closed. A stream buffers at most its window, so
that a reader that is slow holds up no other stream. The window of the connection is unlimited: the number of streams,
which the application determines, bounds it.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any, Final, cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error, ProtocolError
from h2.settings import SettingCodes

from ipybox.remote.wire.stream import Stream, StreamClosedError

logger = logging.getLogger(__name__)

#: Bytes that a stream accepts before they are read; for connections to the gateway, which have much output, more.
WINDOW: Final = 256 << 10
LARGE_WINDOW: Final = 4 << 20

#: Bytes of one frame.
FRAME: Final = 64 << 10

#: Streams at a time.
MAX_STREAMS: Final = 1024

#: Bytes of the headers of one request or response.
MAX_HEADERS: Final = 8 << 10

#: Bytes that wait to be written when writers wait, too, and when the peer counts as one that does not read at all.
WRITE_BUFFER: Final = 1 << 20
MAX_WRITE_BUFFER: Final = 64 << 20


class Connection(asyncio.Protocol):
    """One end of an HTTP/2 connection over two descriptors, from `open` to `close`; the protocol of both transports.

    Args:
        client: Whether this end opens the streams.
        on_request: Called with each stream that the peer opens.
        on_closed: Called at the end of the connection, whatever its reason.
    """

    def __init__(
        self,
        *,
        client: bool,
        on_request: Callable[[Stream], None] = lambda stream: stream.reset(),
        on_closed: Callable[[], object] = lambda: None,
    ):
        self._h2 = H2Connection(H2Configuration(client_side=client, header_encoding="utf-8"))
        self._on_request = on_request
        self._streams: dict[int, Stream] = {}
        self._on_closed = on_closed
        self._reading: asyncio.ReadTransport | None = None
        self._writing: asyncio.WriteTransport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = 0
        self._written = asyncio.Event()
        self._flush_scheduled = False
        self._on_raw: Callable[[bytes], bytes | None] | None = None
        #: Set at the end of the connection, whatever its reason.
        self.closed = asyncio.Event()
        #: What the peer did wrong; None if it did nothing wrong.
        self.violation: str | None = None
        #: The time of the event loop at which something was received.
        self.last_received = asyncio.get_running_loop().time()

    async def open(self, read_fd: int, write_fd: int, on_raw: Callable[[bytes], bytes | None] | None = None) -> None:
        """Starts to read; takes ownership of the descriptors.

        Args:
            read_fd: Where to read.
            write_fd: Where to write.
            on_raw: Gets what is read before HTTP/2 starts, until it returns the rest that belongs to HTTP/2.

        Raises:
            OSError, ValueError: If they are not pipes, sockets or terminals.
        """
        self._on_raw = on_raw
        loop = asyncio.get_running_loop()
        write_file, read_file = os.fdopen(write_fd, "wb", 0), os.fdopen(read_fd, "rb", 0)
        try:
            self._writing, _ = await loop.connect_write_pipe(lambda: self, write_file)
            self._writing.set_write_buffer_limits(WRITE_BUFFER)
            self._reading, _ = await loop.connect_read_pipe(lambda: self, read_file)
        except BaseException:
            self._end()
            write_file.close()
            read_file.close()
            raise
        if self.closed.is_set():  # meanwhile
            self._close_transports()

    def start(self) -> None:
        """Starts HTTP/2."""
        settings: dict[SettingCodes | int, int] = {
            SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
            SettingCodes.MAX_FRAME_SIZE: FRAME,
            SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
            SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEADERS,
        }
        if self._h2.config.client_side:
            settings[SettingCodes.ENABLE_PUSH] = 0
        self._h2.initiate_connection()
        self._h2.update_settings(settings)
        self._h2.increment_flow_control_window((1 << 31) - 1 - self._h2.inbound_flow_control_window)
        self._schedule_flush()

    def write_raw(self, data: bytes) -> None:
        """Writes data before HTTP/2 starts."""
        if self._writing is not None and not self.closed.is_set():
            self._writing.write(data)

    def close(self) -> None:
        """Closes both directions, after a last attempt to write what waits. All streams end."""
        self._flush()
        self._end()

    async def wait_written(self) -> None:
        """Waits, after `close`, until everything is written, or nothing more can be."""
        if self._writing is not None:
            await self._written.wait()

    def request(self, path: str, *, large: bool = False) -> Stream:
        """Opens a stream.

        Args:
            path: What the peer connects it to.
            large: Whether it gets a large window.

        Raises:
            StreamClosedError: If the connection is closed, or has too many streams.
        """
        if self.closed.is_set():
            raise StreamClosedError
        try:
            number = self._h2.get_next_available_stream_id()
            headers = [(":method", "POST"), (":scheme", "http"), (":authority", "node"), (":path", path)]
            self._h2.send_headers(number, headers)
        except H2Error as exc:
            raise StreamClosedError from exc
        if large:
            self._enlarge(number)
        stream = self._streams[number] = Stream(self, number, path)
        self._schedule_flush()
        return stream

    def respond(self, number: int) -> None:
        """Answers a request."""
        self._do(lambda: self._h2.send_headers(number, [(":status", "200")]))

    def enlarge(self, number: int) -> None:
        """Gives a stream of the peer a large window."""
        self._do(lambda: self._enlarge(number))

    def sendable(self, stream: Stream) -> int:
        """Returns how many bytes a stream can send now; -1 if it is closed."""
        if self.closed.is_set():
            return -1
        try:
            window = self._h2.local_flow_control_window(stream.number)
        except H2Error:
            return -1
        return max(0, min(window, self._h2.max_outbound_frame_size, FRAME))

    def send(self, number: int, data: bytes) -> None:
        """Sends data that the windows allow."""
        self._do(lambda: self._h2.send_data(number, data))

    def end(self, number: int) -> None:
        """Ends this side of a stream."""
        self._do(lambda: self._h2.end_stream(number))

    def reset(self, number: int) -> None:
        """Ends both sides of a stream."""
        self._streams.pop(number, None)
        self._do(lambda: self._h2.reset_stream(number))

    def acknowledge(self, number: int, size: int) -> None:
        """Notes that data was read, which makes room for more."""
        if size:
            self._do(lambda: self._h2.acknowledge_received_data(size, number))

    def ping(self) -> None:
        """Asks the peer for a sign of life, which updates `last_received`."""
        self._do(lambda: self._h2.ping(b"ipybox??"))

    async def writable(self) -> None:
        """Waits until the peer has read enough, or never will."""
        await self._writable.wait()

    def _enlarge(self, number: int) -> None:
        self._h2.increment_flow_control_window(LARGE_WINDOW - WINDOW, number)

    def _do(self, action: Callable[[], object]) -> None:
        """Does something with the connection, unless that or the stream is closed."""
        if self.closed.is_set():
            return
        try:
            action()
        except H2Error as exc:  # the peer has closed the stream, which its reader learns
            logger.debug("stream: %r", exc)
        self._schedule_flush()

    def _schedule_flush(self) -> None:
        # What one turn of the loop sends goes out in one write: srun leaves Nagle's algorithm on, with which a
        # second small write waits 40 ms for the acknowledgment of the first one.
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if data := self._h2.data_to_send():
            self.write_raw(data)
        if self._writing is not None and self._writing.get_write_buffer_size() > MAX_WRITE_BUFFER:
            self._violated("it is not reading")

    def data_received(self, data: bytes) -> None:
        """Handles what was read."""
        self.last_received = asyncio.get_running_loop().time()
        if self._on_raw is not None:
            rest = self._on_raw(data)
            if rest is None or self.closed.is_set():
                return
            self._on_raw, data = None, rest
        try:
            events = self._h2.receive_data(data)
        except ProtocolError as exc:
            self._violated(str(exc) or type(exc).__name__)
            return
        for event in events:
            self._handle(event)
        self._schedule_flush()

    def _handle(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            self._take_request(event)
        elif isinstance(event, ConnectionTerminated):
            self._end()
        elif isinstance(event, WindowUpdated) and not event.stream_id:
            self._wake_all()
        elif (number := cast("int | None", getattr(event, "stream_id", None))) is None:
            self._wake_all()  # settings, which may change windows
        elif (stream := self._streams.get(number)) is not None:
            self._pass_on(event, stream)

    def _pass_on(self, event: Event, stream: Stream) -> None:
        if isinstance(event, DataReceived):
            stream.take(event.data or b"", event.flow_controlled_length or 0)
        elif isinstance(event, ResponseReceived):
            stream.take_answer()
        elif isinstance(event, WindowUpdated):
            stream.wake()
        elif isinstance(event, StreamEnded):
            stream.take_end()
        elif isinstance(event, StreamReset):
            self._streams.pop(stream.number, None)
            stream.take_end(reset=True)

    def _take_request(self, event: RequestReceived) -> None:
        assert event.stream_id is not None
        headers = dict(cast("list[tuple[Any, Any]]", event.headers or []))
        stream = self._streams[event.stream_id] = Stream(
            self, event.stream_id, str(headers.get(":path", "")), answered=False
        )
        self._on_request(stream)

    def _wake_all(self) -> None:
        for stream in self._streams.values():
            stream.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Closes both pipes when one of them has ended; when both have, everything is written that could be."""
        self._lost += 1
        if self._lost == 2:
            self._written.set()
        self._end()

    def pause_writing(self) -> None:
        """Makes writers wait."""
        if not self.closed.is_set():
            self._writable.clear()

    def resume_writing(self) -> None:
        """Lets writers go on."""
        self._writable.set()

    def _violated(self, what: str) -> None:
        self.violation = self.violation or what
        if self._writing is not None:
            self._writing.abort()
        self._end()

    def _end(self) -> None:
        """Stops reading, closes the pipes when everything is written, and ends all streams."""
        if self.closed.is_set():
            return
        self.closed.set()
        self._writable.set()
        self._close_transports()
        for stream in tuple(self._streams.values()):
            stream.take_end(reset=True)
        self._streams.clear()
        self._on_closed()

    def _close_transports(self) -> None:
        for transport in (self._reading, self._writing):
            if transport is not None:
                transport.close()
