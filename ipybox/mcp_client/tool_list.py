"""Answers to `tools/list`, tool by tool: a malformed tool hides no other, and a malformed icon not its tool. Pure.

The SDK refuses a whole answer for one wrong value in it. So each tool is checked alone: what in it is malformed is
removed, and it is omitted only if it can't be called. `ToolList.remarks` names both.
"""

from typing import Any, cast

from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import Tool
from mcp_types.methods import validate_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

JSON = dict[str, Any]

#: Other parts of a page than its tools and cursor, which some versions require. Nothing is cached.
_PAGE = {"resultType": "complete", "cacheScope": "private", "ttlMs": 0}
#: Parts of a tool that calls don't need.
_OPTIONAL = ("title", "description", "annotations", "icons", "execution", "_meta")
_MAX_NAME = 100


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


def repaired_page(page: JSON, version: str) -> tuple[JSON, list[str]]:
    """Returns a page of the list that the SDK accepts, and remarks on what is missing in it.

    Args:
        page: The server's answer.
        version: The version of the protocol.
    """
    listed = page.get("tools")
    if not isinstance(listed, list | None):
        return page, []
    tools: list[JSON] = []
    remarks: list[str] = []
    # Servers in Go send null for an empty list.
    for number, given in enumerate(cast("list[Any]", listed or []), 1):
        tool, remark = _repaired_tool(given, version, number)
        tools += [tool] if tool else []
        remarks += [remark] if remark else []
    cursor = page.get("nextCursor")
    if not isinstance(cursor, str | None):
        remarks.append("the tool list is incomplete: the server's cursor for the next page is not a string")
        cursor = None
    return {**_PAGE, "tools": tools, **({"nextCursor": cursor} if cursor else {})}, remarks


def _repaired_tool(given: Any, version: str, number: int) -> tuple[JSON | None, str | None]:
    """Returns a tool that the SDK accepts, or None if it can't be called, and a remark on what is missing."""
    tool = cast(JSON, given) if isinstance(given, dict) else {}
    if not isinstance(tool.get("name"), str):
        return None, f"tool number {number} is omitted: it has no name"
    losses: list[str] = []
    problem = _problem(tool, version)
    # What only some versions refuse is repaired in all.
    if problem is not None or _schema(tool["inputSchema"], "")[1]:
        tool, losses = _without_mistakes(tool, version)
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


def _without_mistakes(given: JSON, version: str) -> tuple[JSON, list[str]]:
    """Returns what of a tool is usable, and the names of the other parts."""
    schema, losses = _schema(given.get("inputSchema"), "inputSchema")
    tool: JSON = {"name": given["name"], "inputSchema": schema}
    if given.get("outputSchema") not in (None, {}):
        output, more = _schema(given["outputSchema"], "outputSchema")
        # Without a schema of objects, the result is text.
        tool |= {} if more == ["outputSchema"] else {"outputSchema": output}
        losses += more
    for part in _OPTIONAL:
        if given.get(part) is not None:
            if _problem({**tool, part: given[part]}, version) is None:
                tool[part] = given[part]
            else:
                losses.append(part)
    return tool, losses


def _schema(given: Any, name: str) -> tuple[JSON, list[str]]:
    """Returns a schema of objects that refuses nothing that a malformed one allows, and the names of wrong parts.

    Only what the SDK checks is repaired: generated code copes with everything else.
    """
    if not isinstance(given, dict):
        return {"type": "object"}, [name]
    schema: JSON = dict(cast(JSON, given))
    losses: list[str] = []
    kinds: Any = schema.get("type", "object")
    if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
        return {"type": "object"}, [name]
    schema["type"] = "object"
    properties: Any = schema.get("properties", {})
    if isinstance(properties, dict):
        wrong = [key for key, value in cast(JSON, properties).items() if not isinstance(value, dict | bool)]
        # A list is a keyword in the wrong place, such as `required`. Another value stands for some schema.
        misplaced = {key for key in wrong if isinstance(properties[key], list)}
        losses += [f"{name}.properties.{_shown(key)}" for key in wrong]
        kept = {key: value for key, value in cast(JSON, properties).items() if key not in misplaced}
        schema["properties"] = {**kept, **dict.fromkeys(set(wrong) - misplaced, True)}
    else:
        losses.append(f"{name}.properties")
        del schema["properties"]
    required: Any = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(key, str) for key in cast("list[Any]", required)):
        losses.append(f"{name}.required")
        del schema["required"]
    if not isinstance(schema.get("$schema"), str | None):
        del schema["$schema"]
    return schema, losses


def _shown(name: str) -> str:
    return repr(name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…")
