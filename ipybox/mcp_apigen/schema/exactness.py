"""Decides whether Python's types express a whole schema; if they don't, the schema itself is checked, too.

This is a list of what types say in full. Whatever is not on it counts as unsaid: at worst a check is made twice.
"""

from itertools import combinations
from typing import Any

from ipybox.mcp_apigen.schema.constraints import number_limits, size_limits, string_limits
from ipybox.mcp_apigen.schema.ir import ANY
from ipybox.mcp_apigen.schema.parser import MAX_OPTIONS, kinds_of
from ipybox.mcp_apigen.schema.resolve import Resolver, UnresolvedReference
from ipybox.mcp_apigen.schema.unions import MAX_VALUES, constants
from ipybox.mcp_apigen.schema.values import Schema, elements, is_number, is_object, is_text, mapping, strings

_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "divisibleBy"}
#: Keywords of all drafts that demand something of values of one kind only.
_OF_KIND: dict[str, set[str]] = {
    "string": {"minLength", "maxLength", "pattern"},
    "integer": _BOUNDS,
    "number": _BOUNDS,
    "array": {
        "items", "minItems", "maxItems", "prefixItems", "additionalItems", "contains", "minContains", "maxContains",
        "uniqueItems", "unevaluatedItems",
    },
    "object": {
        "properties", "required", "additionalProperties", "minProperties", "maxProperties", "patternProperties",
        "propertyNames", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties",
    },
}  # fmt: skip
_OF_SOME_KIND = set[str]().union(*_OF_KIND.values())
#: Those that demand something of any value.
_OF_ALL = {
    "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const",
    "extends", "disallow",
}  # fmt: skip


def types_cover_schema(schema: Schema, resolver: Resolver) -> bool:
    """Whether the types that `schema.parse` makes of the arguments' schema accept nothing that it refuses."""
    # Arguments are an object, whether or not the schema says so.
    return _CoverageChecker(resolver).suffice(schema if "type" in schema else {**schema, "type": "object"})


class _CoverageChecker:
    def __init__(self, resolver: Resolver):
        self._resolver = resolver
        # What refers to itself is fine if all else is. Kept, so that no id is used twice.
        self._seen: dict[int, Schema] = {}

    def suffice(self, schema: Any) -> bool:
        if not is_object(schema):
            return schema is True
        if id(schema) in self._seen:
            return True
        self._seen[id(schema)] = schema
        kinds = kinds_of(schema)
        if "type" in schema and not kinds:
            return False
        said = schema.keys() & (_OF_ALL | _OF_SOME_KIND)
        if kinds:
            said -= _OF_SOME_KIND.difference(*(_OF_KIND.get(kind, ()) for kind in kinds))
        if general := said & _OF_ALL:
            return self._general(schema, said, general, kinds)
        if not kinds:
            return not said
        return all(self._of_kind(kind, schema, said) for kind in kinds)

    def _general(self, schema: Schema, said: set[str], general: set[str], kinds: list[str]) -> bool:
        if len(general) != 1 or (said != general and general != {"$ref"}):
            return False
        (keyword,) = general
        match keyword:
            case "$ref":
                if not self._resolver.ref_alone and (said != general or kinds):
                    return False
                try:
                    return self.suffice(self._resolver.target(schema))
                except UnresolvedReference:
                    return False
            case "enum":
                return _can_be_listed(elements(schema["enum"]), kinds)
            case "const":
                return _can_be_listed([schema["const"]], kinds)
            case "allOf":
                parts = elements(schema["allOf"])
                return len(parts) == 1 and not kinds and self.suffice(parts[0])
            case "anyOf" | "oneOf":
                return self._alternatives(keyword, elements(schema[keyword]), kinds)
            case _:
                return False

    def _alternatives(self, keyword: str, branches: list[Any], kinds: list[str]) -> bool:
        if not 0 < len(branches) <= MAX_OPTIONS or not all(map(self.suffice, branches)):
            return False
        accepted = [self._kinds_of(branch) for branch in branches]
        if kinds and not all(each and each <= set(kinds) for each in accepted):
            return False
        return keyword == "anyOf" or self._are_disjoint(branches, accepted)

    def _are_disjoint(self, branches: list[Any], accepted: list[set[str]]) -> bool:
        widened = [each | {"integer", "number"} if each & {"integer", "number"} else each for each in accepted]
        if all(accepted) and all(left.isdisjoint(right) for left, right in combinations(widened, 2)):
            return True
        values = [value for branch in branches for value in _texts(branch)]
        return all(map(_texts, branches)) and len(values) == len(set(values))

    def _kinds_of(self, branch: Any) -> set[str]:
        if not is_object(branch):
            return set()
        try:
            return set(strings(self._resolver.flat(branch).get("type")))
        except UnresolvedReference:
            return set()

    def _of_kind(self, kind: str, schema: Schema, said: set[str]) -> bool:
        match kind:
            case "object":
                return self._object(schema, said & _OF_KIND["object"])
            case "array":
                return self._array(schema, said & _OF_KIND["array"])
            case "string":
                bounds = _sizes(schema, "minLength", "maxLength") + ("pattern" in schema)
                return len(string_limits(schema)) == bounds
            case "integer" | "number":
                values = [schema[name] for name in said & _BOUNDS]
                numbers = sum(is_number(value) for value in values)
                limits = number_limits(schema, integral=kind == "integer")
                return len(limits) == numbers and all(isinstance(value, bool) or is_number(value) for value in values)
            case _:
                return True

    def _array(self, schema: Schema, said: set[str]) -> bool:
        if schema.get("uniqueItems") is False:
            said = said - {"uniqueItems"}
        sized = len(size_limits(schema, "Items")) == _sizes(schema, "minItems", "maxItems")
        return said <= {"items", "minItems", "maxItems"} and sized and self.suffice(schema.get("items", True))

    def _object(self, schema: Schema, said: set[str]) -> bool:
        properties, rest = mapping(schema.get("properties")), schema.get("additionalProperties", True)
        required = schema.get("required", [])
        if not properties:
            sized = len(size_limits(schema, "Properties")) == _sizes(schema, "minProperties", "maxProperties")
            known = {"properties", "required", "additionalProperties", "minProperties", "maxProperties"}
            return said <= known and sized and not required and (rest is False or self.suffice(rest))
        if not said <= {"properties", "required", "additionalProperties"} or not isinstance(required, list):
            return False
        said_of_others = set(strings(required)) <= properties.keys() if rest is False else rest is True or rest == {}
        return said_of_others and all(is_text(name) and self.suffice(value) for name, value in properties.items())


def _can_be_listed(values: list[Any], kinds: list[str]) -> bool:
    return len(values) <= MAX_VALUES and constants(values, kinds, "") != ANY


def _texts(branch: Any) -> list[str]:
    """The values of a branch that is nothing but a choice among strings."""
    values = [mapping(branch).get("const"), *elements(mapping(branch).get("enum"))]
    values = [value for value in values if value is not None]
    return strings(values) if all(isinstance(value, str) for value in values) else []


def _sizes(schema: Schema, lower: str, upper: str) -> int:
    """How many of two bounds of a size say something."""
    return (lower in schema and schema[lower] != 0) + (upper in schema)
