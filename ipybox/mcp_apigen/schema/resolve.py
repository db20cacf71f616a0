"""Flattens nested schemas: follows `$ref`, merges `allOf`, bounds sizes, and fetches nothing.

Only pointers into the same schema (`#/$defs/x`) are followed. References by `$id` or anchor are left to the kernel,
which checks the whole schema.
"""

import re
from dataclasses import dataclass, field
from functools import reduce
from itertools import repeat
from typing import Any
from urllib.parse import unquote

from ipybox.mcp_apigen.schema.constraints import DEMANDING
from ipybox.mcp_apigen.schema.values import Schema, elements, is_number, is_object, mapping, objects, strings

#: Beyond these limits, a schema is not a description of arguments but an attack, or hopeless to read as Python.
MAX_DEPTH = 64
MAX_NODES = 20_000
MAX_CHARS = 1_000_000

# Longer chains of references count as cycles; each link costs three frames of Python's stack.
_MAX_CHAIN = 32
_MAX_MERGED = 200_000

_DEFINITIONS = ("$defs", "definitions", "schemas")
# Keywords that demand nothing in JSON Schema, but change a property's type or description.
_SAYING = {"format", "nullable"}
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")


class SchemaError(ValueError):
    """A schema is too deep, too large or malformed."""


class UnresolvedReference(SchemaError):
    """A `$ref` is not a pointer into its own schema, is dangling, or refers only to itself."""


@dataclass
class Resolver:
    """Resolves the references and `allOf` of a schema.

    Raises a SchemaError if the schema is not an object or exceeds this module's limits.
    """

    root: Any
    #: See `usable_pattern`.
    patterns: dict[str, bool] = field(default_factory=dict[str, bool])
    #: The identities of the parts of the original schema.
    written: set[int] = field(default_factory=set[int])
    #: The identities of flat schemas that combine several, and possibly demand less.
    merged: set[int] = field(default_factory=set[int])
    #: The names of definitions that references have led to, by the identity of the flat schema.
    names: dict[int, str] = field(default_factory=dict[int, str])
    # Schemas in one with its own `$id`, where their pointers would start.
    _apart: set[int] = field(default_factory=set[int])
    # Results are cached by identity, which reveals recursion; `_kept` keeps ids from being reused.
    _flat: dict[int, Schema] = field(default_factory=dict[int, Schema])
    _kept: list[Any] = field(default_factory=list[Any])
    _both: dict[tuple[int, int], Schema] = field(default_factory=dict[tuple[int, int], Schema])
    _work: int = 0

    def __post_init__(self) -> None:
        if not is_object(self.root):
            raise SchemaError("the schema is not a JSON object")
        #: Until draft 7, keywords next to a `$ref` are ignored.
        self.ref_alone = re.search("draft-0[3467]", str(self.root.get("$schema", ""))) is not None
        nodes = chars = 0
        stack: list[tuple[Any, int, bool]] = [(self.root, 0, False)]
        while stack:
            value, depth, apart = stack.pop()
            nodes += 1
            if isinstance(value, str):
                chars += len(value)
            elif is_object(value):
                chars += sum(map(len, map(str, value)))
                name = "" if self.ref_alone and "$ref" in value else value.get("$id")
                # Until draft 7, an `$id` that was only a fragment meant what `$anchor` means now.
                if depth > 0 and isinstance(name, str) and name[:1] not in ("", "#"):
                    apart = True
                if apart:
                    self._apart.add(id(value))
                self.written.add(id(value))
                stack += zip(value.values(), repeat(depth + 1), repeat(apart), strict=False)
            else:
                stack += zip(elements(value), repeat(depth + 1), repeat(apart), strict=False)
            if depth > MAX_DEPTH or nodes > MAX_NODES or chars > MAX_CHARS:
                raise SchemaError("the schema is too deep or too large")
        #: Nodes and characters.
        self.size = nodes + chars

    def flat(self, schema: Schema, trail: tuple[int, ...] = ()) -> Schema:
        """Returns an equivalent schema without `$ref` and `allOf`; the same object for the same schema.

        Raises an UnresolvedReference for a reference that is remote, dangling or refers to itself.
        """
        key = id(schema)
        if key in trail or len(trail) > _MAX_CHAIN:
            raise UnresolvedReference("a $ref points to itself")
        if key not in self._flat:
            nested = "$ref" in schema or "allOf" in schema
            self._flat[key] = self._flatten(schema, (*trail, key)) if nested else schema
            self._kept.append(schema)
        return self._flat[key]

    def _flatten(self, schema: Schema, trail: tuple[int, ...]) -> Schema:
        self._spend(1 + len(elements(schema.get("allOf"))))  # again for each reference to it that can't be resolved
        parts: list[Schema] = []
        reference = schema.get("$ref")
        if isinstance(reference, str):
            part = self.flat(self.target(schema), trail)
            path, _, name = reference.rpartition("/")
            if path.endswith(_DEFINITIONS):
                self.names.setdefault(id(part), unquote(name))
            parts.append(part)
        if parts and self.ref_alone:
            return parts[0]
        parts += [self.flat(part, trail) for part in objects(schema.get("allOf"))]
        own = {name: value for name, value in schema.items() if name not in ("$ref", "allOf")}
        if len(parts) == 1 and own.keys().isdisjoint(DEMANDING | _SAYING):
            return parts[0]
        flat = reduce(self._merge, [own, *parts])
        if len(parts) != 1 or id(parts[0]) in self.merged or not DEMANDING.isdisjoint(own):
            self.merged.add(id(flat))
        return flat

    def narrowed(self, schema: Schema, keyword: str, branch: Any) -> Any:
        """Returns a schema for values that satisfy both a schema and one of its alternatives under `keyword`."""
        key = (id(schema), id(branch))
        if key not in self._both:
            rest = {name: schema[name] for name in schema if name in DEMANDING and name != keyword}
            if not is_object(branch) or not rest or (rest.keys() == {"type"} and self._implies(branch, rest)):
                return branch if not rest or is_object(branch) else rest
            self._both[key] = {"allOf": [branch, rest]}
            self._kept += (schema, branch)
        return self._both[key]

    def _implies(self, branch: Schema, rest: Schema) -> bool:
        try:
            kinds = strings(self.flat(branch).get("type"))
        except UnresolvedReference:
            return False
        return bool(kinds) and set(kinds) <= set(strings(rest["type"]))

    def target(self, schema: Schema) -> Schema:
        """Returns the schema that another one's `$ref` points to, or raises an UnresolvedReference."""
        reference = str(schema["$ref"])
        start, *names = reference.split("/")
        found: Any = self.root if start == "#" and id(schema) not in self._apart else None
        for name in names:
            found = _step(found, unquote(name).replace("~1", "/").replace("~0", "~"))
        if isinstance(found, bool):
            return {} if found else {"not": {}}
        if not is_object(found):
            raise UnresolvedReference(f"$ref {reference[:100]!r} can't be resolved")
        return found

    def _merge(self, left: Schema, right: Schema) -> Schema:
        """Returns the schema of values that satisfy both; if one schema can't express that, at least `left`."""
        merged = {**right, **left}
        self._spend(len(merged))
        for name in left.keys() & right.keys():
            merged[name] = self._both_of(name, left[name], right[name])
        if "additionalProperties" in merged:
            # A branch that closes its object would forbid the properties of the others.
            closed = [side.get("additionalProperties") is False for side in (left, right)]
            others = [mapping(side.get("properties")) for side in (right, left)]
            if any(closed) and any(own and other for own, other in zip(closed, others, strict=True)):
                del merged["additionalProperties"]
        return merged

    def _both_of(self, name: str, left: Any, right: Any) -> Any:
        if name == "properties" or name == "patternProperties":
            sides = mapping(left), mapping(right)
            shared = sides[0].keys() & sides[1].keys()
            self._spend(len(sides[0]) + len(sides[1]))
            return sides[0] | sides[1] | {key: self._conjunction(sides[0][key], sides[1][key]) for key in shared}
        if name == "required":
            names = [*strings(left), *strings(right)]
            self._spend(len(names))
            return list(dict.fromkeys(names))
        if name == "type":
            return _common_types(strings(left), strings(right))
        if name == "enum":
            self._spend(len(elements(left)) * len(elements(right)) >> 6)
            return [value for value in elements(left) if value in elements(right)]
        if name == "items":
            return self._conjunction(left, right)
        if name in _LOWER and is_number(left) and is_number(right):
            return max(left, right)
        if name in _UPPER and is_number(left) and is_number(right):
            return min(left, right)
        return left

    def _conjunction(self, left: Any, right: Any) -> Any:
        if not is_object(left) or not is_object(right):
            return right if left is True else left
        key = (id(left), id(right))
        if key not in self._both:
            self._both[key] = {"allOf": [left, right]}
            self._kept += (left, right)
        return self._both[key]

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > _MAX_MERGED:
            raise SchemaError("the merged schema is too large")


def _step(value: Any, key: str) -> Any:
    if is_object(value):
        return value.get(key)
    if key.isdecimal() and len(key) < 9 and int(key) < len(elements(value)):
        return elements(value)[int(key)]
    return None


def _common_types(left: list[str], right: list[str]) -> list[str]:
    common = [kind for kind in left if kind in right]
    if "integer" not in common and {"integer", "number"} <= {*left, *right}:
        common.append("integer")
    return common
