"""Marks in a kernel's output that show where in it a tool was called.

Output and tool calls reach the application on separate ways. Therefore, a call names the last mark before it, and the
application asks for approval after it has yielded the output before that mark.
"""

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ipybox.guest.protocol import MARK
from ipybox.guest.streams import do_nothing


class OutputMarks:
    """Inserts marks, numbered from 1, into the output of a kernel.

    Args:
        session: Creates the kernel's messages.
        thread: Sends the kernel's output.
        streams: Its stdout and stderr.
    """

    def __init__(self, session: Any, thread: Any, streams: Sequence[Any]):
        self._session = session
        self._thread = thread
        self._streams = streams
        #: Collects the output of child processes.
        self.drain: Callable[[], None] = do_nothing
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._number = 0
        self._has_output = False

    def note_output(self) -> None:
        """Notes that there is output after the last mark."""
        self._has_output = True

    def mark(self) -> int:
        """Marks the end of the output until now, and returns the number of the mark. Any thread may call this.

        Without output since the last mark, returns that one.
        """
        if os.getpid() == self._process:  # a forked child writes to file descriptors, which its parent reads
            self.drain()
            with self._lock:
                if self._has_output:
                    self._has_output = False
                    self._number += 1
                    for stream in self._streams:
                        if not stream.closed:
                            self._thread.schedule(stream._flush)
                    self._thread.schedule(partial(self._send, self._number))
        return self._number

    def _send(self, number: int) -> None:
        self._session.send(self._thread, MARK, {"number": number})


def mark_output() -> int:
    """Marks the output of this kernel (`OutputMarks.mark`); returns 0 in a process that is not a kernel."""
    return 0 if _marks is None else _marks.mark()


def set_marks(marks: OutputMarks) -> None:
    """Makes `mark_output` use the marks of this process's kernel."""
    global _marks
    _marks = marks


_marks: OutputMarks | None = None
