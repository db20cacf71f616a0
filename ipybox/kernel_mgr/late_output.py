"""Output from threads, tasks and servers that outlive their cell.

While another cell runs, it becomes part of that cell's output. Between cells it is buffered, within a limit, and the
next result starts with it.
"""

from collections import deque
from dataclasses import dataclass, field

from ipybox.kernel_mgr.messages import Message
from ipybox.kernel_mgr.output_collector import OutputCollector
from ipybox.support.sizes import format_bytes

#: Maximum bytes and number of buffered messages; the oldest ones are dropped. Output has at least 26 bytes.
MAX_LATE_BYTES = 1 << 18
MAX_MESSAGES = 10_000

TYPES = ("stream", "display_data")

LATE = "[output from earlier cells, printed after they finished{}]\n"
END = "[end of output from earlier cells]\n"


@dataclass
class LateOutput:
    """Buffers output until the next cell, and passes it on while a cell runs."""

    #: The outputs of the running cell; the owner sets it to None when the cell ends.
    running: OutputCollector | None = None
    _messages: deque[Message] = field(default_factory=deque[Message])
    _bytes: int = 0
    _dropped: int = 0

    def add(self, message: Message) -> None:
        """Adds a message that belongs to no running cell."""
        if message.type not in TYPES:
            return
        if self.running is not None:
            self.running.add(message)
            return
        # Without its buffers and most of its header, which can need far more memory than its content.
        kept = Message("iopub", {"msg_type": message.type}, {}, message.raw_content)
        self._messages.append(kept)
        self._bytes += len(kept.raw_content)
        while self._bytes > MAX_LATE_BYTES or len(self._messages) > MAX_MESSAGES:
            size = len(self._messages.popleft().raw_content)
            self._bytes -= size
            self._dropped += size

    def begin_cell(self, outputs: OutputCollector) -> None:
        """Adds buffered output, labeled, to the start of a cell's outputs, and passes later output to them."""
        if self._messages or self._dropped:
            dropped = f"; the first {format_bytes(self._dropped)} were dropped" if self._dropped else ""
            outputs.add_text(LATE.format(dropped))
            for message in self._messages:
                outputs.add(message)
            outputs.add_text(END)
            self.clear()
        self.running = outputs

    def clear(self) -> None:
        """Discards buffered output."""
        self._messages.clear()
        self._bytes = self._dropped = 0
