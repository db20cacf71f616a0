"""Schemas that use every keyword of JSON Schema in the ways that servers do, and the tools of real servers.

Values that no generator finds by itself (those of a `pattern`, above all) are among the `examples`.
"""

import asyncio
import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ipybox.mcp_apigen.package.files import ToolSpec
from ipybox.mcp_client.client import MCPClient
from tests import servers

_DRAFT_4 = "http://json-schema.org/draft-04/schema#"
_DRAFT_6 = "http://json-schema.org/draft-06/schema#"
_DRAFT_7 = "http://json-schema.org/draft-07/schema#"
_DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
_DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"

_NODE: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "child-nodes": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 3},
        "parent": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
    },
}

SCHEMAS: dict[str, Any] = {
    "names": {
        "type": "object",
        "properties": {
            name: {"type": ["integer", "null"]}
            for name in ("from", "max-results", "$id", "2fa", "class", "_id", "schema", "model_config", "self", "größe")
        },
        "required": ["from", "$id", "class"],
    },
    "nulls": {
        "type": "object",
        "required": ["sent"],
        "properties": {
            "sent": {"type": ["string", "null"]},
            "maybe": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
            "only": {"type": "null"},
        },
    },
    "required defaults": {
        "type": "object",
        "properties": {
            "scale": {"enum": ["css", "device"], "default": "css"},
            "page": {"type": "integer", "default": 1, "minimum": 1, "maximum": 100},
            "from": {"type": ["string", "null"], "default": None},
            "formats": {"type": "array", "items": {"type": "string"}, "default": ["markdown"], "uniqueItems": True},
            "options": {
                "type": "object",
                "properties": {"deep": {"type": "boolean", "default": True}},
                "required": ["deep"],
                "default": {},
            },
        },
        "required": ["scale", "page", "from", "formats", "options"],
        "additionalProperties": False,
    },
    "defaults": {
        "type": "object",
        "properties": {
            "page": {"type": "integer", "default": 1, "minimum": 1, "maximum": 100},
            "sort": {"enum": ["created-at", "title"], "default": "title"},
            "options": {"type": "object", "properties": {"deep": {"type": "boolean", "default": True}}, "default": {}},
        },
    },
    "enums": {
        "type": "object",
        "properties": {
            "text": {"enum": ["a", "b-c", "name", "", "ä"]},
            "integer": {"type": "integer", "enum": [1, 2, 3]},
            "number": {"enum": [1, 2.5]},
            "boolean": {"enum": [True]},
            "mixed": {"enum": ["1", 1, None, False]},
            "structures": {"enum": [[1, [2]], {"a": [True]}, {}]},
            "nullable": {"type": ["string", "null"], "enum": ["a", "b", None]},
            "many": {"enum": [f"value {n}" for n in range(300)]},
        },
    },
    "constants": {
        "type": "object",
        "properties": {
            "text": {"const": "v2"},
            "integer": {"const": 0},
            "boolean": {"const": False},
            "null": {"const": None},
            "structure": {"const": {"a": [1, {"b": None}]}},
        },
        "required": ["text", "boolean"],
    },
    "numbers": {
        "type": "object",
        "properties": {
            "integer": {"type": "integer", "minimum": -3, "maximum": 3},
            "exclusive": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "even": {"type": "integer", "multipleOf": 2},
            "whole": {"type": "integer", "examples": [2.0, 3]},
            "half": {"type": "number", "multipleOf": 0.5},
            "big": {"type": "integer", "minimum": 10**15},
            "any": {"type": "number"},
        },
    },
    "texts": {
        "type": "object",
        "properties": {
            "short": {"type": "string", "minLength": 2, "maxLength": 4},
            "word": {"type": "string", "pattern": "^[a-z]+$", "examples": ["abc", "z"]},
            "ahead": {"type": "string", "pattern": "^(?=.*\\d)\\w+$", "examples": ["a1", "1"]},
            "digits": {"pattern": "^\\d{3}$", "examples": ["123", 5, None]},
        },
    },
    "formats": {
        "type": "object",
        "properties": {
            "uri": {"type": "string", "format": "uri", "examples": ["HTTP://Example.COM", "http://a/b?c#d"]},
            "uuid": {"type": "string", "format": "uuid", "examples": ["0D3EE9A4E4F34C2C9B4B5A0B9E3C1C11"]},
            "time": {"type": "string", "format": "date-time", "examples": ["2026-11-01T00:00:00+0000", "2026"]},
            "day": {"type": "string", "format": "date", "examples": ["2026-11-01"]},
            "mail": {"type": "string", "format": "email", "examples": ["A@B.c"]},
            "secret": {"type": "string", "format": "password", "examples": ["pass"]},
            "bytes": {"type": "string", "format": "byte", "contentEncoding": "base64", "examples": ["aGk="]},
            "int64": {"type": "integer", "format": "int64"},
        },
    },
    "arrays": {
        "type": "object",
        "properties": {
            "texts": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": 4},
            "unique": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True},
            "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
            "row": {"type": "array", "prefixItems": [{"const": "row"}], "items": {"type": "number"}, "minItems": 1},
            "matrix": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
            "some": {"type": "array", "contains": {"type": "integer"}, "minContains": 1, "maxContains": 2},
        },
    },
    "closed": {
        "type": "object",
        "properties": {"a-b": {"type": "string"}, "c": {"type": "object", "additionalProperties": False}},
        "required": ["a-b"],
        "additionalProperties": False,
    },
    "typed extras": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "labels": {"additionalProperties": {"type": "integer"}}},
        "additionalProperties": {"type": "integer"},
    },
    "dictionaries": {
        "type": "object",
        "properties": {
            "open": {"type": "object"},
            "texts": {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1},
            "lists": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "boolean"}}},
            "small": {"type": "object", "maxProperties": 1},
            "named": {"type": "object", "propertyNames": {"maxLength": 3}},
        },
    },
    "pattern properties": {
        "type": "object",
        "properties": {"plain": {"type": "string"}},
        "patternProperties": {"^x-": {"type": "string"}, "^n": {"type": "integer"}},
        "additionalProperties": False,
    },
    "dependent": {
        "type": "object",
        "properties": {"card": {"type": "string"}, "address": {"type": "string"}, "vat": {"type": "string"}},
        "dependentRequired": {"card": ["address"]},
        "dependentSchemas": {"vat": {"required": ["card"], "properties": {"address": {"minLength": 2}}}},
    },
    "recursion": {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "required": ["tree"],
        "$defs": {"node": _NODE},
    },
    "recursive root": {
        "type": "object",
        "properties": {"not-here": {"$ref": "#"}, "value": {"type": "integer"}},
        "additionalProperties": False,
    },
    "references": {
        "$schema": _DRAFT_2020,
        "$id": "https://example.invalid/root",
        "type": "object",
        "properties": {
            "by-name": {"$ref": "#/$defs/word", "maxLength": 3},
            "by-anchor": {"$ref": "#point"},
            "by-id": {"$ref": "https://example.invalid/other"},
            "escaped": {"$ref": "#/$defs/a~1b%25"},
        },
        "$defs": {
            "word": {"type": "string", "minLength": 1},
            "point": {"$anchor": "point", "type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
            "other": {"$id": "https://example.invalid/other", "type": "boolean"},
            "a/b%": {"type": "integer"},
        },
    },
    "all of": {
        "type": "object",
        "allOf": [
            {"$ref": "#/$defs/base"},
            {"properties": {"b": {"type": "integer", "minimum": 3}}, "required": ["b"]},
            {"properties": {"b": {"maximum": 5}}},
        ],
        "$defs": {"base": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}},
    },
    "any of": {
        "type": "object",
        "properties": {
            "id": {"anyOf": [{"type": "integer"}, {"type": "string", "minLength": 1}]},
            "to": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
            "a": {},
            "b": {},
        },
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "one of": {
        "type": "object",
        "required": ["shape"],
        "properties": {
            "shape": {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
                        "required": ["kind", "r"],
                    },
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "box"}, "side-length": {"type": "integer"}},
                        "required": ["kind"],
                    },
                ]
            },
            "exact": {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 5}]},
            "titled": {"oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]},
        },
    },
    "not": {
        "type": "object",
        "properties": {"text": {"type": "string", "not": {"const": "x"}}, "value": {"not": {"type": "string"}}},
        "not": {"required": ["text", "value"]},
    },
    "conditions": {
        "type": "object",
        "properties": {"kind": {"enum": ["post", "mail"]}, "zip": {"type": "string"}, "box": {"type": "string"}},
        "required": ["kind"],
        "if": {"properties": {"kind": {"const": "post"}}},
        "then": {"required": ["zip"]},
        "else": {"properties": {"zip": {"maxLength": 1}}},
    },
    "booleans": {
        "type": "object",
        "properties": {"any": True, "never": False, "rows": {"type": "array", "items": True}},
        "required": ["any"],
    },
    "unevaluated": {
        "$schema": _DRAFT_2020,
        "type": "object",
        "allOf": [{"properties": {"a": {"type": "string"}}}],
        "properties": {"b": {"type": "array", "prefixItems": [{"type": "integer"}], "unevaluatedItems": False}},
        "unevaluatedProperties": False,
    },
    "without type": {"properties": {"a": {"properties": {"b": {"type": "integer"}}}, "c": {"items": {"maximum": 1}}}},
    "type lists": {
        "type": "object",
        "properties": {
            "id": {"type": ["integer", "string"], "minimum": 1, "minLength": 2},
            "any": {"type": ["string", "number", "boolean", "object", "array", "null"]},
            "many": {"type": ["array", "object"], "items": {"type": "string"}, "properties": {"a": {"type": "null"}}},
        },
    },
    "draft 4": {
        "$schema": _DRAFT_4,
        "id": "http://example.invalid/draft4",
        "type": "object",
        "properties": {
            "above": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
            "row": {"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "integer"}},
            "named": {"$ref": "#/definitions/named"},
        },
        "definitions": {"named": {"type": "string", "enum": ["a", "b"]}},
    },
    "draft 6": {
        "$schema": _DRAFT_6,
        "type": "object",
        "properties": {
            "a": {"const": 1},
            "b": {"exclusiveMinimum": 0, "type": "number"},
            "c": {"$ref": "#/properties/a"},
        },
        "propertyNames": {"maxLength": 5},
    },
    "draft 7": {
        "$schema": _DRAFT_7,
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/short", "maxLength": 1}, "b": {"type": "integer"}, "c": {}},
        "dependencies": {"b": ["a"], "c": {"required": ["b"]}},
        "definitions": {"short": {"type": "string", "maxLength": 2}},
        "additionalProperties": False,
    },
    "draft 2019-09": {
        "$schema": _DRAFT_2019,
        "type": "object",
        "properties": {"tags": {"type": "array", "items": [{"type": "string"}], "additionalItems": False}, "n": {}},
        "dependentRequired": {"tags": ["n"]},
    },
}  # fmt: skip


def own_tools() -> list[ToolSpec]:
    """A tool for each of the schemas, which also is that of its result."""
    return [ToolSpec(name, f"Tests {name}.", schema, schema) for name, schema in SCHEMAS.items()]


@cache
def real_servers() -> dict[str, list[ToolSpec]]:
    """The tools of real servers, by the server's name; they are asked once."""
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_ask(dict(_installed(Path(directory)))))


def _installed(directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "everything", servers.everything()
    yield "filesystem", servers.filesystem(directory)
    yield "memory", servers.memory(directory / "memory.json")
    yield "time", servers.time_()
    yield "git", {"command": sys.executable, "args": ["-m", "mcp_server_git"]}
    yield "ipybox", {"command": sys.executable, "args": ["-m", "ipybox.mcp_server", "--workspace", str(directory)]}
    # Its dependencies don't agree with those of ours everywhere.
    if importlib.util.find_spec("mcp_server_fetch"):
        yield "fetch", {"command": sys.executable, "args": ["-m", "mcp_server_fetch"]}


async def _ask(params: dict[str, dict[str, Any]]) -> dict[str, list[ToolSpec]]:
    asked: dict[str, list[ToolSpec]] = {}
    for name, each in params.items():
        async with MCPClient(each, servers.WAIT) as client:
            tools = await client.list_tools()
        asked[name] = [ToolSpec(tool.name, tool.description, tool.input_schema, tool.output_schema) for tool in tools]
    return asked
