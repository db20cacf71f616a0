"""Full outputs, in a directory of the workspace that sandboxed code can't write to, and as MCP resources.

Without a sandbox, code can write there, so links are not followed and only file names are trusted. Names are
timestamps, which sort by age. Servers of the same workspace share the directory.

Resources are read page by page because clients limit how much they pass on to a model:

    ipybox://outputs/<name>?offset=<bytes>

The first content of a read is a page, exactly as it was printed. Unless it is the last one, a line for the
model follows with the address of the next page, which programs find in the page's `_meta`.
"""

import codecs
import os
import re
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import anyio.to_thread
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, GetPromptResult, Resource, ResourceTemplate

from ipybox.mcp_server.stdio import StrictStdioServer
from ipybox.support.names import STATE_DIR
from ipybox.support.safe_directory import Directory, open_directory
from ipybox.support.state import make_ipybox_dir

#: Limits of the kept outputs: their number and total bytes. The newest one is kept at any size.
MAX_FILES = 100
MAX_BYTES = 256 << 20

#: Bytes of one page: clients pass this much to a model without truncating it.
PAGE_BYTES = 32 << 10

_SUFFIX = ".txt"
_NAME = re.compile(r"[0-9a-f]{11}", re.ASCII)


TEMPLATE = "ipybox://outputs/{name}{?offset}"

#: Keys of a page's `_meta`: the address of the next page, and the bytes of the full output.
NEXT, SIZE = "ipybox/next", "ipybox/size"

_URI = re.compile(r"ipybox://outputs/([0-9a-f]+)(?:\?offset=(\d{1,15}))?", re.ASCII)


class StoredOutput(NamedTuple):
    """A kept output: its name, which sorts by age, and its size in bytes of UTF-8."""

    name: str
    size: int


class OutputPage(NamedTuple):
    """A part of an output, cut between characters and, unless a line is long, between lines.

    `end` is the byte offset of the next part, and `size` the bytes of the full output.
    """

    text: str
    end: int
    size: int


class OutputStore:
    """The outputs of one workspace. Its methods block, and can be called from several threads."""

    def __init__(self, workspace: Path, *, max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES):
        self._workspace = workspace
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        #: The timestamp in the last name, which is never reused, even if that output is removed.
        self._last = 0

    def save(self, text: str) -> str:
        """Writes an output, and returns its name; raises an OSError if that fails."""
        data = text.encode(errors="replace")
        make_ipybox_dir(self._workspace)
        with self._lock, self._open(create=True) as directory:
            self._make_room(directory, len(data))
            return self._write(directory, data)

    def path(self, name: str) -> Path:
        """Returns the path of an output's file."""
        return self._workspace / STATE_DIR / "outputs" / f"{name}{_SUFFIX}"

    def page(self, name: str, offset: int = 0) -> OutputPage:
        """Returns the page of an output that starts at a byte offset, or at the next whole character.

        Raises a ValueError if the output does not exist or ends before the offset, and an OSError if it can't be read.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of an output")
        try:
            with self._open() as directory, directory.open_file(f"{name}{_SUFFIX}") as file:
                file.seek(offset)
                data, size = file.read(PAGE_BYTES), os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            raise ValueError(
                f"output {name} not found: ipybox keeps the last {self._max_files} outputs, up to "
                f"{self._max_bytes >> 20} MiB in total"
            ) from None
        if offset > size:
            raise ValueError(f"offset {offset} is past the end of output {name} ({size} bytes)")
        if offset + len(data) < size and (lines := data.rfind(b"\n") + 1) > PAGE_BYTES // 2:
            data = data[:lines]
        start = next((i for i, byte in enumerate(data) if byte & 0xC0 != 0x80), len(data))
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(data[start:], final=offset + len(data) >= size)
        return OutputPage(text, offset + len(data) - len(decoder.getstate()[0]), size)

    def kept(self) -> list[StoredOutput]:
        """Returns the kept outputs, newest first."""
        try:
            with self._open() as directory:
                return _list_outputs(directory)[::-1]
        except OSError:
            return []

    def _open(self, *, create: bool = False) -> AbstractContextManager[Directory]:
        return open_directory(self.path("").parent, untrusted_root=self._workspace, create=create)

    def _make_room(self, directory: Directory, size: int) -> None:
        kept = _list_outputs(directory)
        size += sum(one.size for one in kept)
        while kept and (len(kept) >= self._max_files or size > self._max_bytes):
            oldest = kept.pop(0)
            directory.remove(f"{oldest.name}{_SUFFIX}")
            size -= oldest.size

    def _write(self, directory: Directory, data: bytes) -> str:
        self._last = max(time.time_ns() // 1_000_000, self._last)
        while True:  # other servers may use the name
            self._last += 1
            name = f"{self._last:011x}"
            with suppress(FileExistsError):
                directory.write_new(f"{name}{_SUFFIX}", data)
                return name


def _list_outputs(directory: Directory) -> list[StoredOutput]:
    """Returns the kept outputs, oldest first."""
    kept: list[StoredOutput] = []
    for file in sorted(directory.names()):
        name = file.removesuffix(_SUFFIX)
        if name != file and _NAME.fullmatch(name):
            with suppress(OSError):  # another server has removed it
                kept.append(StoredOutput(name, directory.stat(file).st_size))
    return kept


def output_uri(name: str, offset: int = 0) -> str:
    """Returns the URI of an output, or of its page at an offset."""
    return f"ipybox://outputs/{name}" + (f"?offset={offset}" if offset else "")


class OutputResourceServer(StrictStdioServer):
    """The SDK's server, with a store's outputs as resources; other arguments are passed on."""

    def __init__(self, store: OutputStore, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._store = store

    async def list_resources(self) -> list[Resource]:
        """Returns the kept outputs, newest first."""
        return [
            Resource(uri=output_uri(kept.name), name=kept.name, mime_type="text/plain", size=kept.size)
            for kept in await anyio.to_thread.run_sync(self._store.kept)
        ]

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """Returns the one template."""
        description = "A cell's output, starting at a byte offset; the result includes the next page's address"
        return [ResourceTemplate(uri_template=TEMPLATE, name="output", description=description, mime_type="text/plain")]

    async def get_prompt(self, name: str, *_: object, **__: object) -> GetPromptResult:
        """Raises an MCPError: the SDK would report an unknown prompt as a server failure."""
        raise MCPError(code=INVALID_PARAMS, message=f"Unknown prompt: {name}")

    async def read_resource(self, uri: Any, context: object = None) -> Iterable[ReadResourceContents]:
        """Returns a page; raises a ResourceError if the address has no output, or the output can't be read."""
        found = _URI.fullmatch(str(uri))
        if found is None:
            raise ResourceNotFoundError(f"{uri} is not an output address: it must look like {TEMPLATE}")
        name, offset = found[1], int(found[2] or 0)
        try:
            page = await anyio.to_thread.run_sync(self._store.page, name, offset)
        except ValueError as exc:
            raise ResourceNotFoundError(str(exc)) from exc
        except OSError as exc:
            raise ResourceError(f"can't read output {name}: {exc}") from exc
        return _contents(name, offset, page)


def _contents(name: str, offset: int, page: OutputPage) -> list[ReadResourceContents]:
    meta: dict[str, Any] = {SIZE: page.size}
    if page.end >= page.size:
        return [ReadResourceContents(page.text, "text/plain", meta)]
    following = output_uri(name, page.end)
    line = f"[ipybox] Bytes {offset}-{page.end} of {page.size}. Next: {following}"
    contents = ((page.text, meta | {NEXT: following}), (line, None))
    return [ReadResourceContents(text, "text/plain", about) for text, about in contents]
