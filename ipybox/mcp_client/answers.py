"""Reads servers' answers to `tools/list` and `tools/call`, and keeps what is usable even if parts violate MCP.

The SDK rejects a whole answer for one wrong value in it. So it gets an empty answer that carries the real one past its
validation. A malformed tool doesn't hide the others in the list, and is omitted only if it can't be called. Unused
fields such as icons are not checked. A tool that was called has run, so its result must not be lost.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from mcp import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from mcp_types import INVALID_REQUEST, CallToolResult, ListToolsResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ipybox.workspace.registrations import HINTS, UNDECLARED, ToolSpec

JSON = dict[str, Any]

#: Maximum number of a server's tools. A longer list is an error.
MAX_TOOLS = 5000

#: Maximum number of blocks in a result. The rest becomes one block, because checking a million takes seconds.
MAX_BLOCKS = 10_000

#: Maximum number of a server's requests that wait until it reads the replies. Each takes several KiB.
MAX_WAITING = 1000

_KNOWN = {"content", "structuredContent", "isError", "_meta", "resultType"}
_META_KEY = "ipybox/result"
_TASK_ONLY = "Can't be called: it runs only as an MCP task, and ipybox doesn't support tasks."
#: Image types, by the first characters of their base64 data.
_IMAGES = {"iVBORw0KGg": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}


#: A tool, or None if it is omitted, and a remark on what is wrong with it.
_Found = tuple[ToolSpec | None, str | None]


class _Carrier(str):
    """Carries a value past the SDK's validation, which copies all values but texts. A million take a second."""

    __slots__ = ("value",)
    value: Any


class ToolList(list[ToolSpec]):
    """The tools of a server.

    Attributes:
        remarks: What was omitted or ignored because it violates MCP, and which tools can't be called.

    Args:
        chosen: The tools' `ToolSpec.chosen`.
    """

    def __init__(self, chosen: str = "") -> None:
        super().__init__()
        self.remarks: list[str] = []
        self._chosen = chosen
        self._places: dict[str, int] = {}

    def add(self, accepted: ListToolsResult) -> None:
        """Adds the tools that `hidden_page` hid in a page, unless their names are already listed.

        Of a tool that is listed twice, with differences, no hint counts.
        """
        for tool, remark in cast("list[_Found]", (accepted.meta or {})[_META_KEY].value):
            if remark is not None:
                self.remarks.append(remark)
            if tool is None:
                continue
            tool = replace(tool, chosen=self._chosen) if self._chosen else tool
            place = self._places.setdefault(tool.name, len(self))
            if place == len(self):
                self.append(tool)
            elif self[place] != tool:
                self[place] = replace(self[place], hints=UNDECLARED)
                self.remarks.append(f"tool {tool.name!r} is listed twice: the second definition is ignored")


def wrap_dispatcher(session: ClientSession, on_excess: Callable[[str], None]) -> None:
    """Hides tool lists and call results from the validation of an initialized session, and limits requests.

    `on_excess` ends the connection if too many of the server's requests wait until it reads the replies.
    """
    # The SDK has no hook between the wire and its validation, and starts a task for each request.
    dispatcher: Any = session._dispatcher  # pyright: ignore[reportPrivateUsage]
    send, handle, waiting = dispatcher.send_raw_request, dispatcher._handle_request, 0

    async def send_raw_request(method: str, *args: Any, **options: Any) -> dict[str, Any]:
        answer = await send(method, *args, **options)
        if method == "tools/call":
            return hidden_result(answer)
        if method == "ping":
            return {}
        if method == "tools/list":
            # In a thread: a long list takes a second.
            return await asyncio.to_thread(hidden_page, answer, str(session.protocol_version))
        return answer

    async def handle_request(*args: Any) -> None:
        nonlocal waiting
        waiting += 1
        try:
            if waiting <= MAX_WAITING:
                await handle(*args)
            else:
                on_excess(f"it sent {MAX_WAITING:,} requests without reading the replies")
        finally:
            waiting -= 1

    dispatcher.send_raw_request = send_raw_request
    dispatcher._handle_request = handle_request


def hidden_page(page: JSON, version: str) -> JSON:
    """Returns a page that the SDK accepts and from which `ToolList.add` extracts the real one."""
    listed, cursor = page.get("tools"), page.get("nextCursor")
    if not isinstance(listed, list | None):
        return page
    found: list[_Found] = []
    tools: list[JSON] = []
    # Servers in Go send null for an empty list.
    for number, given in enumerate(cast("list[Any]", listed or []), 1):
        tool, remark = _usable(given, version, number)
        found.append((tool, remark))
        # The SDK derives the headers of calls from these schemas.
        if version in MODERN_PROTOCOL_VERSIONS and tool is not None and x_mcp_header_map(tool.input_schema):
            tools.append({"name": tool.name, "inputSchema": tool.input_schema})
    if not isinstance(cursor, str | None):
        found.append((None, "the tool list is incomplete: the server's cursor for the next page is not a string"))
        cursor = None
    required = {"resultType": "complete", "cacheScope": "private", "ttlMs": 0}
    carrier = _Carrier()
    carrier.value = found
    return {**required, "tools": tools, **({"nextCursor": cursor} if cursor else {}), "_meta": {_META_KEY: carrier}}


def _usable(given: Any, version: str, number: int) -> _Found:
    """Returns the usable parts of a tool's definition in a protocol version, and a remark on the others."""
    tool = cast(JSON, given) if isinstance(given, dict) else {}
    name, description, execution = map(tool.get, ("name", "description", "execution"))
    output: JSON | None = tool.get("outputSchema")
    if not isinstance(name, str):
        return None, f"tool number {number} is omitted: it has no name"
    schema, losses = _schema(tool.get("inputSchema"), "inputSchema")
    is_modern = version in MODERN_PROTOCOL_VERSIONS
    if is_modern and (problem := find_invalid_x_mcp_header(schema)) is not None:
        return None, f"tool {name!r} is omitted: {problem}"  # the SDK drops such tools, as MCP requires
    if output in (None, {}):
        output = None
    elif not (is_modern and isinstance(cast(object, output), dict)):  # newer versions allow any schema
        output, more = _schema(output, "outputSchema")
        # Without an object schema, the result is text.
        output = None if more == ["outputSchema"] else output
        losses += more
    if not isinstance(description, str | None):
        description = None
        losses.append("description")
    problems = [f"ignored malformed {', '.join(losses)}"] if losses else []
    if isinstance(execution, dict) and cast(JSON, execution).get("taskSupport") == "required":
        description = f"{_TASK_ONLY}\n\n{description or ''}"
        problems.append(_TASK_ONLY)
    remark = f"tool {name!r}: {'; '.join(problems)}" if problems else None
    return ToolSpec(name, description, schema, output, _hints(tool.get("annotations"))), remark


def _hints(given: Any) -> tuple[str, ...]:
    """Returns the names of the hints that apply. A malformed hint counts as missing, as does any in malformed ones."""
    declared = cast(JSON, given) if isinstance(given, dict) else {}
    applying: list[str] = []
    for key, name in HINTS.items():
        value = declared.get(key)
        applies = value if isinstance(value, bool) else name in UNDECLARED
        if applies and not (name == "destructive" and "read_only" in applying):
            applying.append(name)
    return tuple(applying)


def _schema(given: Any, name: str) -> tuple[JSON, list[str]]:
    """Returns an object schema that allows at least what a malformed one does, and the names of the malformed parts.

    Generated code copes with other errors.
    """
    kinds: Any = cast(JSON, given).get("type", "object") if isinstance(given, dict) else None
    if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
        return {"type": "object"}, [name]
    schema: JSON = {**cast(JSON, given), "type": "object"}
    losses: list[str] = []
    properties: Any = schema.get("properties", {})
    if isinstance(properties, dict):
        usable = {**cast(JSON, properties)}
        for key, each in cast(JSON, properties).items():
            if isinstance(each, dict | bool):
                continue
            usable[key] = True
            if isinstance(each, list):  # a keyword in the wrong place, such as `required`
                del usable[key]
            losses.append(f"{name}.properties.{key!r}")
        if losses:
            schema["properties"] = usable
    else:
        losses.append(f"{name}.properties")
        del schema["properties"]
    required: Any = schema.get("required", [])
    if not isinstance(required, list) or not {*map(type, cast("list[Any]", required))} <= {str}:
        losses.append(f"{name}.required")
        del schema["required"]
    if not isinstance(schema.get("$schema"), str | None):
        del schema["$schema"]
    return schema, losses


@dataclass(frozen=True)
class ToolResult:
    """What a tool returned."""

    #: Text and image blocks follow MCP; others are as the server sent them.
    content: list[JSON]
    #: Any JSON value; None if absent.
    structured_content: Any
    is_error: bool


def hidden_result(result: JSON) -> JSON:
    """Returns a call result that the SDK accepts and from which `tool_result` extracts the real one.

    Raises an MCPError if the server asks for input: the SDK would start a task for each of a million questions.
    """
    if result.get("resultType") == "input_required":
        if result.get("inputRequests"):
            raise MCPError(INVALID_REQUEST, "the tool asks for input from the user or a model, which ipybox can't give")
        return {"resultType": "input_required", "requestState": result.get("requestState")}
    carrier = _Carrier()
    carrier.value = result
    return {"resultType": "complete", "content": [], "isError": False, "_meta": {_META_KEY: carrier}}


def tool_result(accepted: CallToolResult) -> ToolResult:
    """Returns the result that `hidden_result` hid."""
    result = cast(JSON, (accepted.meta or {})[_META_KEY].value)
    content, structured, flag = result.get("content"), result.get("structuredContent"), result.get("isError")
    if content is None and structured is None:
        # Some servers return their data as the result itself.
        content = {name: value for name, value in result.items() if name not in _KNOWN} or None
    blocks = cast("list[Any]", content if isinstance(content, list) else [] if content is None else [content])
    if more := blocks[MAX_BLOCKS:]:
        blocks[MAX_BLOCKS:] = [_as_text(more)]
    failed = bool(flag) and str(flag).strip().lower() != "false"
    return ToolResult([*map(_block, blocks)], structured, failed)


def _block(block: Any) -> JSON:
    """Returns a text or image block as MCP defines it, and others unchanged: code gets those as files."""
    match block:
        case {"type": "text", "text": str()}:
            return cast(JSON, block)
        case {"type": "image", "data": str(data)} if not isinstance(block.get("mimeType"), str):
            kinds = [kind for start, kind in _IMAGES.items() if data.startswith(start)]
            return {"type": "image", "data": data, "mimeType": "".join(kinds)}
        case {"type": str(), "text": text}:
            return {"type": "text", "text": _as_text(text)}
        case {"type": str(kind)} if kind != "text":
            return cast(JSON, block)
        case _:
            return {"type": "text", "text": _as_text(block)}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
