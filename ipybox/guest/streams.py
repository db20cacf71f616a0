"""Keeps a kernel's output in order.

ipykernel buffers stdout and stderr separately, and reads the output of child processes and C libraries in another
thread. Alternating writes would arrive as all of one stream and then all of the other, and a child process's output, in
one of fifty cells, after the cell's end. ipykernel's own streams report the descriptor that the kernel was started
with, so what a child process writes there (`subprocess.run(..., stdout=sys.stdout)`) would never reach the cell.

Output and tool calls reach the application on separate paths. A call names the last sync marker in the output before
it, and the application requests approval only after it has yielded the output before that marker.
"""

import codecs
import os
import select
import sys
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, cast

from ipykernel.iostream import IOPubThread, OutStream
from jupyter_client.session import DELIM
from tornado.ioloop import IOLoop

from ipybox.guest.kernel_output import KernelOutput
from ipybox.guest.process import do_nothing
from ipybox.guest.protocol import MARK, MAX_MESSAGE_BYTES

#: Maximum characters of one message. Each takes at most 12 bytes as JSON, and a message can have 256 MiB.
MAX_TEXT = 1 << 22

#: Maximum bytes of a message that the kernel sends; the gateway adds some.
MAX_SENT = MAX_MESSAGE_BYTES - (1 << 16)

#: Messages that may wait for the output thread before the sender does.
MAX_WAITING = 1000

#: Seconds to wait for the output thread.
TIMEOUT = 10.0


def write_to_descriptor(fd: int, text: str) -> int:
    """Writes text to a file descriptor as a stream does, unbuffered."""
    data = memoryview(text.encode(errors="replace"))
    while data:
        data = data[os.write(fd, data) :]
    return len(text)


class StandardStreams:
    """The kernel's own `sys.stdout` and `sys.stderr`, which replace unusable streams."""

    def __init__(self) -> None:
        self._own: dict[str, Any] = {name: getattr(sys, name) for name in ("stdout", "stderr")}
        self._publishers = {name: getattr(stream, "pub_thread", None) for name, stream in self._own.items()}

    def restore(self) -> None:
        """Resets streams that code closed, set to None or replaced by unusable objects, and reports that on stderr.

        ipykernel flushes both streams outside of the code: if that fails, the cell never ends, and the output of later
        cells is lost. Usable streams are kept. https://github.com/ipython/ipykernel/issues/1119
        """
        faults = {name: fault for name, own in self._own.items() if (fault := _fault(getattr(sys, name, None), own))}
        for name, own in self._own.items() if faults else ():
            if own.closed:
                own.pub_thread = self._publishers[name]
            if name in faults:
                setattr(sys, name, own)
        for name, fault in faults.items():
            self._own["stderr"].write(f"sys.{name} was reset because the code left it {fault}\n")


def _fault(stream: Any, own: Any) -> str | None:
    """Returns why a stream is unusable for the kernel, or None."""
    if stream is own:
        return "closed" if own.closed else None
    if stream is None:
        return "set to None"
    try:
        if getattr(stream, "closed", False):
            return "closed"
        stream.write("")
        stream.flush()
    except Exception as error:
        return f"replaced by an object that can't be written to and flushed ({type(error).__name__})"
    return None


class OutputThread(IOPubThread):
    """Sends all of a kernel's output in the order of writing, with sync markers in it, numbered from 1.

    It also sends what others write to the file descriptors of the streams. A write to a stream first waits for what is
    there, and flushes the stream that was written to before.
    """

    def __init__(self, output: KernelOutput, session: Any):
        cast(Any, super()).__init__(output, session=session)
        self._output = output
        self._session = session
        self._streams: dict[int, tuple[Any, codecs.IncrementalDecoder]] = {}
        self._ready = select.poll()
        self._last: Any = None
        self._lock = threading.Lock()
        self._number = 0
        #: Whether there is output after the last marker.
        self.has_output = False

    def start(self) -> None:
        """Starts the thread and opens its socket now, before code can use up all descriptors."""
        global _thread
        cast(Any, super()).start()
        cast(Any, self).schedule(lambda: cast(Any, self)._event_pipe)
        os.register_at_fork(after_in_child=self._write_to_descriptors)
        _thread = self

    def add_stream(self, stream: Any, name: str) -> int:
        """Sends what others write to a stream's descriptor from now on, and returns the descriptor to write to."""
        fd, write_end = self._output.pipes[name]
        self._streams[fd] = stream, codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._ready.register(fd, select.POLLIN)
        self._last = stream
        cast(Any, self).schedule(lambda: cast(Any, self).io_loop.add_handler(fd, self._drain, IOLoop.READ))
        return write_end

    def run(self, action: Callable[[], object]) -> None:
        """Runs an action in this thread, if it is alive, and waits for it, at most `TIMEOUT` seconds.

        ipykernel waits for an event to flush a stream. An interrupt at the wrong place in `Event.wait` would leave the
        event's lock locked, and the thread would wait for it forever. A plain lock has no such place.
        """
        thread: threading.Thread = cast(Any, self).thread
        if not thread.is_alive() or thread is threading.current_thread():
            action()
            return
        done = threading.Lock()
        done.acquire()
        cast(Any, self).schedule(action)
        cast(Any, self).schedule(done.release)
        if not done.acquire(timeout=TIMEOUT):
            print("the kernel could not send its output in time", file=sys.__stderr__)

    def switch_to(self, stream: Any) -> None:
        """Sends the output before a write to a stream, except for the stream's own."""
        self.drain()
        if self._last is not stream:
            self.run(self._last._flush)
            self._last = stream

    def drain(self) -> None:
        """Sends the data that is available from the file descriptors."""
        try:
            ready = bool(self._ready.poll(0))
        except RuntimeError:  # another thread polls at this moment
            ready = True
        if ready:
            self.run(self._drain)

    def mark(self) -> int:
        """Returns the number of a new marker at the end of the output, or of the last one if no output followed it.

        Any thread may call this.
        """
        if cast(Any, self)._is_master_process():  # a forked child writes to descriptors, which its parent reads
            self.drain()
            with self._lock:
                if self.has_output:
                    self.has_output = False
                    self._number += 1
                    cast(Any, self).schedule(self._flush)
                    send = partial(self._session.send, self, MARK, {"number": self._number})
                    cast(Any, self).schedule(send)
        return self._number

    def send_multipart(self, *args: Any, **kwargs: Any) -> None:
        """Sends a message. In this thread, which streams use, it has been sent when this returns."""
        if threading.current_thread() is cast(Any, self).thread:
            self._really_send(*args, **kwargs)
            return
        cast(Any, super()).send_multipart(*args, **kwargs)
        self.has_output = True
        if len(cast(Any, self)._events) > MAX_WAITING:
            self.run(do_nothing)

    def _really_send(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        if cast(Any, self)._is_master_process():
            msg = [*map(bytes, msg)]  # a buffer can have large items
            if (size := sum(map(len, msg))) > MAX_SENT:
                msg = self._oversize_notice(msg, size)
            cast(Any, super())._really_send(msg, *args, **kwargs)

    def _oversize_notice(self, msg: list[bytes], size: int) -> list[bytes]:
        """Returns the notice to send instead of a message that is too large for the connection."""
        parent = self._session.unpack(msg[msg.index(DELIM) + 3])
        text = f"a display of {size >> 20} MiB was discarded here: it exceeds the message size limit\n"
        message = self._session.msg("stream", {"name": "stderr", "text": text}, parent=parent)
        return self._session.serialize(message, ident=b"stream.stderr")

    def _flush(self) -> None:
        for stream, _ in self._streams.values():
            if not stream.closed:
                stream._flush()

    def _drain(self, *_event: object) -> None:
        poll = select.poll()  # its own, because no two threads can use one at once
        for fd in self._streams:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(0):
            stream, decoder = self._streams[fd]
            self._flush()
            self.has_output = True  # before the pipe is empty, as another thread may see
            self._output.read(stream.name, partial(self._send_read, stream, decoder))

    def _send_read(self, stream: Any, decoder: codecs.IncrementalDecoder, data: bytes) -> None:
        content = {"name": stream.name, "text": decoder.decode(data)}
        message = self._session.msg("stream", content, parent=stream.parent_header)
        self._session.send(self, message, ident=stream.topic)
        # ipykernel also does this: it is the only trace of a crash in native code.
        os.write(stream._original_stdstream_copy, data)

    def _write_to_descriptors(self) -> None:
        """Makes the streams of a forked child, which lacks our threads, write to their descriptors."""
        for stream, _ in self._streams.values():
            stream.write = partial(write_to_descriptor, stream._original_stdstream_fd)
            stream.flush = do_nothing


_thread: OutputThread | None = None


def mark_output() -> int:
    """Returns the number of a marker at the end of this kernel's output; 0 in a process that is not a kernel."""
    return 0 if _thread is None else _thread.mark()


class GuestOutStream(OutStream):
    """A stream whose descriptor leads back to it, and whose output is in order."""

    pub_thread: OutputThread | None
    #: The number of characters that have been written since the last flush.
    _unsent = 0

    def fileno(self) -> int:
        """Returns the descriptor that a child process can write to."""
        return cast(Any, self)._original_stdstream_fd

    def write(self, string: str) -> int | None:
        """Writes text after all earlier output."""
        if (thread := self.pub_thread) is None:
            return cast(Any, super()).write(string)  # which fails
        thread.switch_to(self)
        written: int | None = cast(Any, super()).write(string)
        thread.has_output = True
        self._unsent += len(string)
        if self._unsent > MAX_TEXT:
            thread.run(cast(Any, self)._flush)
        return written

    def flush(self) -> None:
        """Waits until all output has been sent."""
        if self.pub_thread is not None:
            self.pub_thread.drain()
            self.pub_thread.run(cast(Any, self)._flush)

    def _setup_stream_redirects(self, name: str) -> None:
        stream: Any = self
        stream._original_stdstream_fd = getattr(sys, name).fileno()
        stream._original_stdstream_copy = os.dup(stream._original_stdstream_fd)
        # The write end stays open: code can close the descriptor, and a pipe without writers is always ready.
        os.dup2(stream.pub_thread.add_stream(stream, name), stream._original_stdstream_fd)
        stream._should_watch = False  # there is no thread to end when the stream is closed

    def _flush_buffers(self) -> Generator[tuple[dict[str, Any], str]]:
        """Yields the text to send, in pieces: one message that is too large would end the connection to the kernel."""
        self._unsent = 0
        for parent, text in cast(Any, super())._flush_buffers():
            for start in range(0, len(text), MAX_TEXT):
                yield parent, text[start : start + MAX_TEXT]
