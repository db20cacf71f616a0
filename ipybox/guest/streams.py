"""The order of a kernel's output.

ipykernel buffers stdout and stderr separately, and a thread of its own would read the output of child processes and C
libraries from the file descriptors. Alternating writes would arrive as all of one stream and then all of the other, and
the output of a child process, in one of fifty cells, after the end of its cell. Forked children of the kernel itself
write to the file descriptors, too.

What is written to the file descriptors of stdout and stderr is output of the cell, too. ipykernel's own streams name
another descriptor, the one that the kernel process was started with. What code hands to a child process that way
(`subprocess.run(..., stdout=sys.stdout)`) would never reach the cell.
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

#: No pipe holds more, so that one read gets all available data.
PIPE_BYTES = 1 << 16

#: Characters of one message. Each takes at most 12 bytes as JSON, and a message can have 256 MiB.
MAX_TEXT = 1 << 22

Write = Callable[[str], int | None]


def do_nothing() -> None:
    """Does nothing, where a flush or a callback is expected."""


def keep_order(*streams: Any, on_write: Callable[[], None] = do_nothing) -> "DescriptorOutput":
    """Makes all output, including that to the streams' file descriptors, arrive in the order of writing.

    A write to one of the streams first reads the output of child processes, and flushes the stream that was written to
    before it. Each write calls `on_write`. Returns the object that collects the output of child processes.
    """
    last: list[Any] = [streams[0]]
    flushes = {id(stream): partial(flush, stream, stream.flush) for stream in streams}

    def ordered(stream: Any, write: Write) -> Write:
        def write_in_order(text: str) -> int | None:
            if last[0] is not stream:
                flushes[id(last[0])]()
                last[0] = stream
            written = write(text)
            on_write()
            return written

        return write_in_order

    writes = {id(stream): ordered(stream, stream.write) for stream in streams}
    watched = [stream for stream in streams if getattr(stream, "_fid", None) is not None]
    children = DescriptorOutput({stream: writes[id(stream)] for stream in watched})
    for stream in streams:
        stream.write = children.drained_before(writes[id(stream)])
        stream.flush = children.drained_before(flushes[id(stream)])
    children.start()
    return children


def flush(stream: Any, without_thread: Callable[[], None]) -> None:
    """Returns when the thread that sends output has sent that of the stream, or after `flush_timeout` seconds.

    In ipykernel's own flush, that thread sets an event. An interrupt of `Event.wait` at the wrong place would leave the
    lock of the event locked, and the thread would wait for it for ever. A plain lock has no such place.

    Args:
        stream: A stream of ipykernel.
        without_thread: What to call instead where there is no such thread, or this is it.
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

        ipykernel flushes both streams outside of the code: if that fails, a cell never ends, and what later cells print
        is lost. Other streams stay. https://github.com/ipython/ipykernel/issues/1119
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


class DescriptorOutput:
    """Copies the data that is written to the file descriptors of streams into the streams."""

    def __init__(self, writes: dict[Any, Write]):
        self._lock = threading.RLock()
        self._ready = select.poll()
        self._sinks: dict[int, tuple[Any, codecs.IncrementalDecoder, Write]] = {}
        for stream, write in writes.items():
            decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
            self._sinks[stream._fid] = (stream, decoder, write)
            self._ready.register(stream._fid, select.POLLIN)

    def start(self) -> None:
        """Starts a thread that collects output while no code writes or flushes."""
        if self._sinks:
            os.register_at_fork(after_in_child=self._write_to_descriptors)
            threading.Thread(target=self._watch, name="ipybox-output", daemon=True).start()

    def drained_before(self, action: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `action`, preceded by `drain`."""

        def drain_and_act(*args: Any) -> Any:
            self.drain()
            return action(*args)

        return drain_and_act

    def _write_to_descriptors(self) -> None:
        """Makes the streams of a forked child, which lacks our threads, write to their descriptors."""
        for stream, _, _ in self._sinks.values():
            stream.write = partial(write_to_descriptor, stream._original_stdstream_fd)
            stream.flush = do_nothing

    def drain(self) -> None:
        """Copies the available data."""
        with self._lock:
            for fd, _ in self._ready.poll(0):
                stream, decoder, write = self._sinks[fd]
                data = os.read(fd, PIPE_BYTES)
                stream.note_read(data)
                write(decoder.decode(data))
                # ipykernel's thread does this, too: it is the only trace of a crash in native code.
                os.write(stream._original_stdstream_copy, data)

    def _watch(self) -> None:
        poll = select.poll()
        for fd in self._sinks:
            poll.register(fd, select.POLLIN)
        while True:
            poll.poll()
            self.drain()


class GuestOutStream(OutStream):
    """A stream whose descriptor leads back to it; `DescriptorOutput` reads the other end."""

    def fileno(self) -> int:
        """Returns the descriptor that a child process can write to."""
        return cast(Any, self)._original_stdstream_fd

    def note_read(self, data: bytes) -> None:
        """Notes what was read from the descriptor, before it is written to this stream."""
        cast(Any, self).pub_thread.output.add_read(self.name, data)

    def _setup_stream_redirects(self, name: str) -> None:
        stream: Any = self
        stream._original_stdstream_fd = getattr(sys, name).fileno()
        stream._original_stdstream_copy = os.dup(stream._original_stdstream_fd)
        stream._fid, write_end = stream.pub_thread.output.pipes[name]
        os.dup2(write_end, stream._original_stdstream_fd)
        os.close(write_end)
        stream._should_watch = False  # there is no thread to end when the stream is closed

    def _flush_buffers(self) -> Generator[tuple[dict[str, Any], str]]:
        """Yields the text to send, in pieces: one message that is too large would end the connection to the kernel."""
        for parent, text in cast(Any, super())._flush_buffers():
            for start in range(0, len(text), MAX_TEXT):
                yield parent, text[start : start + MAX_TEXT]
