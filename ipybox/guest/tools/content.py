"""Renders tool results for code in the kernel: as text, with images shown in the cell and other data saved to files.

Files go to `toolfiles/` in the kernel's working directory, which git ignores, with their tool's name and a number:
`get_chart-001.svg`. Other threads and kernels may write there concurrently. A link in its place is not followed.

https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-result
"""

import base64
import json
import logging
import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from itertools import count
from mimetypes import MimeTypes
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from ipybox.support.safe_directory import open_directory

#: Formats that a cell can show as images, by IPython's names.
SHOWN_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/jpg": "jpeg"}

#: Larger images are saved. A cell's outputs are held up to a limit, `MAX_OUTPUT_BYTES` of `output_collector`.
MAX_SHOWN_BYTES = 16 << 20

FILES_DIR = Path("toolfiles")

#: Maximum characters of a tool's name in a file name.
STEM_LENGTH = 64

# The next number to try, by stem: only a hint, because another process may have used it.
_numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(1))

logger = logging.getLogger(__name__)


def render(content: list[dict[str, Any]], tool_name: str, *, show: bool = True) -> str | None:
    """Returns the text of a tool result, or None if it has no text.

    Other content is saved to files, which the text names. With `show`, images are shown in a running cell instead.
    """
    lines: list[str] = []
    for block in content:
        text = _text(block)
        line = text if text is not None else _keep(block, tool_name, show=show)
        if line is not None:
            lines.append(line)
    return "\n".join(lines) if lines else None


def show_beside_structured(content: list[dict[str, Any]], tool_name: str) -> None:
    """Shows or saves content that came with structured content, and prints the paths of files.

    Text is dropped: it "SHOULD" repeat the structured content, and would drown the output of a loop.
    """
    for block in content:
        if block.get("type") != "text" and (line := _keep(block, tool_name, show=True)) is not None:
            _print_line(line)


def _text(block: dict[str, Any]) -> str | None:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case _:
            return None


@dataclass(frozen=True)
class _Data:
    raw: bytes
    mime_type: str
    uri: str = ""
    complaint: str = ""


def _keep(block: dict[str, Any], tool_name: str, *, show: bool) -> str | None:
    """Shows a block or saves it; returns a line that describes it, or None if it is shown."""
    if block.get("type") == "resource_link" and "uri" in block:
        return _link(block)
    data = _data(block)
    if show and _show(data):
        return None
    what = _one_line(data.mime_type, data.uri) or "data"
    try:
        path = save(data.raw, tool_name, suffix_of(data.mime_type, data.uri))
    except OSError as exc:
        return f"[{what} could not be saved and is lost: {exc}]"
    return f"[{what} saved to {path}{data.complaint}]"


def _data(block: dict[str, Any]) -> _Data:
    match block:
        case {"type": "image" | "audio", "data": str(data)}:
            return _decoded(data, block)
        case {"type": "resource", "resource": {"blob": str(data)}}:
            return _decoded(data, block["resource"])
        case {"type": "resource", "resource": {"text": str(text)}}:
            resource = block["resource"]
            return _Data(_encoded(text), _mime_type(resource) or "text/plain", str(resource.get("uri", "")))
        case _:  # of a later version of MCP, or invalid
            return _Data(json.dumps(block).encode(), "application/json")


def _decoded(data: str, described: dict[str, Any]) -> _Data:
    uri = str(described.get("uri", ""))
    try:
        return _Data(base64.b64decode("".join(data.split()), validate=True), _mime_type(described), uri)
    except ValueError as exc:
        return _Data(_encoded(data), "text/plain", uri, f" unchanged, because it is not valid base64: {exc}")


def _encoded(text: str) -> bytes:
    # JSON can hold lone surrogates.
    return text.encode(errors="surrogatepass")


def _mime_type(described: dict[str, Any]) -> str:
    """Returns the type without its parameters, or an empty string if it doesn't look like one."""
    mime_type = str(described.get("mimeType", "")).partition(";")[0].strip().lower()
    return mime_type if re.fullmatch(r"[a-z0-9][\w!#$&^.+-]*/[a-z0-9][\w!#$&^.+-]*", mime_type, re.ASCII) else ""


def _link(block: dict[str, Any]) -> str:
    details = [str(block[key]) for key in ("mimeType", "title", "description") if block.get(key)]
    if "size" in block:
        details.append(f"{block['size']} bytes")
    details_text = f" ({', '.join(details)})" if details else ""
    return _one_line(f"[resource {block.get('name') or block['uri']}: {block['uri']}{details_text}]")


def _one_line(*parts: str) -> str:
    return " ".join(" ".join(parts).split())


def _show(data: _Data) -> bool:
    image_format = SHOWN_IMAGES.get(data.mime_type)
    if image_format is None or not 0 < len(data.raw) <= MAX_SHOWN_BYTES or not _in_cell():
        return False
    from IPython import display

    module: Any = display  # not annotated
    _emit(module.display, module.Image(data.raw, format=image_format))
    return True


def _print_line(line: str) -> None:
    # The stdout of an application belongs to the application: it may be the wire of an MCP server.
    if _kernel() is not None:
        # In one write, because `print` may mix the lines of several threads.
        _emit(sys.stdout.write, f"{line}\n")
    else:
        logger.warning("%s", line)


def _emit(function: Callable[[Any], object], output: object) -> None:
    # A task's context attributes output to the cell that started it, which may have finished; its later output is
    # dropped. Without context, the output belongs to the running cell.
    Context().run(function, output)


def _in_cell() -> bool:
    """Returns whether a running cell can show output, rather than a task or thread that a cell left behind."""
    kernel = _kernel()
    # Displays of forked children of the kernel are dropped.
    return kernel is not None and kernel.session.pid == os.getpid() and kernel.shell.displayhook.exec_result is not None


def _kernel() -> Any | None:
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    return getattr(get_ipython(), "kernel", None)


def save(data: bytes, tool_name: str, suffix: str) -> Path:
    """Writes a new file in `FILES_DIR` or, if that fails, a temporary one, and returns its path.

    Raises:
        OSError: If neither can be written.
    """
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", tool_name)[:STEM_LENGTH].lstrip("-") or "tool"
    try:
        return FILES_DIR / _write_numbered(stem, suffix, data)
    except OSError:
        # Code may have changed to a directory that it can't write, and the tool call may not be repeatable.
        path = Path(tempfile.mkdtemp(prefix="toolfiles-")) / f"{stem}{suffix}"
        path.write_bytes(data)
        return path


def suffix_of(mime_type: str, uri: str = "") -> str:
    """Returns the suffix of a file of that type, with its dot. The URI is the file's origin, if known."""
    # Without the machine's own tables, so that the result is the same everywhere.
    known = MimeTypes().guess_extension(mime_type, strict=False)
    if known not in (None, ".bin"):
        return known
    with suppress(ValueError):
        named = PurePosixPath(urlsplit(uri).path).suffix
        if re.fullmatch(r"\.[A-Za-z0-9]{1,10}", named):
            return named
    # Python's table lacks many audio and video types, whose subtypes work as suffixes: wav, ogg, flac, webm.
    subtype = mime_type.rpartition("/")[2]
    return f".{subtype}" if re.fullmatch("[a-z0-9]{1,10}", subtype) else ".bin"


def _write_numbered(stem: str, suffix: str, data: bytes) -> str:
    makes = not FILES_DIR.exists()
    with open_directory(FILES_DIR, untrusted_root=Path.cwd()) as directory:
        if makes:
            directory.keep_out_of_git()
        while True:
            name = f"{stem}-{next(_numbers[stem]):03}{suffix}"
            with suppress(FileExistsError):
                directory.write_new(name, data)
                return name
