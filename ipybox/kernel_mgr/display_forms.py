"""Selects the text that represents a display, and the forms of it to save as files. Pure functions.

Text is for readers without a terminal: no control sequences, `\\n` as the only line end. Any value may arrive, because
code can send messages itself.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

from ipybox.support.outputs import Clear, Display, Result, Stream
from ipybox.support.printable import escape

#: Maximum forms of a display, and pages of a reply; further ones are dropped, because only an attack sends more.
MAX_FORMS = 100

#: Characters that are changed at once, for other threads to run between pieces.
_PIECE = 1 << 20

#: Maximum characters of an exception's message, and of a traceback, which holds the message at its end. The kernel
#: sends half as many; code can send more, and whoever shows an error escapes all of it, each time.
MAX_ERROR = 1 << 20

#: Maximum elements of HTML without content; a longer text counts as one that shows something.
MAX_HIDDEN = 1_000_000

#: Image formats that become files, with their suffixes.
IMAGE_TYPES = {"image/png": ".png", "image/jpeg": ".jpg"}

#: Other forms that become files, with their suffixes: first text, then base64.
FILE_TYPES = {"text/html": ".html", "image/svg+xml": ".svg", "text/latex": ".tex", "application/json": ".json"}
BASE64_TYPES = {"image/gif": ".gif", "image/webp": ".webp", "application/pdf": ".pdf"}

#: Forms that replace an uninformative `text/plain`, most readable first.
TEXT_TYPES = ("text/markdown", "text/latex", "application/json")

#: Names of forms, for the line that represents a display without text. The first matching one is used.
NAMES = {
    "application/vnd.plotly.v1+json": "plotly figure",
    "application/vnd.bokehjs_exec.v0+json": "bokeh figure",
    "text/html": "HTML",
    "image/svg+xml": "SVG image",
    "image/gif": "GIF image",
    "image/webp": "WebP image",
    "application/pdf": "PDF document",
    "application/javascript": "JavaScript",
}

#: The packages that render figures as PNG (`ipybox.guest.pictures`).
PACKAGES = {"plotly figure": "kaleido and Chrome", "Vega chart": "vl-convert-python"}

# The text of IPython's display objects is only their class; the text of figures is their size.
_UNINFORMATIVE = re.compile(
    r"<(IPython\.(core|lib)\.display\.\w+ object|Figure size .*|.* at 0x[0-9a-f]+)>\s*|alt\.\w+\(\.\.\.\)", re.DOTALL
)
_HIDDEN = re.compile(r"\s*<(script|style)\b", re.IGNORECASE)

# ECMA-48 control sequences: CSI, OSC (titles, links) and two-character escapes.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b]*+(?:\x07|\x1b\\)|[ -/]*+[0-Z\\^-~])")
# An unfinished one, or half a line end, at the end of a text. A longer one is not a control sequence.
_STARTED = re.compile(r"(?:\x1b(?:\[[0-?]{0,256}+[ -/]{0,16}+|\][^\x07\x1b]{0,4096}+\x1b?|[ -/]{0,16}+)?|\r)\Z")
_STARTED_LENGTH = 4100
#: Escapes for control characters outside of control sequences, and a replacement for lone surrogates.
_SHOWN = {
    chr(code): "\N{REPLACEMENT CHARACTER}" if code >= 0xD800 else escape(chr(code))
    for code in (*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000))
}
_FEW = 40
_HARMLESS = bytes([*b"\t\n\r", *range(0x20, 0x7F)])


def plain(text: str, *, stream: bool = False) -> str:
    """Returns `text` without terminal control sequences and lone surrogates, and with `\\n` line ends.

    Other control characters become escapes, except a carriage return, and in a stream a backspace: progress bars rely
    on their effect in a terminal. A `!command` writes to a terminal, which ends lines with `\\r\\n`.
    """
    if len(text) > _PIECE:
        return "".join(plain(piece, stream=stream) for piece in pieces(text))
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "\r" in text:  # much faster than a search for two characters
        text = text.replace("\r\n", "\n")
    if text.isascii() and not text.encode().translate(None, _HARMLESS):  # much faster than the expression
        return text
    found = ({*text} & _SHOWN.keys()) - ({"\b"} if stream else set())
    if len(found) > _FEW:
        return text.translate(str.maketrans({character: _SHOWN[character] for character in found}))
    for character in found:  # much faster, because there may be millions of one
        text = text.replace(character, _SHOWN[character])
    return text


def pieces(text: str) -> Iterator[str]:
    """Yields the pieces of a text, without splitting a control sequence or a line end."""
    rest = ""
    for start in range(0, len(text), _PIECE):
        piece, rest = split_unfinished(rest + text[start : start + _PIECE])
        yield piece
    yield rest


def split_unfinished(text: str) -> tuple[str, str]:
    """Splits an incomplete control sequence or line end from the end of `text`; returns both parts.

    A sequence may be split across messages: its start waits for the rest.
    """
    started = None
    if text.endswith("\r") or "\x1b" in text:
        started = _STARTED.search(text, max(0, len(text) - _STARTED_LENGTH))
    return (text, "") if started is None else (text[: started.start()], text[started.start() :])


def display_of(content: Mapping[str, Any], *, is_result: bool = False) -> Display:
    """Returns the display that a message contains."""
    data: dict[str, Any] = {}
    for mime, value in islice(as_object(content.get("data")).items(), MAX_FORMS):
        is_json = mime == "application/json" or mime.endswith("+json")
        data[mime] = value if is_json or isinstance(value, str) else joined(value)
    metadata = as_object(content.get("metadata"))
    display_id = as_object(content.get("transient")).get("display_id")
    display_id = display_id if isinstance(display_id, str) else None
    if is_result:
        count = content.get("execution_count")
        return Result(data, metadata, (), display_id, count if type(count) is int else None)
    return Display(data, metadata, (), display_id)


def text_of_all(outputs: Iterable[Stream | Display]) -> str | None:
    """Returns all text of a cell in order without its final newline, or None if there is no text."""
    pieces: list[str] = []
    for output in outputs:
        if text := text_of(output):
            # A display starts on a new line.
            if isinstance(output, Display) and pieces and not pieces[-1].endswith("\n"):
                pieces.append("\n")
            pieces.append(text)
    if not pieces:
        return None
    pieces[-1] = pieces[-1].removesuffix("\n")
    return "".join(pieces)


def text_of(output: Stream | Display | Clear) -> str:
    """Returns the text of an output: whole lines for a display, empty for an image and a `Clear`."""
    if isinstance(output, Stream):
        return output.text
    text = "" if isinstance(output, Clear) else _text_form(output)
    return f"{text.rstrip(chr(10))}\n" if text else ""


def image_of(display: Display) -> tuple[str, str] | None:
    """Returns the suffix and base64 text of the image, in its first available format."""
    for mime, suffix in IMAGE_TYPES.items():
        if text := _base64_of(display, mime):
            return suffix, text
    return None


def has_broken_image(display: Display) -> bool:
    """Returns whether the display contains an image that is not valid base64."""
    return any(display.data.get(mime) for mime in IMAGE_TYPES) and image_of(display) is None


def files_of(display: Display) -> Iterator[tuple[str, str]]:
    """Yields the suffix and text of each other form that becomes a file; base64 for `BASE64_TYPES`."""
    for mime, suffix in FILE_TYPES.items():
        text = _form(display.data, mime)
        if text and not (mime == "text/html" and _adds_nothing(text, display.data)):
            yield suffix, text
    for mime, suffix in BASE64_TYPES.items():
        if text := _base64_of(display, mime):
            yield suffix, text


def as_object(value: object) -> dict[str, Any]:
    """Returns the value if it is a JSON object, otherwise an empty dict."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def joined(value: object, between: str = "") -> str:
    """Returns a text, which the notebook format also allows as a list of lines; empty for other values."""
    lines = cast(list[object], value) if isinstance(value, list) else [value]
    return between.join(line for line in lines if isinstance(line, str))


def traceback_of(content: Mapping[str, Any]) -> str:
    """Returns the end of the traceback in an error message or a reply, with control sequences."""
    return joined(content.get("traceback"), between="\n")[-MAX_ERROR:]


def _base64_of(display: Display, mime: str) -> str:
    """Returns a form's base64 text; empty if it can't be base64."""
    text: str = display.data.get(mime, "")
    if "\n" in text:
        text = text.replace("\n", "")
    return text if text.isascii() and len(text) % 4 == 0 else ""


def _text_form(display: Display) -> str:
    data = display.data
    text: str = data.get("text/plain", "")
    if _is_informative(data):
        return "" if text.startswith("<") and image_of(display) is not None else plain(text)
    for mime in TEXT_TYPES:
        if mime in data:
            return plain(_form(data, mime))
    return "" if image_of(display) is not None else _line_for(data, display.files) or plain(text)


def _is_informative(data: Mapping[str, Any]) -> bool:
    """Whether a display's text is meaningful. An empty text can be, such as an empty line from rich."""
    return "text/plain" in data and not _UNINFORMATIVE.fullmatch(data["text/plain"])


def _line_for(data: Mapping[str, Any], files: Sequence[Path]) -> str:
    """Returns the line that represents a display without text: its kind and its file."""
    html: str = data.get("text/html", "")
    present = (mime for mime in NAMES if mime in data and (data[mime] or mime.endswith("json")))
    name = next((NAMES[mime] for mime in present if mime != "text/html" or not _shows_nothing(html)), None)
    if name is None:
        return ""
    name = "Vega chart" if name == "HTML" and "vegaEmbed" in html else name
    saved = f" saved as {files[0].name}" if files else ""
    hint = f"; with {PACKAGES[name]} installed, it is an image" if name in PACKAGES else ""
    return f"[{name}{saved}{hint}]"


def _adds_nothing(html: str, data: Mapping[str, Any]) -> bool:
    """Whether HTML only adds colors to the text, as rich's does, or shows nothing."""
    return (_is_informative(data) and html.lstrip()[:4].lower() == "<pre") or _shows_nothing(html)


def _shows_nothing(html: str) -> bool:
    """Whether HTML consists of scripts and styles only, such as the JavaScript library of plotly."""
    lowered, place = html.lower() if "<" in html else html, 0
    for _ in range(MAX_HIDDEN):
        if not (started := _HIDDEN.match(lowered, place)):
            break
        end = lowered.find(f"</{started[1]}", started.end())
        place = len(html) if end < 0 else lowered.find(">", end) + 1 or len(html)
    return place > 0 and not lowered[place:].strip()


def _form(data: Mapping[str, Any], mime: str) -> str:
    if mime not in data or mime != "application/json":
        return data.get(mime, "")
    try:
        return json.dumps(data[mime], ensure_ascii=False)
    except RecursionError:  # it was decoded at a lower stack depth, which allowed deeper nesting
        return ""
