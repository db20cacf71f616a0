"""The MCP tool result of an execution: its truncated output, ipybox's messages about it, and images.

ipybox's messages are a separate block of text after the output, so that code can't forge them. A client may show a
model the blocks as one text: if the output contains ipybox's mark, a last line says that the code printed it.

No block of text is blank (empty, or only white space): model APIs answer requests with such a block with status 400.
"""

import asyncio
import binascii
import logging
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from mcp_types import CallToolResult, ContentBlock, ImageContent, TextContent

from ipybox.kernel_mgr.execution_output import ExecutionOutput
from ipybox.mcp_server.choices import Images
from ipybox.mcp_server.results.failure import failure_text
from ipybox.mcp_server.results.model_images import ModelImage, model_images
from ipybox.mcp_server.results.resources import output_uri
from ipybox.mcp_server.results.store import OutputStore
from ipybox.mcp_server.results.terminal import drawn

logger = logging.getLogger(__name__)

#: Limit of the images that a result names.
NAMED = 20

#: Overwritten characters up to which a result has no notice about them.
REDRAWN = 200

#: The text of a result without any text and image.
NO_OUTPUT = "(no output)"

#: What each notice begins with.
MARK = "[ipybox]"

_FORGED = f"Lines above that begin with {MARK} were printed by the code, not by ipybox."


class ToolResultBuilder:
    """Builds the tool results of executions.

    Args:
        store: Keeps the full text of truncated outputs.
        images: How images are returned.
    """

    def __init__(self, store: OutputStore, images: Images = "both"):
        self._store = store
        self._images: Images = images

    async def success(self, output: ExecutionOutput, max_chars: int, *, resources: bool = True) -> CallToolResult:
        """Returns the result of an execution that succeeded.

        Args:
            output: The output.
            max_chars: How long its text may be.
            resources: Whether the client knows that it can read resources; otherwise their addresses only cost context.
        """
        return await self._result(output, output.text or "", max_chars, resources, is_error=False)

    async def failure(self, failure: Exception, max_chars: int, *, resources: bool = True) -> CallToolResult:
        """Returns the result of an execution that failed, with the output before the failure."""
        output: ExecutionOutput = getattr(failure, "output", None) or ExecutionOutput(None, [])
        text = f"{output.text}\n{failure_text(failure)}" if output.text else failure_text(failure)
        return await self._result(output, text, max_chars, resources, is_error=True)

    async def _result(
        self, output: ExecutionOutput, text: str, max_chars: int, resources: bool, *, is_error: bool
    ) -> CallToolResult:
        asked = output.image_data if self._images != "link" else []
        shown = await asyncio.to_thread(model_images, asked)
        notices = list(output.notices)
        whole, text = text, await asyncio.to_thread(drawn, text)
        if len(text) > max_chars:
            text = _cut(text, max_chars)
            notices.append(await self._save(whole, resources))
        elif len(whole) > len(text) + REDRAWN:
            notices.append(f"Overwritten text is omitted. {await self._save(whole, resources)}")
        if MARK in text.lower():
            notices.insert(0, _FORGED)
        messages = "\n".join(
            [
                *(f"{MARK} {notice}" for notice in notices),
                *_list(self._links(output.images, shown)),
                *_files(output.files),
            ]
        )
        images = [_block(image) for image in shown if isinstance(image, ModelImage)]
        content: list[ContentBlock] = [TextContent(text=part) for part in (text, messages) if part.strip()]
        return CallToolResult(content=[*content, *images] or [TextContent(text=NO_OUTPUT)], is_error=is_error)

    def _links(self, paths: Sequence[Path], shown: Sequence[ModelImage | str]) -> list[str]:
        """Returns the paths to list: always those of images that are not shown, with the reason."""
        links: list[str] = []
        for path, image in zip_longest(paths, shown):
            if isinstance(image, str):
                links.append(f"{path} (not shown: {image})")
            elif self._images != "inline":
                links.append(str(path))
        return links

    async def _save(self, text: str, resources: bool) -> str:
        """Keeps the full text of a truncated output, and returns the sentence that names its place."""
        try:
            name = await asyncio.to_thread(self._store.save, text)
        except OSError as exc:
            logger.warning("the full output can't be kept: %s", exc)
            return f"The full output can't be kept: {exc}"
        path = self._store.path(name)
        return f"Full output: {output_uri(name)}, file {path}" if resources else f"Full output: {path}"


def _cut(text: str, max_chars: int) -> str:
    """Returns the head and tail of a text that is too long."""
    head = max_chars * 2 // 3
    left_out = len(text) - max_chars
    return f"{text[:head]}\n[... {left_out} characters omitted ...]\n{text[head + left_out :]}"


def _list(links: Sequence[str]) -> list[str]:
    if not links:
        return []
    more = [f"- {len(links) - NAMED} more next to them"] if len(links) > NAMED else []
    return ["Images:", *(f"- {link}" for link in links[:NAMED]), *more]


def _files(paths: Sequence[Path]) -> list[str]:
    return [f"Files in {paths[0].parent}: {', '.join(path.name for path in paths)}"] if paths else []


def _block(image: ModelImage) -> ImageContent:
    data = binascii.b2a_base64(image.data, newline=False).decode()
    return ImageContent(data=data, mime_type=image.mime_type)
