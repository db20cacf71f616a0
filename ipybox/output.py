"""What an execution hands back, whether it ended well, failed or timed out: output of the code, notices of the host."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class ExecutionOutput:
    """What a cell printed and displayed, and what ipybox has to say about it.

    Attributes:
        text: All text in order, without its final newline; None if there was none. What a terminal would show no
            more, as it was overwritten by carriage returns or backspaces, is in it; only the MCP server leaves it out.
        images: Paths of the images that the cell displayed, in order.
        image_data: What was written to these paths, whatever code may make of the files meanwhile; None for images that
            are too large to be held.
        files: Paths of what else displays had beside their text, in order: HTML, SVG, LaTeX and JSON.
        notices: Sentences of ipybox: what the sandbox refused, what is missing of the output, whether state was lost.
            Code can't write here, whatever it prints.
    """

    text: str | None
    images: list[Path]
    image_data: list[bytes | None] = field(default_factory=list[bytes | None], repr=False, compare=False)
    files: list[Path] = field(default_factory=list[Path])
    notices: list[str] = field(default_factory=list[str])
