"""Valid and invalid instances of JSON Schemas, out of a seed.

Instances are guessed from what the schema says and changed at random; whether they are valid, `jsonschema` decides.
(`hypothesis-jsonschema` 0.23 fails with the current hypothesis and can't do recursion.)
"""

import copy
import json
import random
import re
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for  # pyright: ignore[reportUnknownVariableType]
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from ipybox.mcp_apigen.schema.values import Schema, elements, is_object, mapping, objects, strings

_MAX_DEPTH = 5
_TEXTS = ["", "a", "ab", "abc", "Zürich", "x" * 40, "1", "null", "a\nb", "\u2028", "日本", "0.5", "C:\\x", '"']
_KEYS = ["extra", "a b", "x-1", "n1", "c", "from", "Größe"]
_NUMBERS = [0, 1, -1, 2, 3, 5, 7, 100, 2**53, -(10**15), 10**18]
_FRACTIONS = [0.5, 1.0, -0.0, 1.5, 1e300, 1e-9, 2.0]
_ANYTHING: list[Any] = [None, True, False, 0, 1, 1.0, "", "x", [], [1, None], {}, {"a": None}, {"from": [1.0]}]
_KINDS = ("string", "integer", "number", "boolean", "null", "array", "object")
#: At most so many guesses for one instance.
_ATTEMPTS = 12


class Impossible(Exception):
    """No value satisfies this part of the schema, or none was found."""


class Instances:
    """Instances of one schema."""

    def __init__(self, schema: Schema, seed: int | str):
        self._root = schema
        self._dice = random.Random(seed)
        validator = validator_for(schema, default=Draft202012Validator)
        self._oracle: Validator = validator(schema, registry=Registry())  # which fetches nothing
        document = Resource[Any].from_contents(schema, default_specification=DRAFT202012)
        self._resolver = Registry[Any]().resolver_with_root(document)

    def valid(self, count: int) -> Iterator[Schema]:
        """Up to `count` distinct objects that the schema allows."""
        seen: set[str] = set()
        for _ in range(count * _ATTEMPTS):
            try:
                instance = self._value(self._root, 0)
            except Impossible:
                continue
            text = json.dumps(instance)
            if text not in seen and is_object(instance) and self._oracle.is_valid(instance):
                seen.add(text)
                yield instance
                if len(seen) == count:
                    return

    def invalid(self, instance: Schema, count: int) -> Iterator[tuple[str, Schema]]:
        """Up to `count` objects that differ from a valid one in one place and are not allowed, with the keyword that
        refuses them; first one for each keyword."""
        changed = list(_edits(instance))
        self._dice.shuffle(changed)
        refused: dict[str, list[Schema]] = {}
        for other in changed:
            if is_object(other) and (error := next(self._oracle.iter_errors(other), None)):
                refused.setdefault(str(error.validator), []).append(other)
        rounds = max(map(len, refused.values()), default=0)
        each = [(keyword, found[n]) for n in range(rounds) for keyword, found in refused.items() if n < len(found)]
        yield from each[:count]

    def is_valid(self, instance: Schema) -> bool:
        """Returns whether the schema allows an object."""
        return self._oracle.is_valid(instance)

    def _value(self, schema: Any, depth: int) -> Any:
        if schema is False:
            raise Impossible
        schema = self._merged(mapping(schema), depth)
        if "const" in schema:
            return copy.deepcopy(schema["const"])
        if choices := elements(schema.get("enum")):
            return copy.deepcopy(self._dice.choice(choices))
        if (examples := elements(schema.get("examples"))) and self._dice.random() < 0.8:
            return copy.deepcopy(self._dice.choice(examples))
        kinds = strings(schema.get("type")) or self._kinds_of(schema)
        return self._of_kind(self._dice.choice(kinds), schema, depth) if kinds else self._dice.choice(_ANYTHING)

    def _kinds_of(self, schema: Schema) -> list[str]:
        if {"properties", "additionalProperties", "required"} & schema.keys():
            return ["object"]
        return ["array"] if {"items", "prefixItems"} & schema.keys() else []

    def _of_kind(self, kind: str, schema: Schema, depth: int) -> Any:
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                fitting = [text for text in _TEXTS if _fits(len(text), schema, "Length")]
                return self._dice.choice(fitting) if fitting else "x" * int(schema.get("minLength", 0))
            case "integer" | "number":
                return self._number(kind, schema)
            case "boolean":
                return self._dice.random() < 0.5
            case _:
                return None

    def _number(self, kind: str, schema: Schema) -> int | float:
        bounds = [
            schema[name] for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum") if name in schema
        ]
        limits = [bound for bound in bounds if not isinstance(bound, bool)]
        numbers: list[int | float] = [*_NUMBERS, *(int(bound) + step for bound in limits for step in (-1, 0, 1))]
        if kind == "number":
            numbers += [*_FRACTIONS, *limits]
        if step := schema.get("multipleOf"):
            numbers = [number * step for number in numbers if abs(number) < 10**6]
        keywords = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        oracle = type(self._oracle)({name: schema[name] for name in keywords if name in schema})
        fitting = [number for number in numbers if oracle.is_valid(number)]
        return self._dice.choice(fitting or numbers)

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        positions = elements(schema.get("prefixItems")) or elements(schema.get("items"))
        rest = schema.get("items", True) if not isinstance(schema.get("items"), list) else schema.get("additionalItems")
        if self._dice.random() < 0.3 and "contains" in schema:
            rest = schema["contains"]
        most = 0 if depth > _MAX_DEPTH else 3
        size = max(schema.get("minItems", 0), min(self._dice.randint(0, most), schema.get("maxItems", most)))
        if rest is False or schema.get("unevaluatedItems") is False:
            size = min(size, len(positions))
        return [self._value(positions[n] if n < len(positions) else rest, depth + 1) for n in range(size)]

    def _object(self, schema: Schema, depth: int) -> Schema:
        properties = mapping(schema.get("properties"))
        required = strings(schema.get("required"))
        chance = self._dice.choice((0.0, 0.3, 1.0)) if depth < _MAX_DEPTH else 0.0
        wanted = [name for name in properties if name in required or self._dice.random() < chance]
        wanted += [name for name in required if name not in properties]
        if self._dice.random() < 0.3 or not _fits(len(wanted), schema, "Properties"):
            wanted += self._dice.sample(_KEYS, self._dice.randint(1, 2))
        if self._dice.random() < 0.5:
            self._dice.shuffle(wanted)
        found: Schema = {}
        for name in wanted:
            try:
                found[name] = self._value(self._schema_of(name, schema), depth + 1)
            except Impossible:
                if name in required:
                    raise
        return found

    def _schema_of(self, name: str, schema: Schema) -> Any:
        properties = mapping(schema.get("properties"))
        patterns = [
            each for pattern, each in mapping(schema.get("patternProperties")).items() if re.search(pattern, name)
        ]
        if name in properties:
            return properties[name]
        if patterns:
            return {"allOf": patterns}
        rest = schema.get("additionalProperties", True)
        return rest if rest is not True else schema.get("unevaluatedProperties", True)

    def _merged(self, schema: Schema, depth: int) -> Schema:
        """A schema without references and alternatives: some that the given one allows, or nearly."""
        if depth > 2 * _MAX_DEPTH:
            raise Impossible
        parts = [self._target(schema[name]) for name in ("$ref", "$dynamicRef") if isinstance(schema.get(name), str)]
        parts += objects(schema.get("allOf"))
        for keyword in ("anyOf", "oneOf"):
            if branches := elements(schema.get(keyword)):
                parts.append(self._dice.choice(branches))
        if "if" in schema:
            met = self._dice.random() < 0.5
            parts += [schema["if"], schema.get("then", True)] if met else [schema.get("else", True)]
        parts += [each for each in mapping(schema.get("dependentSchemas")).values() if self._dice.random() < 0.3]
        merged = {
            name: value for name, value in schema.items() if name not in ("$ref", "allOf", "anyOf", "oneOf", "if")
        }
        for part in parts:
            if part is False:
                raise Impossible
            merged = _both(merged, self._merged(mapping(part), depth + 1))
        return merged

    def _target(self, reference: str) -> Any:
        return self._resolver.lookup(reference).contents


def _both(left: Schema, right: Schema) -> Schema:
    merged = left | right
    for name in left.keys() & right.keys():
        if name == "properties":
            shared = {
                key: {"allOf": [left[name][key], right[name][key]]} for key in left[name].keys() & right[name].keys()
            }
            merged[name] = left[name] | right[name] | shared
        elif name == "required":
            merged[name] = [*left[name], *right[name]]
    return merged


def _fits(size: int, schema: Schema, suffix: str) -> bool:
    return schema.get(f"min{suffix}", 0) <= size <= schema.get(f"max{suffix}", size)


def _edits(value: Any) -> Iterator[Any]:
    """Copies of a value with one change each: something dropped, added or replaced."""
    yield from _replacements(value)
    if is_object(value):
        for name, item in value.items():
            rest = {key: other for key, other in value.items() if key != name}
            yield rest
            yield from (value | {name: changed} for changed in _edits(item))
        yield from (value | {name: extra} for name in _KEYS if name not in value for extra in ("x", None))
    if isinstance(value, list):
        items = elements(value)
        yield from ([*items[:n], *items[n + 1 :]] for n in range(len(items)))
        yield from ([*items[:n], changed, *items[n + 1 :]] for n in range(len(items)) for changed in _edits(items[n]))
        yield from ([*items, other] for other in (*items[-1:], "x", None, 1.5))
        yield items * 20


def _replacements(value: Any) -> Iterator[Any]:
    yield from _ANYTHING
    if isinstance(value, str):
        yield from (value + "x", value[:-1], value.upper(), value * 50, value + "\n", [value])
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from (value + 1, value - 1, value + 0.25, -value, value + 1000, str(value), 10**30)
    elif isinstance(value, bool):
        yield from (int(value), str(value).lower())
