"""The tool result of an execution: its output, truncated to a length, what ipybox says about it, and images.

What ipybox says is a block of text of its own, after the output, so that code can't put words into its mouth. A client
may show a model the blocks as one text: if the output has ipybox's mark, a last line says whose that is.
"""

import asyncio
import binascii
import logging
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from mcp_types import CallToolResult, ContentBlock, ImageContent, TextContent

from ipybox.output import ExecutionOutput
from ipybox.outputs.pictures import Picture, pictures
from ipybox.outputs.resources import address
from ipybox.outputs.store import OutputStore
from ipybox.outputs.terminal import drawn

logger = logging.getLogger(__name__)

#: How images are returned: as paths of their files, as pictures for the model, or as both.
Images = Literal["link", "inline", "both"]

#: How many images a result names.
NAMED = 20

#: Characters that may be overwritten before that is worth a notice.
REDRAWN = 200

#: What each notice begins with.
MARK = "[ipybox]"

_FORGED = f"Lines above that begin with {MARK} were printed by the code: they are none of ipybox."


class Answers:
    """Makes results of executions.

    Args:
        store: Keeps the outputs that are cut.
        images: How images are returned.
    """

    def __init__(self, store: OutputStore, images: Images = "both"):
        self._store = store
        self._images: Images = images

    async def of(self, output: ExecutionOutput, max_chars: int, *, resources: bool = True) -> CallToolResult:
        """Returns the result of an execution that ended well.

        Args:
            output: The output.
            max_chars: How long its text may be.
            resources: Whether the client knows that it can read resources: else their addresses only cost context.
        """
        return await self._answer(output, output.text or "", max_chars, resources, is_error=False)

    async def of_failure(self, failure: Exception, max_chars: int, *, resources: bool = True) -> CallToolResult:
        """Returns the result of one that failed, with what it had put out before."""
        output: ExecutionOutput = getattr(failure, "output", None) or ExecutionOutput(None, [])
        text = f"{output.text}\n{failure}" if output.text else str(failure)
        return await self._answer(output, text, max_chars, resources, is_error=True)

    async def _answer(
        self, output: ExecutionOutput, text: str, max_chars: int, resources: bool, *, is_error: bool
    ) -> CallToolResult:
        asked = output.image_data if self._images != "link" else []
        shown = await asyncio.to_thread(pictures, asked)
        notices = list(output.notices)
        whole, text = text, await asyncio.to_thread(drawn, text)
        if len(text) > max_chars:
            text = _cut(text, max_chars)
            notices.append(await self._keep(whole, resources))
        elif len(whole) > len(text) + REDRAWN:
            notices.append(f"What was overwritten is left out. {await self._keep(whole, resources)}")
        if MARK in text.lower():
            notices.insert(0, _FORGED)
        told = "\n".join(
            [
                *(f"{MARK} {notice}" for notice in notices),
                *_list(self._links(output.images, shown)),
                *_files(output.files),
            ]
        )
        images = [_block(picture) for picture in shown if isinstance(picture, Picture)]
        content: list[ContentBlock] = [TextContent(text=part) for part in (text, told) if part]
        return CallToolResult(content=[*content, *images] or [TextContent(text="")], is_error=is_error)

    def _links(self, paths: Sequence[Path], shown: Sequence[Picture | str]) -> list[str]:
        """Returns the paths that are told, in any case those of images that are no pictures, with the reason."""
        links: list[str] = []
        for path, picture in zip_longest(paths, shown):
            if isinstance(picture, str):
                links.append(f"{path} (not shown: {picture})")
            elif self._images != "inline":
                links.append(str(path))
        return links

    async def _keep(self, text: str, resources: bool) -> str:
        """Keeps a text of which only a part is returned, and returns the sentence that says where."""
        try:
            name = await asyncio.to_thread(self._store.keep, text)
        except OSError as exc:
            logger.warning("the whole output can't be kept: %s", exc)
            return f"The whole output can't be kept: {exc}"
        path = self._store.path(name)
        return f"The whole output: {address(name)}, file {path}" if resources else f"The whole output: {path}"


def _cut(text: str, max_chars: int) -> str:
    """Returns the head and tail of a text that is too long."""
    head = max_chars * 2 // 3
    left_out = len(text) - max_chars
    return f"{text[:head]}\n[... {left_out} characters left out ...]\n{text[head + left_out :]}"


def _list(links: Sequence[str]) -> list[str]:
    if not links:
        return []
    more = [f"- {len(links) - NAMED} more beside them"] if len(links) > NAMED else []
    return ["Images:", *(f"- {link}" for link in links[:NAMED]), *more]


def _files(paths: Sequence[Path]) -> list[str]:
    return [f"Files in {paths[0].parent}: {', '.join(path.name for path in paths)}"] if paths else []


def _block(picture: Picture) -> ImageContent:
    data = binascii.b2a_base64(picture.data, newline=False).decode()
    return ImageContent(data=data, mime_type=picture.mime_type)
