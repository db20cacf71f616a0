"""The kernel's stdout and stderr: what is written to their file descriptors is output of the cell, too.

ipykernel's own streams name another descriptor, the one that the kernel process was started with. What code hands to a
child process that way (`subprocess.run(..., stdout=sys.stdout)`) would never reach the cell.
"""

import os
import sys
from collections.abc import Generator
from typing import Any, cast

from ipykernel.iostream import OutStream

#: Characters of one message. Each takes at most 12 bytes as JSON, and a message can have 256 MiB.
MAX_TEXT = 1 << 22


class GuestOutStream(OutStream):
    """A stream whose descriptor leads back to it; `ipybox.guest.streams` reads the other end."""

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
