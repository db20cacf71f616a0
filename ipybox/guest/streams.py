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

from ipykernel.iostream import OutStream

from ipybox.guest.process import do_nothing
from ipybox.guest.protocol import MARK

#: Maximum characters of one message. Each takes at most 12 bytes as JSON, and a message can have 256 MiB.
MAX_TEXT = 1 << 22


def flush(stream: Any, without_thread: Callable[[], None]) -> None:
    """Waits until the output thread has sent the stream's output, at most `flush_timeout` seconds.

    ipykernel's own flush waits for an event. An interrupt at the wrong place in `Event.wait` would leave the event's
    lock locked, and the thread would wait for it forever. A plain lock has no such place.

    Calls `without_thread` instead if there is no such thread, or this is it.
    """
    publisher = stream.pub_thread
    if publisher is None or not publisher.thread.is_alive() or publisher.thread is threading.current_thread():
        without_thread()
        return
    sent = threading.Lock()
    sent.acquire()
    publisher.schedule(stream._flush)
    publisher.schedule(sent.release)
    if not sent.acquire(timeout=stream.flush_timeout):
        print("the kernel could not send its output in time", file=sys.__stderr__)


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


class OutputOrder:
    """Makes all of a kernel's output arrive in the order of writing, and inserts sync markers, numbered from 1.

    A write to a stream first reads what others have written to the streams' file descriptors, and flushes the stream
    that was written to before. A thread reads the descriptors while no code writes or flushes.
    """

    def __init__(self, session: Any, thread: Any, *streams: Any):
        self._session = session
        self._thread = thread
        self._streams = streams
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._number = 0
        self._has_output = False
        self._last = streams[0]
        self._writes = {stream: stream.write for stream in streams}
        self._flushes = {stream: partial(flush, stream, stream.flush) for stream in streams}
        self._ready = select.poll()
        self._sinks: dict[int, tuple[Any, codecs.IncrementalDecoder]] = {}
        for stream in streams:
            stream.write = partial(self._drain_and, partial(self._write, stream))
            stream.flush = partial(self._drain_and, self._flushes[stream])
            if (fd := getattr(stream, "_fid", None)) is not None:
                self._sinks[fd] = (stream, codecs.getincrementaldecoder("utf-8")(errors="replace"))
                self._ready.register(fd, select.POLLIN)
        if self._sinks:
            os.register_at_fork(after_in_child=self._write_to_descriptors)
            threading.Thread(target=self._watch, name="ipybox-output", daemon=True).start()

    def record_output(self) -> None:
        """Records that there is output after the last marker."""
        self._has_output = True

    def mark(self) -> int:
        """Returns the number of a new marker at the end of the output, or of the last one if no output followed it.

        Any thread may call this.
        """
        if os.getpid() == self._process:  # a forked child writes to file descriptors, which its parent reads
            self._drain()
            with self._lock:
                if self._has_output:
                    self._has_output = False
                    self._number += 1
                    for stream in self._streams:
                        if not stream.closed:
                            self._thread.schedule(stream._flush)
                    send = partial(self._session.send, self._thread, MARK, {"number": self._number})
                    self._thread.schedule(send)
        return self._number

    def _write(self, stream: Any, text: str) -> int | None:
        if self._last is not stream:
            self._flushes[self._last]()
            self._last = stream
        written = self._writes[stream](text)
        self.record_output()
        return written

    def _drain_and(self, action: Callable[..., Any], *args: Any) -> Any:
        self._drain()
        return action(*args)

    def _drain(self) -> None:
        """Copies the data that is available from the file descriptors."""
        with self._lock:
            for fd, _ in self._ready.poll(0):
                stream, decoder = self._sinks[fd]
                data = self._thread.output.read(stream.name)
                self._write(stream, decoder.decode(data))
                # ipykernel's thread also does this: it is the only trace of a crash in native code.
                os.write(stream._original_stdstream_copy, data)

    def _watch(self) -> None:
        poll = select.poll()
        for fd in self._sinks:
            poll.register(fd, select.POLLIN)
        while True:
            poll.poll()
            self._drain()

    def _write_to_descriptors(self) -> None:
        """Makes the streams of a forked child, which lacks our threads, write to their descriptors."""
        for stream, _ in self._sinks.values():
            stream.write = partial(write_to_descriptor, stream._original_stdstream_fd)
            stream.flush = do_nothing


def mark_output() -> int:
    """Returns the number of a marker at the end of this kernel's output; 0 in a process that is not a kernel."""
    return 0 if _order is None else _order.mark()


def order_output(kernel: Any, *streams: Any) -> None:
    """Keeps the order of all output of this process's kernel."""
    global _order
    _order = OutputOrder(kernel.session, kernel.iopub_thread, *streams)
    kernel.iopub_thread.on_output = _order.record_output


_order: OutputOrder | None = None


class GuestOutStream(OutStream):
    """A stream whose descriptor leads back to it; `OutputOrder` reads the other end."""

    def fileno(self) -> int:
        """Returns the descriptor that a child process can write to."""
        return cast(Any, self)._original_stdstream_fd

    def _setup_stream_redirects(self, name: str) -> None:
        stream: Any = self
        stream._original_stdstream_fd = getattr(sys, name).fileno()
        stream._original_stdstream_copy = os.dup(stream._original_stdstream_fd)
        # The write end stays open: code can close the descriptor, and a pipe without writers is always ready.
        stream._fid, write_end = stream.pub_thread.output.pipes[name]
        os.dup2(write_end, stream._original_stdstream_fd)
        stream._should_watch = False  # there is no thread to end when the stream is closed

    def _flush_buffers(self) -> Generator[tuple[dict[str, Any], str]]:
        """Yields the text to send, in pieces: one message that is too large would end the connection to the kernel."""
        for parent, text in cast(Any, super())._flush_buffers():
            for start in range(0, len(text), MAX_TEXT):
                yield parent, text[start : start + MAX_TEXT]
