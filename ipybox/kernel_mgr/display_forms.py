"""The forms of a display: which text stands for it, and which of its forms become files. Pure functions.

Any value may arrive, because code can send messages itself.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ipybox.kernel_mgr.outputs import Clear, Display, Result, Stream
from ipybox.kernel_mgr.plain_text import plain

#: Image formats that become files, with their suffixes.
IMAGE_TYPES = {"image/png": ".png", "image/jpeg": ".jpg"}

#: Other forms of a display that become files, with their suffixes.
FILE_TYPES = {"text/html": ".html", "image/svg+xml": ".svg", "text/latex": ".tex", "application/json": ".json"}

#: Forms that replace an uninformative `text/plain`, most readable first.
TEXT_TYPES = ("text/markdown", "text/latex", "application/json", "text/html", "image/svg+xml")

# The text of IPython's display objects is only their class, that of figures their size.
_UNINFORMATIVE = re.compile(r"<(IPython\.core\.display\.\w+ object|Figure size .*|.* at 0x[0-9a-f]+)>\s*", re.DOTALL)


def display_of(content: Mapping[str, Any], *, is_result: bool = False) -> Display:
    """Returns the display that a message contains."""
    data = {mime: value if _is_json(mime) else joined(value) for mime, value in object_of(content.get("data")).items()}
    metadata = object_of(content.get("metadata"))
    display_id = object_of(content.get("transient")).get("display_id")
    display_id = display_id if isinstance(display_id, str) else None
    if is_result:
        count = content.get("execution_count")
        return Result(data, metadata, (), display_id, count if type(count) is int else None)
    return Display(data, metadata, (), display_id)


def text_of(output: Stream | Display | Clear) -> str:
    """Returns the text that stands for an output; a display has lines of its own, an image and a `Clear` no text."""
    if isinstance(output, Stream):
        return output.text
    if isinstance(output, Clear):
        return ""
    text = _text_form(output.data, has_image=image_of(output) is not None)
    return f"{text.rstrip(chr(10))}\n" if text else ""


def image_of(display: Display) -> tuple[str, str] | None:
    """Returns the suffix and the base64 text of the image; several formats of one image are one image."""
    for mime, suffix in IMAGE_TYPES.items():
        text = display.data.get(mime, "")
        if "\n" in text:
            text = text.replace("\n", "")
        if text and text.isascii() and len(text) % 4 == 0:
            return suffix, text
    return None


def has_broken_image(display: Display) -> bool:
    """Returns whether there is a text where an image should be, but no base64 text."""
    return any(display.data.get(mime) for mime in IMAGE_TYPES) and image_of(display) is None


def files_of(display: Display) -> Iterator[tuple[str, str]]:
    """Yields the suffixes and texts of the other forms that become files."""
    for mime, suffix in FILE_TYPES.items():
        if text := _form(display.data, mime):
            yield suffix, text


def object_of(value: object) -> dict[str, Any]:
    """Returns an object of a message; an empty one in place of any other value."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def joined(value: object, between: str = "") -> str:
    """Returns a text of a message, for which the notebook format allows a list of lines; empty for any other value."""
    lines = cast(list[object], value) if isinstance(value, list) else [value]
    return between.join(line for line in lines if isinstance(line, str))


def _is_json(mime: str) -> bool:
    return mime == "application/json" or mime.endswith("+json")


def _text_form(data: Mapping[str, Any], *, has_image: bool) -> str:
    text: str = data.get("text/plain", "")
    if text and not _UNINFORMATIVE.fullmatch(text):
        return plain("" if has_image and text.startswith("<") else text)
    for mime in TEXT_TYPES:
        if mime in data:
            return plain(_form(data, mime))
    return "" if has_image else plain(text)


def _form(data: Mapping[str, Any], mime: str) -> str:
    """Returns one form of a display as text, or an empty text."""
    if mime not in data:
        return ""
    if mime != "application/json":
        return data[mime]
    try:
        return json.dumps(data[mime], ensure_ascii=False)
    except RecursionError:  # fewer functions were being called when it was decoded, so that it could have more levels
        return ""
