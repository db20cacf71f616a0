"""Answers of servers to `tools/list` and `tools/call`: what is usable is kept, even if parts don't follow MCP.

The SDK refuses a whole answer for one wrong value in it. So a session repairs answers before the SDK checks them:

A list is checked tool by tool: a malformed tool hides no other, and a malformed title not its tool. A tool is omitted
only if it can't be called. `ToolList.remarks` names both. Icons are left out: nothing shows them.

A tool that was called has run, so a result that is refused is lost. The SDK gets an empty result, which carries the
real one past its checks (`hidden_result`). Code gets the blocks as JSON anyway.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from mcp import ClientSession
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import CallToolResult, Tool
from mcp_types.methods import validate_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

JSON = dict[str, Any]

#: Other parts of a page than its tools and cursor, which some versions require. Nothing is cached.
_PAGE = {"resultType": "complete", "cacheScope": "private", "ttlMs": 0}
#: Parts of a tool that calls don't need.
_OPTIONAL = ("title", "description", "annotations", "execution", "_meta")
_MAX_NAME = 100
#: Malformed properties of a schema that a remark names.
_MAX_NAMED = 20

#: Tools of a server: a list of more is an error.
MAX_TOOLS = 5000

_KNOWN = {"content", "structuredContent", "isError", "_meta", "resultType"}
_HIDDEN = "ipybox/result"
#: Types of images, by the start of their base64.
_IMAGES = {"iVBORw0KGg": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}


class ToolList(list[Tool]):
    """The tools of a server.

    Attributes:
        remarks: What is missing, because the server listed it in a form that MCP doesn't have.
    """

    def __init__(self) -> None:
        super().__init__()
        self.remarks: list[str] = []
        self._by_name: dict[str, Tool] = {}

    def add(self, tools: list[Tool]) -> None:
        """Adds the tools that have a new name."""
        for tool in tools:
            if tool.name not in self._by_name:
                self._by_name[tool.name] = tool
                self.append(tool)
            elif self._by_name[tool.name] != tool:
                self.remarks.append(f"tool {_shown(tool.name)} is listed twice: the second definition is ignored")


def repair_answers(session: ClientSession, on_remarks: Callable[[list[str]], None]) -> None:
    """Repairs the lists of tools of an initialized session, and hides results of calls from the SDK."""
    # The SDK has no hook of its own between the wire and its validation.
    dispatcher: Any = session._dispatcher  # pyright: ignore[reportPrivateUsage]
    send = dispatcher.send_raw_request

    async def send_raw_request(method: str, *args: Any, **options: Any) -> dict[str, Any]:
        answer = await send(method, *args, **options)
        if method == "tools/call":
            return hidden_result(answer)
        if method == "tools/list":
            # In a thread: a long list takes seconds.
            answer, remarks = await asyncio.to_thread(repaired_page, answer, str(session.protocol_version))
            on_remarks(remarks)
        return answer

    dispatcher.send_raw_request = send_raw_request


def repaired_page(page: JSON, version: str) -> tuple[JSON, list[str]]:
    """Returns a page of the list that the SDK accepts in a version of the protocol, and remarks on what is missing."""
    listed = page.get("tools")
    if not isinstance(listed, list | None):
        return page, []
    tools: list[JSON] = []
    remarks: list[str] = []
    # Servers in Go send null for an empty list.
    entries = cast("list[Any]", listed or [])
    if len(entries) > MAX_TOOLS:
        remarks.append(f"the tool list is incomplete: a page lists more than {MAX_TOOLS:,} tools")
    for number, given in enumerate(entries[: MAX_TOOLS + 1], 1):
        tool, remark = _repaired_tool(given, version, number)
        if tool:
            tools.append(tool)
        if remark:
            remarks.append(remark)
    cursor = page.get("nextCursor")
    if not isinstance(cursor, str | None):
        remarks.append("the tool list is incomplete: the server's cursor for the next page is not a string")
        cursor = None
    return {**_PAGE, "tools": tools, **({"nextCursor": cursor} if cursor else {})}, remarks


def _repaired_tool(given: Any, version: str, number: int) -> tuple[JSON | None, str | None]:
    """Returns a tool that the SDK accepts, or None if it can't be called, and a remark on what is missing."""
    tool = {key: value for key, value in cast(JSON, given).items() if key != "icons"} if isinstance(given, dict) else {}
    if not isinstance(tool.get("name"), str):
        return None, f"tool number {number} is omitted: it has no name"
    # Schemas are repaired before the SDK checks them, as it collects all mistakes: a million takes gigabytes.
    losses = _repair_schemas(tool, version)
    problem = _problem(tool, version)
    if problem is not None:
        losses += _remove_mistakes(tool, version)
        problem = _problem(tool, version)
    if problem is None and version in MODERN_PROTOCOL_VERSIONS:
        problem = find_invalid_x_mcp_header(tool["inputSchema"])  # the SDK drops such tools, as it must
    if problem is not None:
        return None, f"tool {_shown(tool['name'])} is omitted: {problem}"
    return tool, f"tool {_shown(tool['name'])}: ignored malformed {', '.join(losses)}" if losses else None


def _problem(tool: JSON, version: str) -> str | None:
    """Returns why the SDK would refuse a tool, or None."""
    try:
        validate_server_result("tools/list", version, {**_PAGE, "tools": [tool]})
        Tool.model_validate(tool, by_name=False)
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        return f"{'.'.join(map(str, error['loc']))}: {error['msg']}"
    return None


def _repair_schemas(tool: JSON, version: str) -> list[str]:
    """Replaces what of a tool's schemas the SDK would refuse, and returns its names."""
    tool["inputSchema"], losses = _schema(tool.get("inputSchema"), "inputSchema")
    output = tool.get("outputSchema")
    if version in MODERN_PROTOCOL_VERSIONS and isinstance(output, dict):
        return losses  # these allow any schema
    tool.pop("outputSchema", None)
    if output not in (None, {}):
        schema, more = _schema(output, "outputSchema")
        # Without a schema of objects, the result is text.
        tool |= {} if more == ["outputSchema"] else {"outputSchema": schema}
        losses += more
    return losses


def _remove_mistakes(tool: JSON, version: str) -> list[str]:
    """Removes the parts of a tool that it can do without and the SDK would refuse, and returns their names."""
    bare = {name: value for name, value in tool.items() if name not in _OPTIONAL}
    parts = [part for part in _OPTIONAL if tool.get(part) is not None]
    wrong = [part for part in parts if _problem({**bare, part: tool[part]}, version) is not None]
    for part in wrong:
        del tool[part]
    return wrong


def _schema(given: Any, name: str) -> tuple[JSON, list[str]]:
    """Returns a schema of objects that refuses nothing that a malformed one allows, and the names of wrong parts.

    Only what the SDK checks is repaired: generated code copes with everything else.
    """
    kinds: Any = cast(JSON, given).get("type", "object") if isinstance(given, dict) else None
    if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
        return {"type": "object"}, [name]
    schema: JSON = {**cast(JSON, given), "type": "object"}
    losses: list[str] = []
    properties: Any = schema.get("properties", {})
    if isinstance(properties, dict):
        wrong = [key for key, each in cast(JSON, properties).items() if not isinstance(each, dict | bool)]
        if wrong:
            usable = schema["properties"] = {**cast(JSON, properties), **dict.fromkeys(wrong, True)}
            for key in wrong:
                if isinstance(properties[key], list):  # a keyword in the wrong place, such as `required`
                    del usable[key]  # anything else stands for some schema
        losses += [f"{name}.properties.{_shown(key)}" for key in wrong[:_MAX_NAMED]]
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


def _shown(name: str) -> str:
    return repr(name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…")


@dataclass(frozen=True)
class ToolResult:
    """What a tool returned."""

    #: Blocks of text and images in the form of MCP; others are as the server sent them.
    content: list[JSON]
    #: Of any kind; None without any.
    structured_content: Any
    is_error: bool


def hidden_result(result: JSON) -> JSON:
    """Returns a result of a call that the SDK accepts, from which `tool_result` gets the real one."""
    if result.get("resultType") == "input_required":
        return result
    return {"resultType": "complete", "content": [], "isError": False, "_meta": {_HIDDEN: result}}


def tool_result(accepted: CallToolResult) -> ToolResult:
    """Returns the result that `hidden_result` hid."""
    result = cast(JSON, (accepted.meta or {})[_HIDDEN])
    content, structured, flag = result.get("content"), result.get("structuredContent"), result.get("isError")
    if content is None and structured is None:
        # Some servers return their data as the result itself.
        content = {name: value for name, value in result.items() if name not in _KNOWN} or None
    blocks = cast("list[Any]", content if isinstance(content, list) else [] if content is None else [content])
    failed = bool(flag) and str(flag).strip().lower() != "false"
    return ToolResult([*map(_block, blocks)], structured, failed)


def _block(block: Any) -> JSON:
    """Returns a block of text or an image in the form of MCP; code gets all others as files."""
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
