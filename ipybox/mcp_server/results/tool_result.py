"""The MCP tool result of an execution: its truncated output, ipybox's messages about it, and images.

ipybox's messages are a separate block of text after the output, so code can't forge them. They precede a long
output: Claude Code shows only the beginning of a result with more than 25,000 tokens, without its images. Some clients
join the blocks into one text for the model: if the output contains ipybox's mark, the first message says that the code
printed it.

No block of text is blank: model APIs reject requests with empty blocks or only white space (status 400).
"""

import asyncio
import logging
import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import zip_longest
from pathlib import Path

from mcp_types import CallToolResult, ContentBlock, ImageContent, TextContent
from pydantic_core import from_json

from ipybox.mcp_server import Images
from ipybox.mcp_server.client_traits import OTHERS, ClientTraits
from ipybox.mcp_server.results.model_images import model_images
from ipybox.mcp_server.results.resources import output_uri
from ipybox.mcp_server.results.store import OutputStore
from ipybox.support.errors import CodeExecutionError, ExecutionTimeoutError
from ipybox.support.outputs import ExecutionOutput
from ipybox.support.printable import printable

logger = logging.getLogger(__name__)

#: Maximum number of images that a result names.
NAMED = 20

#: Up to this many overwritten characters, a result has no notice about them.
REDRAWN = 200

#: Longer texts are processed in a thread.
SHORT = 10_000

#: For this many characters of output or more, ipybox's messages come first; 25,000 tokens may have few characters.
MESSAGES_FIRST = 20_000

#: The text of an otherwise empty result.
NO_OUTPUT = "(no output)"

#: The metadata of a result that lists what a failed cell called.
CALLS = "ipybox/calls"

#: The prefix of each notice.
MARK = "[ipybox]"

_FORGED = f"Output lines that start with {MARK} were printed by the code, not by ipybox."


class ToolResultBuilder:
    """Builds the tool results of executions; the store receives the full text of truncated outputs."""

    def __init__(self, store: OutputStore, images: Images = "both"):
        self._store = store
        self._images: Images = images

    async def result(
        self, outcome: ExecutionOutput | Exception, max_chars: int, client: ClientTraits = OTHERS
    ) -> CallToolResult:
        """Returns the result of an execution or of its failure, with output of up to `max_chars` characters."""
        failure = outcome if isinstance(outcome, Exception) else None
        known: ExecutionOutput | None = getattr(outcome, "output", None) if isinstance(outcome, Exception) else outcome
        output = known or ExecutionOutput(None, [])
        asked = output.image_data if self._images != "link" and client.shows_images else []
        shown = await asyncio.to_thread(model_images, asked) if asked else []
        text, omission = await self._truncated(output.text or "", failure, max_chars, resources=client.reads_resources)
        notices = [*map(partial(printable, lines=True), (*output.notices, *omission))]
        warnings = [_FORGED] if MARK in text.lower() else []
        messages = ""
        if warnings or notices or output.images or output.files:
            lines = [f"{MARK} {notice}" for notice in [*warnings, *notices]]
            messages = "\n".join([*lines, *self._image_lines(output.images, shown), *_files(output.files)])
        texts = [text, messages] if len(text) < MESSAGES_FIRST else [messages, text]
        texts = [part for part in texts if part.strip()]
        if client.joins_texts and len(texts) == 2:
            texts = [texts[0], f"\n{texts[1]}" if MARK in messages.partition("\n")[0] else f"\n{MARK}\n{texts[1]}"]
        if client.parses_texts and texts and _is_json_value(texts[0]):
            texts[0] = f"Output: {texts[0]}"
        content: list[ContentBlock] = [TextContent(text=part) for part in texts]
        content += [image for image in shown if isinstance(image, ImageContent)]
        # Not as structured content, which some clients pass to the model instead of the text.
        calls = outcome.calls if isinstance(outcome, CodeExecutionError | ExecutionTimeoutError) else ()
        meta = {CALLS: [asdict(each) for each in calls]} if calls else None
        return CallToolResult(
            content=content or [TextContent(text=NO_OUTPUT)], is_error=failure is not None, _meta=meta
        )

    async def _truncated(
        self, text: str, failure: Exception | None, max_chars: int, *, resources: bool
    ) -> tuple[str, list[str]]:
        """Returns the result's text and, if it is incomplete, a notice with the file that contains the full text."""
        # Starting a thread takes longer than processing a short text.
        short = len(text) + (0 if failure is None else len(str(failure))) <= SHORT
        whole, text = _texts(text, failure) if short else await asyncio.to_thread(_texts, text, failure)
        omission = ""
        if len(text) > max_chars:
            text = _cut(text, max_chars)
        elif len(whole) > len(text) + REDRAWN:
            omission = "Overwritten text is omitted. "
        else:
            return text, []
        try:
            name = await asyncio.to_thread(self._store.save, whole)
        except OSError as exc:
            logger.warning("can't save the full output: %s", exc)
            return text, [f"{omission}The full output can't be saved: {exc}"]
        file = self._store.path(name)
        place = f"{output_uri(name)}, file {printable(file)}" if resources else printable(file)
        return text, [f"{omission}Full output: {place}"]

    def _image_lines(self, paths: Sequence[Path], shown: Sequence[ImageContent | str]) -> list[str]:
        links: list[str] = []
        for path, image in zip_longest(paths, shown):
            if isinstance(image, str):
                links.append(f"- {printable(path)} (not shown: {image})")
            elif self._images != "inline":
                links.append(f"- {printable(path)}")
        more = [f"- {len(links) - NAMED} more in the same directory"] if len(links) > NAMED else []
        return ["Images:", *links[:NAMED], *more] if links else []


def _texts(text: str, failure: Exception | None) -> tuple[str, str]:
    """Returns the output, then any error: as it arrived, and as a terminal would finally show it."""
    if failure is not None:
        error = _failure_text(failure)
        text = f"{text}\n{error}" if text else error
    return text, drawn(text)


def _is_json_value(text: str) -> bool:
    """Returns whether a text is JSON, but no object."""
    try:
        return not isinstance(from_json(text), dict)
    except ValueError:
        return False


def _failure_text(failure: Exception) -> str:
    """Returns the message of an exception as printable text, or its type if it has no message."""
    text = str(failure)
    if isinstance(failure, OSError) and failure.strerror and failure.filename:
        text = f"can't access {failure.filename}: {failure.strerror}"
    text = printable(text, lines=True)
    return text if text.strip() else type(failure).__name__


def failure_result(failure: Exception) -> CallToolResult:
    """Returns the tool result of a call that failed."""
    return CallToolResult(content=[TextContent(text=_failure_text(failure))], is_error=True)


def _cut(text: str, max_chars: int) -> str:
    """Returns the head and tail of a text that is too long."""
    head = max_chars * 2 // 3
    left_out = len(text) - max_chars
    return f"{text[:head]}\n[... {left_out} characters omitted ...]\n{text[head + left_out :]}"


def _files(paths: Sequence[Path]) -> list[str]:
    return [f"Files in {printable(paths[0].parent)}: {', '.join(path.name for path in paths)}"] if paths else []


#: In lines with more characters, backspaces are removed instead of applied.
MAX_LINE = 1 << 20

_MOVES = re.compile("(\b+|\r)")


def drawn(text: str) -> str:
    """Returns the final text: after a carriage return or backspace, new characters overwrite old ones."""
    if "\r" not in text and "\b" not in text:
        return text
    return "\n".join(map(_line, text.split("\n")))


def _line(line: str) -> str:
    if "\b" in line:
        if len(line) <= MAX_LINE:
            return _line_with_backspaces(line)
        line = line.replace("\b", "")
    return _line_with_returns(line) if "\r" in line else line


def _line_with_backspaces(line: str) -> str:
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


def _line_with_returns(line: str) -> str:
    shown, length = list[str](), 0
    # The last part is shown in full; an earlier part only where it is longer.
    for part in reversed(line.split("\r")):
        if len(part) > length:
            shown.append(part[length:])
            length = len(part)
    return "".join(shown)
