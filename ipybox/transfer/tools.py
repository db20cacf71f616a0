"""`upload_file` and `download_file` as MCP tools: the client sends and gets content, and names paths of the server."""

import asyncio
import binascii
from typing import Annotated, Literal, assert_never

from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
)
from pydantic import Field

from ipybox.errors import IpyboxError
from ipybox.printable import printable
from ipybox.transfer.workspace import TAR, Content, Transferred, Workspace

#: Bytes of a picture that models look at; larger ones would make a client's next request fail.
MAX_IMAGE = 3_750_000
#: What pictures begin with that models know.
_IMAGES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
}

Encoding = Literal["utf-8", "base64", "tar"]


class FileTools:
    """The two tools, for a workspace. They run one at a time, as each may hold its content several times."""

    def __init__(self, workspace: Workspace):
        self._workspace = workspace
        self._turn = asyncio.Lock()

    async def upload_file(
        self,
        path: Annotated[str, Field(description="Where, relative to the workspace")],
        content: str,
        encoding: Annotated[
            Encoding,
            Field(description="tar: content is a tar in base64, unpacked into the directory path"),
        ] = "utf-8",
    ) -> CallToolResult:
        """Writes a file of the workspace. What is there is replaced, missing directories are made."""
        async with self._turn:
            try:
                done = await asyncio.to_thread(self._upload, path, content, encoding)
            except (IpyboxError, ValueError, OSError) as exc:
                return _answer(TextContent(text=str(exc)), is_error=True)
        return _answer(TextContent(text=_report(done, encoding)))

    async def download_file(
        self, path: Annotated[str, Field(description="Relative to the workspace")]
    ) -> CallToolResult:
        """Returns a file of the workspace, or a directory as tar."""
        async with self._turn:
            try:
                return await asyncio.to_thread(self._download, path)
            except (IpyboxError, ValueError, OSError) as exc:
                return _answer(TextContent(text=str(exc)), is_error=True)

    def _upload(self, path: str, content: str, encoding: Encoding) -> Transferred:
        match encoding:
            case "utf-8":
                return self._workspace.upload(path, content.encode())
            case "base64":
                return self._workspace.upload(path, self._decoded(content))
            case "tar":
                return self._workspace.upload(path, self._decoded(content), "tar")
            case _:
                assert_never(encoding)

    def _download(self, path: str) -> CallToolResult:
        content = self._workspace.download(path)
        block = _block(content)
        left_out = _left_out(content.transferred)
        return _answer(block, TextContent(text=left_out)) if left_out else _answer(block)

    def _decoded(self, content: str) -> bytes:
        try:
            # With line breaks, as programs write it.
            return binascii.a2b_base64(content.encode("ascii").translate(None, b" \t\r\n"), strict_mode=True)
        except ValueError as exc:
            raise ValueError(f"the content is not base64: {exc}") from None


def _block(content: Content) -> ContentBlock:
    """Returns text as text, a picture as a picture, and anything else as a resource."""
    data = content.data
    if content.mime_type != TAR and b"\0" not in data:
        try:
            return TextContent(text=data.decode())
        except UnicodeDecodeError:
            pass
    encoded = binascii.b2a_base64(data, newline=False).decode()
    if len(data) <= MAX_IMAGE:
        for mime_type, beginnings in _IMAGES.items():
            if data.startswith(beginnings):
                return ImageContent(data=encoded, mime_type=mime_type)
    uri = content.transferred.path.as_uri()
    return EmbeddedResource(resource=BlobResourceContents(uri=uri, mime_type=content.mime_type, blob=encoded))


def _report(done: Transferred, encoding: Encoding) -> str:
    files = "" if encoding != "tar" else "1 file with " if done.files == 1 else f"{done.files} files with "
    verb = "Replaced" if done.replaced else "Wrote"
    return "\n".join(filter(None, [f"{verb} {printable(done.path)}: {files}{done.size} bytes.", _left_out(done)]))


def _left_out(done: Transferred) -> str:
    return f"Left out: {', '.join(done.left_out)}." if done.left_out else ""


def _answer(*content: ContentBlock, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[*content], is_error=is_error)
