"""The output of an execution that succeeded, failed or timed out, with the notices of ipybox."""

from dataclasses import dataclass, field
from pathlib import Path

from ipybox.support.outputs import Display, Stream


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
        notices: Sentences of ipybox: denials of the sandbox, dropped output, lost state. Code can't write them,
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
