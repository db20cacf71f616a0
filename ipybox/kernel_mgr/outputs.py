"""What a cell has printed and displayed, put together as a Jupyter front end would, pure but for saving images.

Outputs keep the order in which they arrived. `update_display` replaces what a display showed, `clear_output`
removes what there is. Images become files; of everything else the text form is kept.
"""

import base64
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from ipybox.beneath import open_directory
from ipybox.kernel_mgr.messages import Message

#: Image formats that become files, with their suffixes.
IMAGE_TYPES = {"image/png": ".png", "image/jpeg": ".jpg"}

#: Forms that stand in for an uninformative `text/plain`, most readable first.
TEXT_TYPES = ("text/markdown", "text/latex", "application/json", "text/html", "image/svg+xml")

# IPython's display objects describe themselves by their class only, figures by their size.
_UNINFORMATIVE = re.compile(r"<(IPython\.core\.display\.\w+ object|Figure size .*|.* at 0x[0-9a-f]+)>\s*", re.DOTALL)

# ECMA-48 control sequences: CSI, OSC (titles, links) and two-character escapes.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])")
# The beginning of one, or of a line's end, at the end of a text.
_BEGUN = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,4096}\x1b?|[ -/]*)?|\r)\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")


def plain(text: str) -> str:
    """Returns `text` without terminal control sequences and lone surrogates, and with `\\n` for a line's end.

    A `!command` has a terminal for its output, which ends lines with `\\r\\n`.
    """
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "\r\n" in text:
        text = text.replace("\r\n", "\n")
    return text if text.isascii() else _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


@dataclass
class Output:
    """One output of a cell: a run of stream text, or one display."""

    kind: Literal["stream", "display"]
    parts: list[str] = field(default_factory=list[str])
    images: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])
    display_id: str | None = None


class CellOutputs:
    """Collects the outputs of one cell from its messages.

    `add` takes the messages in order and returns the text that each one adds, for streaming; `text` and
    `save_images` tell what is there in the end, after updates and clearings.
    """

    def __init__(self) -> None:
        self._outputs: list[Output] = []
        self._clear_before_next = False
        self._held_back = ""

    def add(self, message: Message) -> str:
        """Takes one message and returns the plain text that it shows, or an empty string."""
        content = message.content
        match message.type:
            case "stream":
                return self._add_stream(_joined(content.get("text", "")))
            case "display_data" | "execute_result":
                return self._add_display(content)
            case "update_display_data":
                return self._update_display(content)
            case "clear_output":
                if content.get("wait"):
                    self._clear_before_next = True
                else:
                    self._clear()
            case "execute_reply":
                return "".join(map(self._add_display, _pages(content)))
            case _:
                pass
        return ""

    def text(self) -> str | None:
        """Returns all text in order without its final newline, or None if there was no output of text."""
        pieces: list[str] = []
        at_line_start = True
        for output in self._outputs:
            text = plain("".join(output.parts)) if output.kind == "stream" else "".join(output.parts)
            if not text:
                continue
            if output.kind == "display":
                # A display stands on lines of its own.
                text = f"{'' if at_line_start else chr(10)}{text}{'' if text.endswith(chr(10)) else chr(10)}"
            pieces.append(text)
            at_line_start = text.endswith("\n")
        return "".join(pieces).removesuffix("\n") if pieces else None

    def save_images(self, directory: Path, *, beneath: Path | None = None) -> list[Path]:
        """Writes the images to new files in `directory`, which is made if need be, and returns their paths.

        `beneath` is the directory that the cell itself can write: links there are not followed (`open_directory`).
        """
        images = {f"{uuid.uuid4().hex}{suffix}": data for suffix, data in self._images()}
        if images:
            with open_directory(directory, beneath=beneath) as opened:
                for name, data in images.items():
                    opened.write_new(name, data)
        return [directory / name for name in images]

    def _images(self) -> Iterator[tuple[str, bytes]]:
        for output in self._outputs:
            yield from output.images

    def _add_stream(self, text: str) -> str:
        self._clear_if_due()
        if not self._outputs or self._outputs[-1].kind != "stream":
            self._outputs.append(Output("stream"))
        self._outputs[-1].parts.append(text)
        # A control sequence may be spread over messages: its beginning waits for the rest.
        text = self._held_back + text
        begun = _BEGUN.search(text) if "\x1b" in text or text.endswith("\r") else None
        self._held_back = text[begun.start() :] if begun else ""
        return plain(text[: begun.start()] if begun else text)

    def _add_display(self, content: Mapping[str, Any]) -> str:
        self._clear_if_due()
        output = _display(content)
        self._outputs.append(output)
        return "".join(output.parts)

    def _update_display(self, content: Mapping[str, Any]) -> str:
        self._clear_if_due()
        update = _display(content)
        wanted = update.display_id
        places = [i for i, output in enumerate(self._outputs) if wanted is not None and output.display_id == wanted]
        for i in places:
            self._outputs[i] = update
        if not places:  # it was displayed by an earlier cell, whose result is gone
            self._outputs.append(update)
        return "".join(update.parts)

    def _clear_if_due(self) -> None:
        if self._clear_before_next:
            self._clear()

    def _clear(self) -> None:
        self._clear_before_next = False
        self._held_back = ""
        self._outputs.clear()


def _display(content: Mapping[str, Any]) -> Output:
    data = _object(content.get("data"))
    images = [(suffix, image) for mime, suffix in IMAGE_TYPES.items() if (image := _image(data.get(mime)))]
    text = _text_form(data, has_image=bool(images))
    display_id = _object(content.get("transient")).get("display_id")
    # Several formats of one picture are one picture.
    return Output(
        "display",
        [f"{text.rstrip(chr(10))}\n"] if text else [],
        images[:1],
        display_id if isinstance(display_id, str) else None,
    )


def _text_form(data: Mapping[str, Any], *, has_image: bool) -> str:
    text = _joined(data.get("text/plain", ""))
    if text and not _UNINFORMATIVE.fullmatch(text):
        return plain("" if has_image and text.startswith("<") else text)
    for mime in TEXT_TYPES:
        if mime in data:
            form = data[mime]
            return plain(json.dumps(form, ensure_ascii=False) if mime == "application/json" else _joined(form))
    return "" if has_image else plain(text)


def _object(value: object) -> dict[str, Any]:
    # What the kernel sends may be anything: kernel code can send messages itself.
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _joined(value: object) -> str:
    # The notebook format allows a list of lines.
    lines = cast(list[object], value) if isinstance(value, list) else [value]
    return "".join(line for line in lines if isinstance(line, str))


def _image(value: object) -> bytes | None:
    if value is None:
        return None
    try:
        return base64.b64decode(_joined(value))
    except ValueError:  # binascii's error, and that of characters beyond ASCII
        return None


def _pages(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields what the kernel wants shown in a pager, for example by `len?`."""
    payloads = content.get("payload")
    for payload in map(_object, cast(list[object], payloads) if isinstance(payloads, list) else []):
        if payload.get("source") == "page" and "data" in payload:
            yield payload
