"""An execution as a model receives it: its truncated output, ipybox's messages about it, and images.

ipybox's messages are a separate block of text after the output, so code can't forge them. They precede a long
output: Claude Code shows only the beginning of a result with more than 25,000 tokens, without its images. Some clients
join the blocks into one text for the model: if the output contains ipybox's mark, the first message says that the code
printed it.

No block of text is blank: model APIs reject requests with empty blocks or only white space (status 400).
"""

import logging
import re
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, TypeGuard

from ipybox.support.outputs import ExecutionOutput
from ipybox.support.printable import printable

logger = logging.getLogger(__name__)

#: Maximum number of images that a result names.
NAMED = 20

#: Up to this many overwritten characters, a result has no notice about them.
REDRAWN = 200

#: For this many characters of output or more, ipybox's messages come first; 25,000 tokens may have few characters.
MESSAGES_FIRST = 20_000

#: Limits of an image: pixels of its longer side, beyond which models see no more detail, and bytes; and seconds for the
#: checks of all images in a result, because decoding a small JPEG can take ten.
MAX_SIDE = 1568
MAX_BYTES = 1_500_000
TIMEOUT = 15.0

#: Maximum images in a result: all stay in the context.
MAX_MODEL_IMAGES = 8

_WORKER = Path(__file__).with_name("image_worker.py")

#: The text of an otherwise empty result.
NO_OUTPUT = "(no output)"

#: The prefix of each notice.
MARK = "[ipybox]"

_FORGED = f"Output lines that start with {MARK} were printed by the code, not by ipybox."

#: An image as a content block of MCP, or the reason why it is not shown.
ModelImage = dict[str, str] | str


class ModelText(NamedTuple):
    """The text of an execution for a model, and the whole text as it arrived.

    `omission` is None if nothing is missing from `shown`, or else a notice, which is empty if `shown` says it.
    """

    shown: str
    whole: str
    omission: str | None


def model_text(text: str, failure: Exception | None, max_chars: int) -> ModelText:
    """Returns the output, then any error, as a terminal would finally show them, up to `max_chars` characters."""
    if failure is not None:
        error = failure_text(failure)
        text = f"{text}\n{error}" if text else error
    shown = drawn(text)
    if len(shown) > max_chars:
        return ModelText(_cut(shown, max_chars), text, "")
    return ModelText(shown, text, "Overwritten text is omitted." if len(text) > len(shown) + REDRAWN else None)


def content_blocks(
    text: str, output: ExecutionOutput, notices: Sequence[str], images: Sequence[ModelImage] = (), *, links: bool = True
) -> list[dict[str, str]]:
    """Returns an execution as content blocks of MCP, at least one: its text, ipybox's messages, and images.

    Args:
        text: The text for the model.
        output: The execution's notices, images and files.
        notices: More notices.
        images: The images for the model.
        links: Whether to name the files of images that follow.
    """
    notices = [*map(partial(printable, lines=True), (*output.notices, *notices))]
    warnings = [_FORGED] if MARK in text.lower() else []
    messages = ""
    if warnings or notices or output.images or output.files:
        lines = [f"{MARK} {notice}" for notice in [*warnings, *notices]]
        messages = "\n".join([*lines, *_image_lines(output.images, images, links), *_files(output.files)])
    blocks: list[dict[str, str]] = [{"type": "text", "text": text}] if text.strip() else []
    if messages:
        blocks.insert(0 if len(text) >= MESSAGES_FIRST else len(blocks), {"type": "text", "text": messages})
    blocks += filter(_is_block, images)
    return blocks or [{"type": "text", "text": NO_OUTPUT}]


def _is_block(image: ModelImage) -> TypeGuard[dict[str, str]]:
    return isinstance(image, dict)


def model_blocks(
    output: ExecutionOutput, failure: Exception | None, max_chars: int, *, images: bool
) -> list[dict[str, str]]:
    """Returns an execution as content blocks of MCP, with the text of what is omitted saved nowhere. Blocks."""
    text = model_text(output.text or "", failure, max_chars)
    shown = model_images(output.image_data) if images else []
    return content_blocks(text.shown, output, [text.omission] if text.omission else [], shown)


def model_images(images: Sequence[bytes | None]) -> list[ModelImage]:
    """Returns each image as a content block of MCP, or the reason why it can't be shown. Blocks."""
    end = time.monotonic() + TIMEOUT
    shown = [_picture(data, end) for data in images[:MAX_MODEL_IMAGES]]
    return [*shown, *[f"more than {MAX_MODEL_IMAGES}"] * (len(images) - len(shown))]


def _picture(data: bytes | None, end: float) -> ModelImage:
    if data is None:
        return "too large"
    command = [sys.executable, "-I", str(_WORKER), str(MAX_SIDE), str(MAX_BYTES)]
    seconds = max(0, end - time.monotonic())
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=seconds, env={}, check=False)
    except (OSError, subprocess.SubprocessError) as exc:
        logger.warning("can't check an image: %s", exc)
        return "it can't be checked"
    mime_type, line, smaller = done.stdout.partition(b"\n")
    if done.returncode != 0 or not line:
        logger.debug("can't show an image: %s", done.stderr.decode(errors="replace"))
        return "damaged or too large"
    return {"type": "image", "data": b64encode(smaller or data).decode(), "mimeType": mime_type.decode()}


def _image_lines(paths: Sequence[Path], images: Sequence[ModelImage], links: bool) -> list[str]:
    lines: list[str] = []
    for path, image in zip_longest(paths, images):
        if isinstance(image, str):
            lines.append(f"- {printable(path)} (not shown: {image})")
        elif links:
            lines.append(f"- {printable(path)}")
    more = [f"- {len(lines) - NAMED} more in the same directory"] if len(lines) > NAMED else []
    return ["Images:", *lines[:NAMED], *more] if lines else []


def failure_text(failure: Exception) -> str:
    """Returns the message of an exception as printable text, or its type if it has no message."""
    text = str(failure)
    if isinstance(failure, OSError) and failure.strerror and failure.filename:
        text = f"can't access {failure.filename}: {failure.strerror}"
    text = printable(text, lines=True)
    return text if text.strip() else type(failure).__name__


def _cut(text: str, max_chars: int) -> str:
    """Returns the head and tail of a text that is too long."""
    head = max_chars * 2 // 3
    left_out = len(text) - max_chars
    return f"{text[:head]}\n[... {left_out} characters omitted ...]\n{text[head + left_out :]}"


def _files(paths: Sequence[Path]) -> list[str]:
    return [f"Files in {printable(paths[0].parent)}: {', '.join(path.name for path in paths)}"] if paths else []


#: Of a line with more characters, only the end after its last carriage return is shown.
MAX_LINE = 1 << 20

_MOVES = re.compile("(\b+|\r)")


def drawn(text: str) -> str:
    """Returns the final text: after a carriage return or backspace, new characters overwrite old ones."""
    if "\r" not in text and "\b" not in text:
        return text
    return "\n".join(_line(line) if _MOVES.search(line) else line for line in text.split("\n"))


def _line(line: str) -> str:
    if len(line) > MAX_LINE:
        return line.rstrip("\r").rpartition("\r")[2].replace("\b", "")
    shown, cursor = list[str](), 0
    for part in _MOVES.split(line):
        if part.startswith("\b"):
            cursor = max(0, cursor - len(part))
        elif part == "\r":
            cursor = 0
        else:
            shown[cursor : cursor + len(part)] = part
            cursor += len(part)
    return "".join(shown)
