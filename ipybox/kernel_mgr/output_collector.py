"""Collects the output of a cell as a Jupyter front end would, without I/O.

Outputs keep the order in which they arrived. `update_display` replaces the content of a display, `clear_output`
removes all output so far. All of it is bounded, because code can send any message: at most `MAX_OUTPUT_BYTES` of
messages are held in memory. `Execution` adds messages; `KernelClient` reads the result.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ipybox.kernel_mgr.display_forms import (
    MAX_FORMS,
    as_object,
    display_of,
    joined,
    plain,
    split_unfinished,
    traceback_of,
)
from ipybox.kernel_mgr.messages import Message
from ipybox.support.bounded_json import MAX_VALUES
from ipybox.support.outputs import Clear, Display, Stream, StreamName
from ipybox.support.sizes import format_bytes

#: Maximum bytes of one cell's messages whose outputs are kept; the rest is dropped.
MAX_OUTPUT_BYTES = 256 << 20

#: Bytes counted for a display in addition to its message.
DISPLAY_BYTES = 512

#: Bytes counted for each change between stdout and stderr, because each starts another text, and for each traceback.
CHANGE_BYTES = 128

#: Maximum bytes and number of buffered messages; the oldest ones are dropped. Output has at least 26 bytes.
MAX_LATE_BYTES = 1 << 18
MAX_LATE_MESSAGES = 10_000

LATE = "[output from earlier cells, printed after they finished{}]\n"
END = "[end of output from earlier cells]\n"

#: Called with each output as it arrives, and its size: a text's characters, or the bytes counted for a display.
#: A `Clear` counts like an empty display.
OutputListener = Callable[[Stream | Display | Clear, int], object]


@dataclass(slots=True)
class StreamRun:
    """Consecutive texts of one stream."""

    name: StreamName
    texts: list[str] = field(default_factory=list[str])

    def join(self) -> str:
        """Returns the whole text and replaces its parts with it, because it can be a quarter of a gigabyte."""
        self.texts[:] = ["".join(self.texts)]
        return self.texts[0]


class OutputCollector:
    """Collects the outputs of one cell from its messages.

    Call `add` with each output message in order, then `end` with the reply, even if that arrived earlier. `outputs`
    returns the final outputs, with updates applied.
    """

    def __init__(self, on_output: OutputListener | None = None) -> None:
        self._on_output = on_output
        self._outputs: list[StreamRun | Display] = []
        #: The last update of each display id: the number of outputs before it, the new display, and its bytes.
        self._updates: dict[str, tuple[int, Display, int]] = {}
        self._places: Counter[str] = Counter()
        self._clear_before_next = False
        #: Whether the listener received an output that has not been cleared.
        self._reported = False
        #: An incomplete control sequence, and the stream that it arrived in.
        self._held_back = ""
        self._stream: StreamName = "stdout"
        #: The tracebacks that were shown. If the cell fails, the last one is its own, which the reply repeats.
        self._tracebacks: list[str] = []
        self._bytes = 0
        self._dropped = 0

    def add(self, message: Message) -> None:
        """Adds an output message; ignores other types."""
        match message.type:
            case "stream":
                name: StreamName = "stderr" if message.content.get("name") == "stderr" else "stdout"
                if self._has_room(message, len(message.raw_content) + CHANGE_BYTES * (name != self._stream)):
                    self._add_stream(name, joined(message.content.get("text", "")))
            case "display_data":
                self._add_displays(message, [message.content])
            case "execute_result":
                self._add_displays(message, [message.content], are_results=True)
            case "update_display_data":
                self._update_display(message)
            case "clear_output":
                if message.content.get("wait"):
                    self._clear_before_next = True
                else:
                    self._clear()
            case "error":
                if self._has_room(message, len(message.raw_content) + CHANGE_BYTES):
                    self._tracebacks.append(f"{traceback_of(message.content)}\n")
            case _:
                pass

    def add_text(self, text: str) -> None:
        """Adds one of ipybox's own lines, starting on a new line."""
        started = isinstance(run := self._outputs[-1] if self._outputs else None, StreamRun)
        unfinished = self._held_back or (started and not run.texts[-1].endswith("\n"))
        self._add_stream("stdout", f"\n{text}" if unfinished else text)

    def end(self, reply: Message) -> None:
        """Adds the tracebacks that the `execute_reply` does not contain, then its pages."""
        if reply.content.get("status", "ok") != "ok":
            del self._tracebacks[-1:]
        if self._tracebacks:  # at once, because there can be a million
            self._add_stream("stderr", "".join(self._tracebacks))
        self._tracebacks.clear()
        payloads = reply.content.get("payload")
        if payloads and (pages := _pages(payloads)):
            self._add_displays(reply, pages)

    def outputs(self) -> list[Stream | Display]:
        """Returns all outputs in order, with updates applied and empty displays removed."""
        held_back = [StreamRun(self._stream, [plain(self._held_back, stream=True)])] if self._held_back else []
        shown: list[StreamRun | Display] = []
        for i, output in enumerate([*self._outputs, *held_back]):
            if isinstance(output, Display):
                before, update, _ = self._updates.get(output.display_id or "", (0, output, 0))
                if (display := update if i < before else output).data:
                    shown.append(display)
            elif shown and isinstance(last := shown[-1], StreamRun) and last.name == output.name:
                last.texts.append(output.join())
            else:
                shown.append(StreamRun(output.name, [output.join()]))
        return [Stream(each.name, each.join()) if isinstance(each, StreamRun) else each for each in shown]

    def notices(self) -> list[str]:
        """Returns a sentence about dropped output."""
        if not self._dropped:
            return []
        return [
            f"{format_bytes(self._dropped)} of output was discarded: the limit is {format_bytes(MAX_OUTPUT_BYTES)} "
            f"per cell and {MAX_VALUES:,} values per display."
        ]

    def _has_room(self, message: Message, size: int) -> bool:
        """Reserves the bytes for a message, or counts it as dropped."""
        if self._clear_before_next:
            self._clear()
        if message.costly or self._bytes + size > MAX_OUTPUT_BYTES:
            self._dropped += len(message.raw_content)
            return False
        self._bytes += size
        return True

    def _add_stream(self, name: StreamName, text: str) -> None:
        self._stream = name
        text, self._held_back = split_unfinished(self._held_back + text)
        shown = plain(text, stream=True)
        if not shown:
            return
        run = self._outputs[-1] if self._outputs else None
        if not isinstance(run, StreamRun) or run.name != name:
            run = StreamRun(name)
            self._outputs.append(run)
        run.texts.append(shown)
        if self._on_output is not None:
            self._report(Stream(name, shown), len(shown))

    def _add_displays(self, message: Message, contents: Sequence[dict[str, Any]], *, are_results: bool = False) -> None:
        """Adds the displays that a message contains."""
        size = _display_size(message)
        if not self._has_room(message, size):
            return
        for content in contents:
            display = display_of(content, is_result=are_results)
            if display.display_id is not None:
                self._places[display.display_id] += 1
            self._outputs.append(display)
            if self._on_output is not None and display.data:
                self._report(display, size)

    def _update_display(self, message: Message) -> None:
        if self._clear_before_next:
            self._clear()
        update = {} if message.costly else as_object(message.content.get("transient"))
        display_id = update.get("display_id")
        places = self._places[display_id] if isinstance(display_id, str) else 0
        if not isinstance(display_id, str) or not places:  # displayed by an earlier cell, whose result is complete
            self._add_displays(message, [message.content])
            return
        _, _, replaced = self._updates.get(display_id, (0, None, 0))
        size = _display_size(message)
        self._bytes -= replaced
        # Each place shows the update.
        if not self._has_room(message, places * size):
            self._bytes += replaced
            return
        display = display_of(message.content)
        self._updates[display_id] = len(self._outputs), display, places * size
        if display.data:
            self._report(display, size)

    def _report(self, output: Stream | Display | Clear, size: int) -> None:
        if self._on_output is not None:
            self._reported = not isinstance(output, Clear)
            self._on_output(output, size)

    def _clear(self) -> None:
        self._clear_before_next = False
        self._held_back = ""
        self._outputs.clear()
        self._updates.clear()
        self._places.clear()
        self._tracebacks.clear()
        self._bytes = self._dropped = 0
        if self._reported:
            self._report(Clear(), DISPLAY_BYTES)


@dataclass
class LateOutput:
    """Output from threads, tasks and servers that outlive their cell.

    While another cell runs, it becomes part of that cell's output. Between cells it is buffered, within a limit, and
    the next result starts with it.
    """

    #: The outputs of the running cell; the owner sets it to None when the cell ends.
    running: OutputCollector | None = None
    _messages: deque[Message] = field(default_factory=deque[Message])
    _bytes: int = 0
    _dropped: int = 0

    def add(self, message: Message) -> None:
        """Adds a message that belongs to no running cell."""
        if message.type not in ("stream", "display_data"):
            return
        if self.running is not None:
            self.running.add(message)
            return
        # Without its buffers and most of its header, which can need far more memory than its content.
        kept = Message("iopub", {"msg_type": message.type}, {}, message.raw_content)
        self._messages.append(kept)
        self._bytes += len(kept.raw_content)
        while self._bytes > MAX_LATE_BYTES or len(self._messages) > MAX_LATE_MESSAGES:
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


def _display_size(message: Message) -> int:
    size = len(message.raw_content) + DISPLAY_BYTES
    return size if message.costly else max(size, message.value_bytes)


def _pages(payloads: object) -> list[dict[str, Any]]:
    """Returns the content that the kernel shows in a pager, for example for `len?`."""
    if not isinstance(payloads, list):
        return []
    pages = map(as_object, cast(list[object], payloads)[:MAX_FORMS])
    return [page for page in pages if page.get("source") == "page" and "data" in page]
