"""The structured content of a cell's tool result, and its output schema: for programs, which then parse no text.

Everything that the blocks of the result say is in it, because some clients show a model only the one or only the other.
The descriptions of the schema are not docstrings, because pydantic would take 20 ms to find these in the source.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, Field

from ipybox.kernel_mgr.display_forms import FILE_TYPES, IMAGE_TYPES
from ipybox.support.errors import CodeExecutionError
from ipybox.support.printable import printable

_MIME_TYPES = {suffix: mime_type for mime_type, suffix in (IMAGE_TYPES | FILE_TYPES).items()}


class CellError(BaseModel):
    """An error of a cell."""

    kind: Literal["exception", "timeout", "kernel_died", "other"] = Field(
        description="exception: raised by the code; timeout: the cell took too long; kernel_died: the kernel died or "
        "was reset during the cell; other: call refused, or ipybox failed"
    )
    name: str | None = Field(description="Exception class; null for other kinds")
    value: str = Field(description="Message from the exception or ipybox")
    traceback: str | None = Field(description="Traceback; null for other kinds")

    @classmethod
    def of(cls, failure: Exception, shortened: Callable[[str], str]) -> "CellError":
        """Returns the error that an exception stands for, with shortened texts."""
        if isinstance(failure, CodeExecutionError) and (raised := failure.raised) is not None:
            name, value, traceback = map(shortened, (raised.name, raised.value, raised.traceback))
            return cls(kind="exception", name=name, value=value, traceback=traceback)
        kind = "other"
        if isinstance(failure, TimeoutError):
            kind = "timeout"
        elif isinstance(failure, CodeExecutionError) and failure.output is not None:
            kind = "kernel_died"
        return cls(kind=kind, name=None, value=shortened(failure_text(failure)), traceback=None)


class SavedFile(BaseModel):
    """A file that a display was saved in."""

    path: str
    mime_type: str

    @classmethod
    def of(cls, path: Path) -> "SavedFile":
        """Returns the file at a path."""
        return cls(path=printable(path), mime_type=_MIME_TYPES[path.suffix])


class CellResult(BaseModel):
    """The result of a cell. Long texts are last, because clients may cut off the end of what a model gets."""

    images: Sequence[SavedFile]
    files: Sequence[SavedFile] = Field(description="Displayed HTML, SVG, LaTeX and JSON")
    session: str | None = Field(description="The cell's session; null if the arguments are wrong")
    kernel_restarted: bool = Field(
        description="Whether earlier state was lost since the last result, other than by `reset`"
    )
    notices: Sequence[str] = Field(description="Messages from ipybox; code can't forge them")
    full_output: str | None = Field(description="File with all text and the error, if truncated here")
    text: str = Field(description="What the code printed and displayed, without the error")
    error: CellError | None

    def content(self) -> dict[str, Any]:
        """Returns the structured content."""
        return self.model_dump(mode="json")


def refused(text: str, session: str | None) -> CellResult:
    """Returns the result of a call that failed before or outside of the execution, with its message."""
    error = CellError(kind="other", name=None, value=text, traceback=None)
    nothing: dict[str, Any] = {"text": "", "images": [], "files": [], "notices": [], "full_output": None}
    return CellResult(**nothing, error=error, session=session, kernel_restarted=False)


def failure_text(failure: Exception) -> str:
    """Returns the message of an exception as printable text, or its type if it has no message."""
    text = str(failure)
    if isinstance(failure, OSError) and failure.strerror and failure.filename:
        text = f"can't access {failure.filename}: {failure.strerror}"
    text = printable(text, lines=True)
    return text if text.strip() else type(failure).__name__


def failure_result(failure: Exception) -> CallToolResult:
    """Returns the tool result of a call that failed."""
    return CallToolResult(content=[TextContent(text=failure_text(failure))], is_error=True)
