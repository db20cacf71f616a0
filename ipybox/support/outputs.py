"""The outputs of a cell: text of a stream, displays, the value of the cell, and all of them with ipybox's notices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

StreamName = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class Stream:
    """Text that code wrote to stdout or stderr, up to the next output of another kind.

    Attributes:
        name: `stdout` or `stderr`; tracebacks that code shows itself count as `stderr`.
        text: The text with all its newlines, without control sequences. Carriage returns and backspaces stay, because
            progress bars rely on them, except those of a line's end, which is `\\n`.
    """

    name: StreamName
    text: str


@dataclass(frozen=True, slots=True)
class Clear:
    """All output of the cell so far was removed, as by `clear_output()`. It arrives in chunks only."""


@dataclass(frozen=True, slots=True)
class Display:
    """What code displayed, such as a table, an image or a chart, in all forms that the code sent (its MIME bundle).

    Attributes:
        data: The forms by MIME type, as the code sent them: untrusted, with control sequences and lone surrogates, if
            the code sent some. JSON (`application/json` and types that end in `+json`) is a value, any other form a
            `str`, which is base64 for binary data such as images, and empty if the code sent something else.
        metadata: What the code sent in addition, such as the width of an image.
        files: Paths of the files that the forms were saved in: an image first, then its other forms. Empty
            in a chunk, because files are saved when the cell ends.
        display_id: The id with which code can update the display. A chunk with an id may replace an earlier one.
    """

    data: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    files: tuple[Path, ...] = ()
    display_id: str | None = None


@dataclass(frozen=True, slots=True)
class Result(Display):
    """The value of the cell's last expression, which is also a display.

    Attributes:
        execution_count: The number of the cell as the kernel counts; None if the code sent something else.
    """

    execution_count: int | None = None


@dataclass(frozen=True)
class ExecutionOutput:
    """The output of a cell, and ipybox's notices about it.

    Attributes:
        text: All text in order, without its final newline; None if there is no text. It contains text that a terminal
            would no longer show, because carriage returns or backspaces overwrote it; only the MCP server removes that.
        images: Paths of the images that the cell displayed, in order.
        image_data: The bytes that were written to these paths, even if code changes the files later; None for images
            that are too large to be kept in memory.
        files: Paths of the other rich forms of displays, in order: HTML, SVG, LaTeX, JSON, GIF, WebP and PDF.
        notices: ipybox's own messages: sandbox denials, dropped output, lost state. Code can't write them,
            whatever it prints.
        outputs: What the cell printed and displayed, in order: a `Stream` for each run of text on stdout or stderr, a
            `Display` for each display, and a `Result` for the value of its last expression. `text`, `images` and
            `files` are views of the same data.
        kernel_restarted: Whether the kernel was replaced since the last result, so that variables, imports and
            definitions of earlier cells are lost. A reset that the application asked for does not count.
    """

    text: str | None
    images: list[Path]
    image_data: list[bytes | None] = field(default_factory=list[bytes | None], repr=False, compare=False)
    files: list[Path] = field(default_factory=list[Path])
    notices: list[str] = field(default_factory=list[str])
    outputs: tuple[Stream | Display, ...] = field(default=(), repr=False, compare=False)
    kernel_restarted: bool = field(default=False, repr=False, compare=False)


@dataclass(frozen=True)
class ExecutionResult(ExecutionOutput):
    """The output of a cell that `KernelClient` executed."""
