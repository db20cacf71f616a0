"""What a cell has printed and displayed, put together as a Jupyter front end would, pure but for saving files.

Outputs keep the order in which they arrived. `update_display` replaces what a display showed, `clear_output`
removes what there is. Images become files; of everything else the text form is kept, and richer forms become files
beside the images. There are bounds to all of it, as kernel code can send what it likes: more than `MAX_OUTPUT_BYTES` of
messages are not held at once.
"""

import binascii
import json
import re
import secrets
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from ipybox.beneath import Directory, open_directory
from ipybox.bounded_json import MAX_VALUES
from ipybox.kernel_mgr.limits import format_bytes
from ipybox.kernel_mgr.messages import Message
from ipybox.printable import escape

#: Image formats that become files, with their suffixes.
IMAGE_TYPES = {"image/png": ".png", "image/jpeg": ".jpg"}

#: Forms of a display beside its text that become files, with their suffixes.
RICH_TYPES = {"text/html": ".html", "image/svg+xml": ".svg", "text/latex": ".tex", "application/json": ".json"}

#: How many of them become files, and how many characters these have together.
MAX_FILES = 20
MAX_FILE_CHARS = 16 << 20

#: Bytes of the images of one cell that are held beside their files.
MAX_IMAGE_DATA = 64 << 20

#: What the messages may have together whose outputs are held; the others are left out.
MAX_OUTPUT_BYTES = 256 << 20

#: What a display takes at least, however short its message is.
DISPLAY_BYTES = 512

#: Images are decoded in pieces of that many characters: none of them keeps the event loop waiting. A multiple of 4.
IMAGE_PIECE = 1 << 22

#: Forms that stand in for an uninformative `text/plain`, most readable first.
TEXT_TYPES = ("text/markdown", "text/latex", "application/json", "text/html", "image/svg+xml")

# IPython's display objects describe themselves by their class only, figures by their size.
_UNINFORMATIVE = re.compile(r"<(IPython\.core\.display\.\w+ object|Figure size .*|.* at 0x[0-9a-f]+)>\s*", re.DOTALL)

# ECMA-48 control sequences: CSI, OSC (titles, links) and two-character escapes.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b]*+(?:\x07|\x1b\\)|[ -/]*+[0-Z\\^-~])")
# The beginning of one, or of a line's end, at the end of a text. What does not end soon is none.
_BEGUN = re.compile(r"(?:\x1b(?:\[[0-?]{0,256}+[ -/]{0,16}+|\][^\x07\x1b]{0,4096}+\x1b?|[ -/]{0,16}+)?|\r)\Z")
_BEGUN_LENGTH = 4100
#: Escapes for control characters outside of control sequences, and a replacement for lone surrogates.
_SHOWN = {
    chr(code): "\N{REPLACEMENT CHARACTER}" if code >= 0xD800 else escape(chr(code))
    for code in (*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000))
}
_FEW = 40
_HARMLESS = bytes([*b"\t\n\r", *range(0x20, 0x7F)])


def plain(text: str, *, stream: bool = False) -> str:
    """Returns `text` without terminal control sequences and lone surrogates, and with `\\n` for a line's end.

    Other control characters become escapes, but a carriage return, and in a stream a backspace: progress bars count on
    what a terminal makes of them. A `!command` has a terminal for its output, which ends lines with `\\r\\n`.
    """
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "\r\n" in text:
        text = text.replace("\r\n", "\n")
    if text.isascii() and not text.encode().translate(None, _HARMLESS):  # much faster than the expression
        return text
    found = ({*text} & _SHOWN.keys()) - ({"\b"} if stream else set())
    if len(found) > _FEW:
        return text.translate(str.maketrans({character: _SHOWN[character] for character in found}))
    for character in found:  # much faster, as millions of one may come
        text = text.replace(character, _SHOWN[character])
    return text


@dataclass
class Output:
    """One output of a cell: a run of stream text, or one display."""

    kind: Literal["stream", "display"]
    parts: list[str] = field(default_factory=list[str])
    #: Suffixes and base64 texts.
    images: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    #: Suffixes and texts.
    rich: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    display_id: str | None = None


@dataclass(frozen=True)
class Saved:
    """What has become files: see `ExecutionOutput`."""

    images: list[Path] = field(default_factory=list[Path])
    image_data: list[bytes | None] = field(default_factory=list[bytes | None])
    files: list[Path] = field(default_factory=list[Path])


class CellOutputs:
    """Collects the outputs of one cell from its messages.

    `add` takes the messages in order and returns the text that each one adds, for streaming; `text` and
    `save` tell what is there in the end, after updates and clearings.
    """

    def __init__(self) -> None:
        self._outputs: list[Output] = []
        #: The last update of each display id: how many outputs there were before it, and what it takes.
        self._updates: dict[str, tuple[int, Output, int]] = {}
        self._displays: Counter[str] = Counter()
        self._clear_before_next = False
        self._held_back = ""
        #: Those that were shown. The last one is the cell's own error if it fails, of which its reply tells.
        self._tracebacks: list[str] = []
        self._bytes = 0
        self._left_out = 0

    def add(self, message: Message) -> str:
        """Takes one message and returns the plain text that it shows, or an empty string."""
        size = len(message.raw_content)
        match message.type:
            case "stream":
                if self._has_room(message, size):
                    return self._add_stream(_joined(message.content.get("text", "")))
            case "display_data" | "execute_result":
                if self._has_room(message, size + DISPLAY_BYTES):
                    return self._add_display(message.content)
            case "update_display_data":
                return self._update_display(message)
            case "clear_output":
                if message.content.get("wait"):
                    self._clear_before_next = True
                else:
                    self._clear()
            case "error":
                if self._has_room(message, size):
                    self._tracebacks.append(f"{_joined(message.content.get('traceback'), between=chr(10))}\n")
            case "execute_reply":
                return self._add_reply(message)
            case _:
                pass
        return ""

    def leave_out(self, size: int) -> None:
        """Notes that messages of this size never came."""
        self._left_out += size

    def text(self) -> str | None:
        """Returns all text in order without its final newline, or None if there was no output of text."""
        pieces: list[str] = []
        for output in (*self._shown(), Output("stream", [plain(self._held_back, stream=True)])):
            parts = [part for part in output.parts if part]
            if parts and output.kind == "display":
                # A display stands on lines of its own.
                if pieces and not pieces[-1].endswith("\n"):
                    pieces.append("\n")
                if not parts[-1].endswith("\n"):
                    parts.append("\n")
            pieces += parts
        if not pieces:
            return None
        pieces[-1] = pieces[-1].removesuffix("\n")
        # Joined once: it can be a quarter of a gigabyte, and each copy keeps the event loop waiting.
        return "".join(pieces)

    def notices(self) -> list[str]:
        """Returns a sentence for each thing that was left out."""
        notices: list[str] = []
        if self._left_out:
            notices.append(
                f"{format_bytes(self._left_out)} of output were left out: of one cell there can be "
                f"{format_bytes(MAX_OUTPUT_BYTES)}, and {MAX_VALUES:,} values in one display."
            )
        _, too_many = self._rich()
        if too_many:
            notices.append(
                f"HTML, SVG, LaTeX or JSON was not saved for {too_many} displays: of one cell there can be "
                f"{MAX_FILES} such files with {MAX_FILE_CHARS >> 20} Mi characters together."
            )
        return notices

    def save(self, directory: Path, *, beneath: Path | None = None, base: Path | None = None) -> Saved:
        """Writes images and rich forms to new files in `directory`, which is made if need be, and returns what it did.

        `beneath` is the directory that the cell itself can write: links there are not followed. Nothing is made if
        `base` is not there (`open_directory`).
        """
        images = [image for output in self._shown() for image in output.images]
        rich, _ = self._rich()
        saved = Saved()
        if images or rich:
            with open_directory(directory, beneath=beneath, base=base) as opened:
                _save_images(images, opened, directory, saved)
                for suffix, text in rich:
                    name = f"{secrets.token_hex(4)}{suffix}"
                    opened.write_new(name, text.encode(errors="replace"))
                    saved.files.append(directory / name)
        return saved

    def _rich(self) -> tuple[list[tuple[str, str]], int]:
        """Returns the rich forms that become files, and the number of those that are too many or too large."""
        forms = [form for output in self._shown() for form in output.rich]
        room = MAX_FILE_CHARS
        chosen: list[tuple[str, str]] = []
        for suffix, text in forms[:MAX_FILES]:
            if len(text) <= room:
                room -= len(text)
                chosen.append((suffix, text))
        return chosen, len(forms) - len(chosen)

    def _shown(self) -> Iterator[Output]:
        """Yields the outputs as they are after all updates."""
        for i, output in enumerate(self._outputs):
            before, update, _ = self._updates.get(output.display_id or "", (0, output, 0))
            yield update if i < before else output

    def _has_room(self, message: Message, size: int) -> bool:
        """Takes the room that a message needs, or notes that it is left out."""
        self._clear_if_due()
        if message.costly or self._bytes + size > MAX_OUTPUT_BYTES:
            self._left_out += len(message.raw_content)
            return False
        self._bytes += size
        return True

    def _add_stream(self, text: str) -> str:
        if not self._outputs or self._outputs[-1].kind != "stream":
            self._outputs.append(Output("stream"))
        # A control sequence may be spread over messages: its beginning waits for the rest.
        text = self._held_back + text
        begun = None
        if text.endswith("\r") or "\x1b" in text:
            begun = _BEGUN.search(text, max(0, len(text) - _BEGUN_LENGTH))
        self._held_back = text[begun.start() :] if begun else ""
        shown = plain(text[: begun.start()] if begun else text, stream=True)
        self._outputs[-1].parts.append(shown)
        return shown

    def _add_reply(self, message: Message) -> str:
        if message.content.get("status", "ok") != "ok":
            del self._tracebacks[-1:]
        shown = "".join(map(self._add_stream, self._tracebacks))
        self._tracebacks.clear()
        pages = list(_pages(message.content))
        if pages and self._has_room(message, len(message.raw_content) + DISPLAY_BYTES):
            shown += "".join(map(self._add_display, pages))
        return shown

    def _add_display(self, content: Mapping[str, Any]) -> str:
        output = _display(content)
        if output.display_id is not None:
            self._displays[output.display_id] += 1
        self._outputs.append(output)
        return "".join(output.parts)

    def _update_display(self, message: Message) -> str:
        self._clear_if_due()
        update = {} if message.costly else _object(message.content.get("transient"))
        wanted = update.get("display_id")
        places = self._displays[wanted] if isinstance(wanted, str) else 0
        if not isinstance(wanted, str) or not places:  # it was displayed by an earlier cell, whose result is gone
            if self._has_room(message, len(message.raw_content) + DISPLAY_BYTES):
                return self._add_display(message.content)
            return ""
        _, _, replaced = self._updates.get(wanted, (0, None, 0))
        # Each place shows it.
        size = places * (len(message.raw_content) + DISPLAY_BYTES)
        self._bytes -= replaced
        if not self._has_room(message, size):
            self._bytes += replaced
            return ""
        output = _display(message.content)
        self._updates[wanted] = len(self._outputs), output, size
        return "".join(output.parts)

    def _clear_if_due(self) -> None:
        if self._clear_before_next:
            self._clear()

    def _clear(self) -> None:
        self._clear_before_next = False
        self._held_back = ""
        self._outputs.clear()
        self._updates.clear()
        self._displays.clear()
        self._tracebacks.clear()
        self._bytes = self._left_out = 0


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
        [(suffix, form) for mime, suffix in RICH_TYPES.items() if (form := _form(data, mime))],
        display_id if isinstance(display_id, str) else None,
    )


def _text_form(data: Mapping[str, Any], *, has_image: bool) -> str:
    text = _joined(data.get("text/plain", ""))
    if text and not _UNINFORMATIVE.fullmatch(text):
        return plain("" if has_image and text.startswith("<") else text)
    for mime in TEXT_TYPES:
        if mime in data:
            return plain(_form(data, mime))
    return "" if has_image else plain(text)


def _form(data: Mapping[str, Any], mime: str) -> str:
    """Returns one form of a display as text, which is empty if there is none."""
    if mime not in data:
        return ""
    return json.dumps(data[mime], ensure_ascii=False) if mime == "application/json" else _joined(data[mime])


def _save_images(images: Iterable[tuple[str, str]], opened: Directory, directory: Path, saved: Saved) -> None:
    room = MAX_IMAGE_DATA
    for suffix, text in images:
        data = _decoded(text)
        if data is not None:
            name = f"{uuid.uuid4().hex}{suffix}"
            opened.write_new(name, data)
            held = len(data) <= room
            room -= len(data) if held else 0
            saved.images.append(directory / name)
            saved.image_data.append(data if held else None)


def _object(value: object) -> dict[str, Any]:
    # What the kernel sends may be anything: kernel code can send messages itself.
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _joined(value: object, between: str = "") -> str:
    # The notebook format allows a list of lines.
    lines = cast(list[object], value) if isinstance(value, list) else [value]
    return between.join(line for line in lines if isinstance(line, str))


def _image(value: object) -> str | None:
    """Returns the base64 text of an image, if it looks like one."""
    text = _joined(value)
    if "\n" in text:
        text = text.replace("\n", "")
    return text if text and text.isascii() and len(text) % 4 == 0 else None


def _decoded(image: str) -> bytes | None:
    data = bytearray()
    try:
        for start in range(0, len(image), IMAGE_PIECE):
            data += binascii.a2b_base64(image[start : start + IMAGE_PIECE])
    except ValueError:
        return None
    return bytes(data)


def _pages(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields what the kernel wants shown in a pager, for example by `len?`."""
    payloads = content.get("payload")
    for payload in map(_object, cast(list[object], payloads) if isinstance(payloads, list) else []):
        if payload.get("source") == "page" and "data" in payload:
            yield payload
