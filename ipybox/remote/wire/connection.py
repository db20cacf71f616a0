"""HTTP/2 over the standard streams of a process: many streams over one pair of pipes, each with its own window.

The `h2` library implements and validates framing and flow control. The connection closes if the peer exceeds a window,
opens a stream that it may not open, or sends an invalid frame. Each stream buffers at most its window, so a slow reader
doesn't block other streams. The connection's window is unlimited; the number of streams, which the application
controls, bounds it.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import Any, Final, cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
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

from ipybox.remote.wire.protocol import GATEWAY, PUT, READ
from ipybox.remote.wire.stream import FRAME, Stream, StreamClosedError

logger = logging.getLogger(__name__)

#: Bytes that a stream buffers for its reader; more for gateway connections and files.
WINDOW: Final = 256 << 10
LARGE_WINDOW: Final = 4 << 20
LARGE: Final = (GATEWAY, PUT, READ)

#: Maximum concurrent streams.
MAX_STREAMS: Final = 1024

#: Maximum bytes of a request's or response's headers.
MAX_HEADERS: Final = 8 << 10

#: Seconds of CPU time above which one read is costly, and the pause after it, as a multiple of that time. Small frames
#: cost a thousand times more per byte, and the event loop also serves other nodes and sessions.
COSTLY: Final = 0.02
REST: Final = 4

#: Seconds to read what a peer sent before it stopped reading.
LAST_OUTPUT: Final = 1.0

#: Unwritten bytes above which writers wait, and above which the peer is considered not to read at all.
WRITE_BUFFER: Final = 1 << 20
MAX_WRITE_BUFFER: Final = 64 << 20


class Connection(asyncio.Protocol):
    """One end of an HTTP/2 connection over two descriptors, and the asyncio protocol of both transports.

    Args:
        client: Whether this end opens the streams.
        on_request: Called with each stream that the peer opens.
        on_closed: Called when the connection ends, for any reason.
    """

    def __init__(
        self,
        *,
        client: bool,
        on_request: Callable[[Stream], None] = lambda stream: stream.reset(),
        on_closed: Callable[[], object] = lambda: None,
    ):
        #: The protocol state machine; `do` calls its methods.
        self.h2 = H2Connection(H2Configuration(client_side=client, header_encoding="utf-8"))
        self._on_request = on_request
        self._streams: dict[int, Stream] = {}
        self._on_closed = on_closed
        self._reading: asyncio.ReadTransport | None = None
        self._writing: asyncio.WriteTransport | None = None
        #: Set while the peer has read enough, and when the connection is closed.
        self.writable = asyncio.Event()
        self.writable.set()
        self._lost = 0
        self._written = asyncio.Event()
        self._flush_scheduled = False
        self._on_raw: Callable[[bytes], bytes | None] | None = None
        #: Set when the connection ends, for any reason.
        self.closed = asyncio.Event()
        #: The peer's protocol violation, or None.
        self.violation: str | None = None
        #: Event loop time of the last receipt.
        self.last_received = asyncio.get_running_loop().time()

    async def open(self, read_fd: int, write_fd: int, on_raw: Callable[[bytes], bytes | None] | None = None) -> None:
        """Starts reading, and takes ownership of the descriptors.

        `on_raw` receives the data before HTTP/2 starts, until it returns the remainder, which belongs to HTTP/2.

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
        if self.closed.is_set():  # while connecting
            self._close_transports()

    def start(self) -> None:
        """Starts HTTP/2."""
        settings: dict[SettingCodes | int, int] = {
            SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
            SettingCodes.MAX_FRAME_SIZE: FRAME,
            SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
            SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEADERS,
        }
        if self.h2.config.client_side:
            settings[SettingCodes.ENABLE_PUSH] = 0
        self.h2.initiate_connection()
        self.h2.update_settings(settings)
        self.h2.increment_flow_control_window((1 << 31) - 1 - self.h2.inbound_flow_control_window)
        self._schedule_flush()

    def write_raw(self, data: bytes) -> None:
        """Writes data before HTTP/2 starts."""
        if self._writing is not None and not self.closed.is_set():
            self._writing.write(data)

    def close(self) -> None:
        """Closes both directions and all streams, after a last attempt to write pending data."""
        self._flush()
        self._end()

    async def wait_written(self) -> None:
        """Waits, after `close`, until pending data is written or the pipe is broken."""
        await self._written.wait()

    def request(self, path: str) -> Stream:
        """Opens a stream; raises a StreamClosedError if the connection is closed or has too many streams."""
        if self.closed.is_set():
            raise StreamClosedError
        try:
            number = self.h2.get_next_available_stream_id()
            headers = [(":method", "POST"), (":scheme", "http"), (":authority", "node"), (":path", path)]
            self.h2.send_headers(number, headers)
        except H2Error as exc:
            raise StreamClosedError from exc
        return self._add(number, path, answered=True)

    def sendable(self, stream: Stream) -> int:
        """Returns how many bytes a stream can send now; -1 if it is closed."""
        try:
            window = self.h2.local_flow_control_window(stream.number)
        except H2Error:
            return -1
        return max(0, min(window, self.h2.max_outbound_frame_size, FRAME))

    def reset(self, number: int) -> None:
        """Closes both directions of a stream."""
        self._streams.pop(number, None)
        self.do(self.h2.reset_stream, number)

    def do(self, action: Callable[..., object], *arguments: object) -> None:
        """Calls a method of `h2` and sends the frames it produces, unless the connection or the stream is closed."""
        if self.closed.is_set():
            return
        try:
            action(*arguments)
        except H2Error as exc:  # the peer has closed the stream; its reader finds out
            logger.debug("stream: %r", exc)
        self._schedule_flush()

    def ping(self) -> None:
        """Sends a ping; the reply updates `last_received`."""
        self.do(self.h2.ping, b"ipybox??")

    def _add(self, number: int, path: str, *, answered: bool) -> Stream:
        stream = self._streams[number] = Stream(self, number, path, answered=answered)
        if path in LARGE:
            self.do(self.h2.increment_flow_control_window, LARGE_WINDOW - WINDOW, number)
        self._schedule_flush()
        return stream

    def _schedule_flush(self) -> None:
        # Send all data of one loop iteration in one write: srun leaves Nagle's algorithm on, which delays a
        # second small write by 40 ms, until the first is acknowledged.
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if data := self.h2.data_to_send():
            self.write_raw(data)
        if self._writing is not None and self._writing.get_write_buffer_size() > MAX_WRITE_BUFFER:
            self._violated("it is not reading")

    def data_received(self, data: bytes) -> None:
        """Handles received data, and pauses reading after a flood of small frames."""
        begun = time.thread_time()
        self._receive(data)
        taken = time.thread_time() - begun
        if taken > COSTLY and self._reading is not None:
            self._reading.pause_reading()
            asyncio.get_running_loop().call_later(REST * taken, self._resume_reading)

    def _resume_reading(self) -> None:
        # Python 3.11.2 would read a closed pipe's descriptor, which may be another file's by now.
        if self._reading is not None and not self._reading.is_closing():
            self._reading.resume_reading()

    def _receive(self, data: bytes) -> None:
        self.last_received = asyncio.get_running_loop().time()
        if self._on_raw is not None:
            rest = self._on_raw(data)
            if rest is None or self.closed.is_set():
                return
            self._on_raw, data = None, rest
        try:
            events = self.h2.receive_data(data)
        except ProtocolError as exc:
            self._violated(str(exc) or type(exc).__name__)
            return
        for event in events:
            self._handle(event)
        self._schedule_flush()

    def _handle(self, event: Event) -> None:
        number = cast("int | None", getattr(event, "stream_id", None))
        stream = self._streams.get(number or 0)
        match event:
            case RequestReceived() if number is not None:
                headers = dict(cast("list[tuple[Any, Any]]", event.headers or []))
                self._on_request(self._add(number, str(headers.get(":path", "")), answered=False))
            case _ if not number:  # the connection's window, or settings, which may change windows
                for each in self._streams.values():
                    each.wake()
            case _ if stream is None:
                pass
            case DataReceived():
                stream.feed_data(event.data or b"", event.flow_controlled_length or 0)
            case ResponseReceived():
                stream.feed_answer()
            case WindowUpdated():
                stream.wake()
            case StreamEnded():
                stream.feed_end()
            case StreamReset():
                self._streams.pop(stream.number, None)
                stream.feed_end(reset=True)
            case _:
                pass

    def connection_lost(self, exc: Exception | None) -> None:
        """Closes both pipes when one is lost, but leaves time to read what the peer sent before it exited."""
        self._lost += 1
        if self._lost == 2:
            self._written.set()
        elif not self.closed.is_set() and (self._reading is None or not self._reading.is_closing()):
            # A peer that exited no longer reads, but its last output may still be unread.
            asyncio.get_running_loop().call_later(LAST_OUTPUT, self._end)
            return
        self._end()

    def pause_writing(self) -> None:
        """Makes writers wait."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """Lets writers continue."""
        self.writable.set()

    def _violated(self, what: str) -> None:
        self.violation = self.violation or what
        assert self._writing is not None
        self._writing.abort()
        self._end()

    def _end(self) -> None:
        """Stops reading, closes the pipes after pending data is written, and closes all streams."""
        if self.closed.is_set():
            return
        self.closed.set()
        self.writable.set()
        self._close_transports()
        for stream in tuple(self._streams.values()):
            stream.feed_end(reset=True)
        self._streams.clear()
        self._on_closed()

    def _close_transports(self) -> None:
        for transport in (self._reading, self._writing):
            if transport is not None:
                transport.close()
