"""Hashes of the meaning of tool definitions, and of all inputs of a package.

They show whether a server has changed a tool: changing a tool after it was trusted is a known attack. Some servers
write Python sets into schemas, so that the order of words changes each time they start: only such reordering is
ignored. If the inputs of a package are unchanged, nothing needs to be generated.
"""

import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any, cast

import pydantic

from ipybox.mcp_apigen.package.manifest import sha256_hex
from ipybox.mcp_apigen.schema.values import Schema, elements, is_object, mapping, objects, strings
from ipybox.workspace.registrations import ToolSpec

_SCHEMA = {
    "additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip
_SCHEMAS_BY_NAME = {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
_SCHEMAS = {"allOf", "anyOf", "oneOf"}
_VALUES = {"enum", "required", "type"}
# Plain words only: paths, hosts, commands and options contain other characters.
_WORD = r"[^\W\d][\w-]*"
_WORDS = re.compile(rf"{_WORD}(?:, ?{_WORD})+")
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def inputs_hash(server_name: str, server_params: dict[str, Any], seal: str, tools: list[ToolSpec]) -> str | None:
    """Returns the hash of a server's tools, its parameters and the generator; None if a tool has no hash."""
    meanings = [*map(meaning_hash, tools)]
    return None if None in meanings else _hash([_generator(), server_name, server_params, seal, meanings])


@cache
def _generator() -> str:
    # The version is not enough: many commits share it, and any of them can be installed.
    package = Path(__file__).parents[2]
    sources = sorted(
        path for part in ("mcp_apigen", "guest/tools", "tool_exec") for path in (package / part).rglob("*.py")
    )
    texts = [path.read_bytes() for path in sources]
    return sha256_hex(b"\0".join([sys.version.encode(), pydantic.VERSION.encode(), *texts]))


def meaning_hash(tool: ToolSpec) -> str | None:
    """Returns a hash that is equal for definitions with the same meaning; None if a definition is nested too deeply."""
    try:
        schemas = map(_normalized, (tool.input_schema, tool.output_schema))
        chosen = [tool.chosen] if tool.chosen else []
        return _hash([tool.name, tool.description, *schemas, *tool.hints, *chosen])
    except RecursionError:
        return None


def _normalized(schema: Any) -> Any:
    """Returns a schema in which each list whose order means nothing is a sorted list of hashes.

    Hashes, because whole texts would be sorted again at each level. Only schema keywords count, not properties of the
    same name, nor keys in values such as defaults.
    """
    if not is_object(schema):
        return schema
    normalized: Schema = {}
    for keyword, value in schema.items():
        if keyword == "default":
            value = _default(value, schema)
        elif keyword in _SCHEMAS and isinstance(value, list):
            value = sorted(map(_hash, map(_normalized, elements(value))))
        elif keyword in _VALUES and isinstance(value, list):
            value = sorted(map(_hash, elements(value)))
        elif keyword in _SCHEMA:
            value = _normalized(value)
        elif keyword in _SCHEMAS_BY_NAME and is_object(value):
            value = dict(zip(value, map(_normalized, value.values()), strict=True))
        normalized[keyword] = value
    return normalized


def _default(value: Any, schema: Schema) -> Any:
    if isinstance(value, str) and _WORDS.fullmatch(value):
        return ",".join(sorted(re.split(", ?", value)))
    if isinstance(value, list) and _allows_only_sets(schema):
        return sorted(map(_hash, elements(value)))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return cast(Any, value)


def _allows_only_sets(schema: Schema) -> bool:
    """Returns whether all arrays that a schema or its alternatives allow are sets."""
    alternatives = [schema, *objects(schema.get("anyOf")), *objects(schema.get("oneOf"))]
    arrays = [each for each in alternatives if "array" in strings(mapping(each).get("type"))]
    return bool(arrays) and all(each.get("uniqueItems") is True for each in arrays)


def _hash(value: Any) -> str:
    return sha256_hex(_encode(value).encode())
