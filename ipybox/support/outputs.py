"""The outputs of a cell as applications get them: text of a stream, displays, and the value of the cell."""

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
    """The value of the cell's last expression, which is a display, too.

    Attributes:
        execution_count: The number of the cell as the kernel counts; None if the code sent something else.
    """

    execution_count: int | None = None
