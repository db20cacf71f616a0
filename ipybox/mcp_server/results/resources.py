"""Outputs as MCP resources, read page by page because clients limit how much they pass on to a model.

    ipybox://outputs/<name>?offset=<bytes>

The first content of a read is a page, exactly as it was printed. Unless it is the last one, a line for the
model follows with the address of the next page, which programs find in the page's `_meta`.
"""

import re
from collections.abc import Iterable
from typing import Any

import anyio.to_thread
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, GetPromptResult, Resource, ResourceTemplate

from ipybox.mcp_server.results.store import OutputPage, OutputStore
from ipybox.mcp_server.stdio import StrictStdioServer

TEMPLATE = "ipybox://outputs/{name}{?offset}"

#: Keys of a page's `_meta`: the address of the next page, and the bytes of the full output.
NEXT, SIZE = "ipybox/next", "ipybox/size"

_URI = re.compile(r"ipybox://outputs/([0-9a-f]+)(?:\?offset=(\d{1,15}))?", re.ASCII)


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
