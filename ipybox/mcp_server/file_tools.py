"""`upload_file` and `download_file` as MCP tools: the client passes content and names paths on the server."""

import asyncio
import binascii
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from mcp_types import BlobResourceContents, CallToolResult, ContentBlock, EmbeddedResource, ImageContent, TextContent
from pydantic import Field

from ipybox.kernel_mgr.transfer.file_transfer import TAR, Download, FileTransfer, TransferReport
from ipybox.mcp_server.tool_result import failure_result
from ipybox.support.errors import IpyboxError
from ipybox.support.printable import printable

#: Maximum bytes of an image for a model; a larger one would make the client's next request fail.
MAX_IMAGE = 3_750_000
#: First bytes of the images that models accept.
_IMAGES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
}

Encoding = Literal["utf-8", "base64", "tar"]


class FileTools:
    """The two tools. One works at a time, because each may hold several copies of its content.

    `read_from_node` returns a file from the node on which cells run, or None if they run in the workspace.
    """

    def __init__(self, workspace: FileTransfer, read_from_node: Callable[[str], Awaitable[Download | None]]):
        self._workspace = workspace
        self._read_from_node = read_from_node
        self._turn = asyncio.Lock()
        #: Held by one download, also while a node answers, which can take minutes: no upload waits for that.
        self._downloading = asyncio.Lock()

    async def upload_file(
        self,
        path: Annotated[str, Field(description="Destination, relative to the workspace")],
        content: str,
        encoding: Annotated[
            Encoding,
            Field(description="tar: content is a base64-encoded tar, unpacked into the directory at path"),
        ] = "utf-8",
    ) -> CallToolResult:
        """Writes a file of the workspace. Replaces an existing file, creates missing directories."""
        async with self._turn:
            try:
                done = await asyncio.to_thread(self._upload, path, content, encoding)
            except (IpyboxError, ValueError, OSError) as exc:
                return failure_result(exc)
        return CallToolResult(content=[TextContent(text=_report(done, encoding))])

    async def download_file(
        self, path: Annotated[str, Field(description="Relative to the workspace")]
    ) -> CallToolResult:
        """Returns a file of the workspace, or a directory as tar."""
        async with self._downloading:
            try:
                await asyncio.to_thread(self._workspace.readable, path)
                content = await self._read_from_node(path)
                async with self._turn:
                    return await asyncio.to_thread(self._downloaded, path, content)
            except (IpyboxError, ValueError, OSError) as exc:
                return failure_result(exc)

    def _upload(self, path: str, content: str, encoding: Encoding) -> TransferReport:
        data = content.encode() if encoding == "utf-8" else _decoded(content)
        return self._workspace.upload(path, data, "tar" if encoding == "tar" else "file")

    def _downloaded(self, path: str, of_node: Download | None) -> CallToolResult:
        content = self._workspace.download(path) if of_node is None else of_node
        omitted = [TextContent(text=text)] if (text := _omitted_files(content)) else []
        return CallToolResult(content=[*_blocks(content), *omitted])


def _decoded(content: str) -> bytes:
    try:
        # Programs break base64 into lines.
        return binascii.a2b_base64(content.encode("ascii").translate(None, b" \t\r\n"), strict_mode=True)
    except ValueError as exc:
        raise ValueError(f"the content is not base64: {exc}") from None


def _blocks(content: Download) -> list[ContentBlock]:
    """Returns text as text, an image as an image, and anything else as a resource.

    Blank text is also a resource, because model APIs reject blank blocks; a sentence for the model follows it.
    """
    data = content.data
    if content.mime_type != TAR and b"\0" not in data:
        with suppress(UnicodeDecodeError):
            text = data.decode()
            if text and not text.isspace():
                return [TextContent(text=text)]
            sentence = "The file contains only whitespace." if text else "The file is empty."
            return [_resource(content), TextContent(text=sentence)]
    mime_type = next((each for each, beginnings in _IMAGES.items() if data.startswith(beginnings)), None)
    if mime_type is not None and len(data) <= MAX_IMAGE:
        return [ImageContent(data=b64encode(data).decode(), mime_type=mime_type)]
    return [_resource(content)]


def _resource(content: Download) -> EmbeddedResource:
    # A path on a node is relative to the node's workspace.
    uri = Path("/", content.path).as_uri()
    contents = BlobResourceContents(uri=uri, mime_type=content.mime_type, blob=b64encode(content.data).decode())
    return EmbeddedResource(resource=contents)


def _report(done: TransferReport, encoding: Encoding) -> str:
    files = "" if encoding != "tar" else "1 file with " if done.files == 1 else f"{done.files} files with "
    return "\n".join(filter(None, [f"Wrote {printable(done.path)}: {files}{done.size} bytes.", _omitted_files(done)]))


def _omitted_files(done: TransferReport | Download) -> str:
    return f"Omitted: {', '.join(done.omitted)}." if done.omitted else ""
