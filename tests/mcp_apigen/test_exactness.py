"""When a schema is checked besides the types, which costs a tool's first call some time."""

from typing import Any

import pytest

from ipybox.mcp_apigen.schema.parser import parse
from ipybox.mcp_apigen.schema.resolve import Resolver

STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}

SAID_BY_TYPES: dict[str, Any] = {
    "anything": {},
    "true": True,
    "annotations": {"title": "T", "description": "D", "default": 1, "examples": [1], "x-mine": {"not": {}}},
    "bounds": {"type": "integer", "minimum": 1, "exclusiveMaximum": 5, "multipleOf": 2},
    "string": {"type": "string", "minLength": 0, "maxLength": 9, "pattern": "^a+$", "format": "uri"},
    "letters": {"type": "string", "pattern": r"^\p{Letter}+$"},
    "bounds_of_others": {"type": "boolean", "minLength": 3, "properties": {}, "uniqueItems": True},
    "several_types": {"type": ["string", "integer", "null"], "minLength": 1, "minimum": 1},
    "list": {"type": "array", "items": {"type": "array", "items": INTEGER, "minItems": 1}, "uniqueItems": False},
    "object": {"type": "object", "properties": {"a": STRING}, "required": ["a", "b"]},
    "closed": {"type": "object", "properties": {"a": STRING}, "required": ["a"], "additionalProperties": False},
    "mapping": {"type": "object", "additionalProperties": INTEGER, "minProperties": 1},
    "empty": {"type": "object", "additionalProperties": False},
    "enum": {"type": "string", "enum": ["a", "b"]},
    "values": {"enum": [1, "a", None, [1], {"a": 1.5}]},
    "const": {"const": 0},
    "optional": {"anyOf": [STRING, {"type": "null"}], "default": None},
    "type_beside_its_alternatives": {"type": ["string", "integer"], "anyOf": [STRING, INTEGER]},
    "reference": {"$ref": "#/$defs/list", "description": "D"},
    "wrapped_reference": {"allOf": [{"$ref": "#/$defs/list"}], "default": []},
    "recursion": {"$ref": "#/$defs/node"},
}

BEYOND_TYPES: dict[str, Any] = {
    "false": False,
    "no_type": {"minLength": 1},
    "properties_of_no_type": {"properties": {"a": STRING}},
    "unknown_type": {"type": ["string", "file"]},
    "steps_of_floats": {"type": "number", "multipleOf": 0.1},
    "pattern": {"type": "string", "pattern": "(?=a)"},
    "malformed_bound": {"type": "string", "minLength": "1"},
    "flag_of_draft_4": {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
    "unique": {"type": "array", "uniqueItems": True},
    "contains": {"type": "array", "contains": INTEGER},
    "tuple": {"type": "array", "prefixItems": [INTEGER]},
    "tuple_of_draft_7": {"type": "array", "items": [INTEGER]},
    "forbidden_property": {"type": "object", "properties": {"a": False}},
    "typed_rest": {"type": "object", "properties": {"a": STRING}, "additionalProperties": INTEGER},
    "patterns": {"type": "object", "patternProperties": {"^x": INTEGER}},
    "required_of_a_mapping": {"type": "object", "required": ["a"]},
    "impossible": {"type": "object", "properties": {}, "required": ["a"], "additionalProperties": False},
    "number_of_properties": {"type": "object", "properties": {"a": STRING}, "minProperties": 1},
    "dependencies": {"type": "object", "properties": {"a": STRING}, "dependentRequired": {"a": ["b"]}},
    "enum_and_more": {"enum": ["a", "bb"], "maxLength": 1},
    "enum_against_type": {"type": "string", "enum": [1]},
    "large_enum": {"enum": [str(n) for n in range(300)]},
    "alternatives_and_more": {"minLength": 1, "anyOf": [STRING]},
    "type_against_alternatives": {"type": "string", "anyOf": [STRING, INTEGER]},
    "alternatives_of_both_kinds": {"anyOf": [STRING], "oneOf": [STRING]},
    "different_types": {"oneOf": [STRING, INTEGER, {"$ref": "#/$defs/list"}]},
    "titled_constants": {"oneOf": [{"const": "a", "title": "A"}, {"enum": ["b"]}]},
    "overlapping_types": {"oneOf": [INTEGER, {"type": "number"}]},
    "anything_or_a_string": {"oneOf": [True, STRING]},
    "nothing_known_or_a_string": {"oneOf": [{"$ref": "#/$defs/none"}, STRING]},
    "overlapping_constants": {"oneOf": [{"enum": ["a", "b"]}, {"const": "b"}]},
    "objects_by_turns": {"oneOf": [{"type": "object", "properties": {"a": STRING}}, {"type": "object"}]},
    "not": {"not": STRING},
    "condition": {"if": STRING, "then": {"minLength": 1}},
    "several_parts": {"allOf": [STRING, {"minLength": 1}]},
    "reference_and_more": {"$ref": "#/$defs/list", "maxItems": 1},
    "reference_to_nothing": {"$ref": "#/$defs/none"},
    "reference_to_more": {"$ref": "#/$defs/unique"},
    "dynamic_reference": {"$dynamicRef": "#a"},
    "draft_3": {"type": "object", "properties": {"a": {"type": "object", "required": True}}},
}

DEFINITIONS: dict[str, Any] = {
    "list": {"type": "array", "items": STRING},
    "unique": {"type": "array", "uniqueItems": True},
    "node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}},
}


def suffice(schema: Any) -> bool:
    return are_said_by_types({"properties": {"v": schema}, "required": ["v"], "$defs": DEFINITIONS})


def are_said_by_types(arguments: dict[str, Any]) -> bool:
    _, _, exact = parse(Resolver(arguments), "Params")
    return exact


@pytest.mark.parametrize("schema", SAID_BY_TYPES.values(), ids=SAID_BY_TYPES.keys())
def test_what_types_say_in_full_needs_no_check(schema: Any):
    assert suffice(schema)
    assert suffice({"type": "array", "items": schema})


@pytest.mark.parametrize("schema", BEYOND_TYPES.values(), ids=BEYOND_TYPES.keys())
def test_what_types_say_in_part_is_checked(schema: Any):
    assert not suffice(schema)
    assert not suffice({"anyOf": [STRING, {"type": "array", "items": schema}]})


def test_in_old_drafts_nothing_counts_beside_a_reference():
    schema: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"v": {"$ref": "#/definitions/v", "minLength": 1}},
        "definitions": {"v": STRING},
    }
    assert are_said_by_types(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"properties": {"a": STRING}, "required": ["a"]}, {"properties": {"b": STRING}, "required": ["b"]}]},
        {"minProperties": 1},
        {"additionalProperties": INTEGER},
    ],
    ids=["alternatives", "number", "mapping"],
)
def test_what_the_class_of_all_arguments_cannot_say_is_checked(schema: dict[str, Any]):
    assert not are_said_by_types({"type": "object", **schema})
