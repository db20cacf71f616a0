"""Results of `tools/call`: what the server returned is kept, even if parts of it don't follow MCP. Pure.

The tool has run, so a result that is refused is lost. The SDK refuses a whole result for one wrong value in it and,
before protocol version 2026-07-28, structured content that is not an object. So it gets a result that it accepts:

    content              text of blocks in another form, or a file with the JSON of an unknown block
    isError              a boolean
    structuredContent    in `_meta`, if it is not an object; `restored` puts it back
"""

import base64
import json
from functools import cache
from typing import Any, cast

from mcp_types import CallToolResult, ContentBlock
from mcp_types.methods import validate_server_result
from pydantic import TypeAdapter, ValidationError

JSON = dict[str, Any]

_KNOWN = {"content", "structuredContent", "isError", "_meta", "resultType"}
_STRUCTURED = "ipybox/structuredContent"
#: Types of images, by the start of their base64.
_IMAGES = {"iVBORw0KGg": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}


def repaired_result(result: JSON, version: str) -> JSON:
    """Returns a result that the SDK accepts.

    Args:
        result: The server's answer.
        version: The version of the protocol.
    """
    if result.get("resultType") == "input_required":
        return result
    structured, meta = result.get("structuredContent"), result.get("_meta")
    flag = result.get("isError")
    repaired: JSON = {
        "resultType": "complete",
        "content": [_repaired_block(block, version) for block in _blocks(result)],
        "isError": bool(flag) and str(flag).strip().lower() != "false",
    }
    if isinstance(meta, dict) and _is_valid({"resultType": "complete", "content": [], "_meta": meta}, version):
        repaired["_meta"] = meta
    if isinstance(structured, dict):
        repaired["structuredContent"] = structured
    elif structured is not None:
        repaired["_meta"] = {**repaired.get("_meta", {}), _STRUCTURED: structured}
    return repaired


def restored(result: CallToolResult) -> CallToolResult:
    """Returns the result with the structured content that `repaired_result` hid from the SDK."""
    meta = dict(result.meta or {})
    if _STRUCTURED not in meta:
        return result
    structured = meta.pop(_STRUCTURED)
    return result.model_copy(update={"structured_content": structured, "meta": meta or None})


def _blocks(result: JSON) -> list[Any]:
    content = result.get("content")
    if isinstance(content, list):
        return cast("list[Any]", content)
    if content is not None:
        return [content]
    # Some servers return their data as the result itself.
    rest = {name: value for name, value in result.items() if name not in _KNOWN}
    return [rest] if rest and result.get("structuredContent") is None else []


def _repaired_block(block: Any, version: str) -> JSON:
    match block:
        case {"type": "text", "text": str(), **rest} if not rest:
            return cast(JSON, block)
        case {"type": "image" | "audio", "data": str(), "mimeType": str(), **rest} if not rest:
            return cast(JSON, block)
        case {"type": str() as kind}:
            candidates = (cast(JSON, block), _essence(cast(JSON, block)))
            return next((each for each in candidates if _is_block(each, version)), None) or _as_file(block, str(kind))
        case _:
            return {"type": "text", "text": _as_text(block)}


def _essence(block: JSON) -> JSON:
    """Returns only what a block needs, and what it lacks where that is clear."""
    match block:
        case {"type": "resource", "resource": {"uri": uri, **resource}}:
            return {"type": "resource", "resource": {"uri": str(uri), **_strings(resource, "mimeType", "text", "blob")}}
        case {"type": "resource", "resource": {**resource}}:
            return {"type": "resource", "resource": {"uri": "", **_strings(resource, "mimeType", "text", "blob")}}
        case {"type": "resource_link", "uri": str(uri)}:
            named = _strings(block, "name", "title", "mimeType", "description")
            return {"type": "resource_link", "uri": uri, "name": uri, **named}
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            found = [name for start, name in _IMAGES.items() if kind == "image" and data.startswith(start)]
            return {"type": kind, "data": data, "mimeType": "".join(found), **_strings(block, "mimeType")}
        case {"text": text}:
            return {"type": "text", "text": _as_text(text)}
        case _:
            return block


def _strings(block: JSON, *names: str) -> JSON:
    return {name: block[name] for name in names if isinstance(block.get(name), str)}


def _as_file(block: JSON, kind: str) -> JSON:
    """Returns a block that code gets as a file with the JSON of another one."""
    data = base64.b64encode(json.dumps(block).encode()).decode()
    resource = {"uri": f"content:{kind[:20]}", "mimeType": "application/json", "blob": data}
    return {"type": "resource", "resource": resource}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_block(block: JSON, version: str) -> bool:
    try:
        _content_block().validate_python(block, by_name=False)
    except ValidationError:
        return False
    return _is_valid({"resultType": "complete", "content": [block]}, version)


@cache
def _content_block() -> TypeAdapter[Any]:
    return TypeAdapter(ContentBlock)


def _is_valid(result: JSON, version: str) -> bool:
    try:
        validate_server_result("tools/call", version, result)
    except ValidationError:
        return False
    return True
