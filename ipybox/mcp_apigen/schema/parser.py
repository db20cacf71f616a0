"""Converts JSON Schema (draft 4 to 2020-12) to the intermediate representation.

Constraints that Python's types or pydantic can't express exactly are omitted here, so types never reject a value that
the schema allows. The parser records whether it omitted anything, because values are then also checked against the
schema itself. When in doubt, it assumes that it did: at worst, a check is made twice.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ipybox.mcp_apigen.schema.constraints import (
    OF_ALL,
    OF_KIND,
    at_most,
    demands,
    limits_of,
    usable_pattern,
)
from ipybox.mcp_apigen.schema.defaults import default_of
from ipybox.mcp_apigen.schema.ir import (
    ANY,
    NULL,
    Constraints,
    DefaultValue,
    DictType,
    ListType,
    LiteralType,
    Model,
    ModelField,
    Scalar,
    Type,
    UnenforcedType,
)
from ipybox.mcp_apigen.schema.resolve import MAX_DEPTH, Resolver, SchemaError, UnresolvedReference
from ipybox.mcp_apigen.schema.unions import MAX_OPTIONS, MAX_VALUES, constants, union
from ipybox.mcp_apigen.schema.values import Schema, elements, is_object, is_text, mapping, strings

_MAX_STEPS = 20_000
_MAX_NOTE = 100
#: Characters of a name that become part of a class's name.
_MAX_HINT = 320
#: How much more than itself a schema may cost where references lead to the same parts: times its size, and in addition.
_TIMES, _MORE = 8, 50_000


def parse(resolver: Resolver, name: str) -> tuple[Model, list[str], bool]:
    """Returns the model of an object schema, remarks on unresolved references, and whether types express all of it.

    Raises a SchemaError if the schema doesn't describe an object, or its recursive part is too large.
    """
    schema = resolver.flat(resolver.root)
    kinds = strings(schema.get("type"))
    if kinds and "object" not in kinds:
        raise SchemaError("the schema does not describe an object")
    parser = _SchemaParser(resolver)
    parser.exact = id(schema) not in resolver.merged and demands(schema, ["object"]).isdisjoint(OF_ALL)
    return parser.model(schema, name, 0), list(dict.fromkeys(parser.remarks)), parser.exact


@dataclass
class _SchemaParser:
    _resolver: Resolver
    remarks: list[str] = field(default_factory=list[str])
    #: Whether the types so far reject all that the schema rejects.
    exact: bool = True
    _models: dict[int, Model] = field(default_factory=dict[int, Model])
    _alike: dict[tuple[str, str], Model] = field(default_factory=dict[tuple[str, str], Model])
    _choices: dict[tuple[int, str], Type] = field(default_factory=dict[tuple[int, str], Type])
    _steps: int = 0
    _spent: int = 0

    def _spend(self, work: int) -> None:
        """Counts characters and elements that are read or rendered, as often as they are."""
        self._spent += work
        if self._spent > _TIMES * self._resolver.size + _MORE:
            raise SchemaError("the schema is too large where its references lead to the same parts")

    def _type(self, schema: Any, hint: str, depth: int) -> Type:
        self._steps += 1
        if self._steps > _MAX_STEPS or depth > MAX_DEPTH:
            raise SchemaError("the recursive part of the schema is too deep or too large")
        if not is_object(schema):
            self.exact &= schema is True
            return ANY
        flat = self._flat(schema)
        self._spend(len(flat) + sum(map(len, map(elements, flat.values()))))
        self.exact &= id(flat) not in self._resolver.merged
        hint = self._resolver.names.get(id(flat), hint)[:_MAX_HINT]
        result = self._flat_type(flat, hint, depth)
        if flat.get("nullable") is True:  # OpenAPI, from which many servers derive their schemas
            result = union([result, NULL], hint)
        return result

    def _flat(self, schema: Schema) -> Schema:
        try:
            return self._resolver.flat(schema)
        except UnresolvedReference as exc:
            self.remarks.append(str(exc))
            self.exact = False
            return {}

    def _flat_type(self, schema: Schema, hint: str, depth: int) -> Type:
        kinds = strings(schema.get("type"))
        if not OF_KIND.keys() >= {*kinds} or len(kinds) < len(elements(schema.get("type"))):
            kinds = []  # unknown ones
        kinds = [*dict.fromkeys(kinds)]
        said = demands(schema, kinds)
        self.exact &= bool(kinds) or "type" not in schema
        if "const" in schema or "enum" in schema:
            values = [schema["const"]] if "const" in schema else elements(schema["enum"])
            kind = self._choices.get((id(schema), hint))
            if kind is None or isinstance(kind, LiteralType):  # others have a class, which is rendered once
                kind = self._choices[id(schema), hint] = constants(values, kinds, hint)
                self._spend(sum(map(len, map(str, values))) if len(values) <= MAX_VALUES else 0)
            self.exact &= len(said) == 1 and len(values) <= MAX_VALUES and kind != ANY
            return kind
        for keyword in ("anyOf", "oneOf"):
            if schema.get(keyword) and not mapping(schema.get("properties")):
                self.exact &= len(said) == 1
                return self._union(schema, keyword, hint, depth)
        self.exact &= said.isdisjoint(OF_ALL) if kinds else not said
        if len(kinds) == 1:
            return self._of_kind(kinds[0], schema, hint, depth)
        if not kinds:
            # Without `type`, the keywords restrict only values that happen to be of their kind.
            kinds = ["object"] if "properties" in schema else ["array"] if "items" in schema else []
            return union([UnenforcedType(self._of_kind(kind, schema, hint, depth)) for kind in kinds], hint)
        return union([self._of_kind(kind, schema, hint, depth) for kind in kinds], hint)

    def _union(self, schema: Schema, keyword: str, hint: str, depth: int) -> Type:
        branches = [branch for branch in elements(schema[keyword]) if branch is not False]
        self.exact &= 0 < len(branches) <= MAX_OPTIONS and keyword == "anyOf"
        if len(branches) > MAX_OPTIONS:
            return ANY
        options: list[Type] = []
        for branch in branches:
            title = mapping(branch).get("title")
            narrowed = self._resolver.narrowed(schema, keyword, branch)
            options.append(self._type(narrowed, title if isinstance(title, str) else hint, depth + 1))
        kind = union(options, hint)
        self.exact &= kind != ANY or ANY in options
        return kind

    def _limits(self, kind: str, schema: Schema) -> Constraints:
        """Returns the limits of values of a kind, and records whether the schema demands more of them."""
        limits, keywords = limits_of(schema, kind, self._resolver.patterns)
        self._spend(len(str(limits)))
        self.exact &= len(limits) == keywords
        return limits

    def _of_kind(self, kind: str, schema: Schema, hint: str, depth: int) -> Type:
        match kind:
            case "object":
                return self._object(schema, hint, depth)
            case "array":
                return self._array(schema, hint, depth)
            case "string" | "integer" | "number" | "boolean":
                return Scalar(kind, self._limits(kind, schema))
            case _:
                return NULL

    def _array(self, schema: Schema, hint: str, depth: int) -> Type:
        limits = self._limits("array", schema)
        hint = f"{hint} item"
        positions = elements(schema.get("prefixItems")) or elements(schema.get("items"))
        if not positions:
            return ListType(self._type(schema.get("items", True), hint, depth + 1), limits)
        self.exact = False
        if len(positions) > MAX_OPTIONS:
            return ListType(ANY, limits)
        # A JSON tuple may be shorter than its schema, so it becomes a list of the types at all positions.
        rest = schema.get("items" if "prefixItems" in schema else "additionalItems")
        options = [self._type(item, hint, depth + 1) for item in positions]
        if rest is False:
            return ListType(union(options, hint), at_most(limits, len(positions)))
        return ListType(union([*options, self._type(rest, hint, depth + 1)], hint), limits)

    def _object(self, schema: Schema, hint: str, depth: int) -> Type:
        if mapping(schema.get("properties")):
            return self.model(schema, hint, depth)
        limits = self._limits("object", schema)
        self.exact &= not schema.get("required")
        rest = schema.get("additionalProperties", True)
        if mapping(schema.get("patternProperties")):
            return DictType(ANY, limits)
        if rest is False:
            return DictType(ANY, at_most(limits, 0))
        return DictType(self._type(rest, f"{hint} value", depth + 1), limits)

    def model(self, schema: Schema, hint: str, depth: int) -> Model:
        if model := self._models.get(id(schema)):
            return model
        # The same object may be written out in several places.
        alike = json.dumps(schema, sort_keys=True) if id(schema) in self._resolver.written else None
        if alike and (model := self._alike.get((hint, alike))):
            return model
        shared = depth == 0 or id(schema) in self._resolver.names
        model = self._models[id(schema)] = Model(hint, description_of(schema) if shared else "")
        if alike:
            self._alike[hint, alike] = model
        model.forbid_extra = _is_closed(schema)
        self.exact &= limits_of(schema, "object", self._resolver.patterns)[1] == 0
        properties, required, left_open = self._properties(schema, open_ended=not model.forbid_extra)
        self.exact &= required <= properties.keys() and schema.get("additionalProperties", True) in (True, False, {})
        self.exact &= isinstance(schema.get("required", []), list)
        for name, value in properties.items():
            if value is False or not is_text(name):  # `false` forbids the property
                self.exact = False
                continue
            kind = self._type(value, name, depth + 1)
            kind = union([UnenforcedType(kind)], name) if name in left_open else kind
            default = None
            if name in required and is_object(value) and "default" in (said := self._flat(value) | value):
                default = default_of(said["default"], kind, nested=depth > 0)
                self._spend(len(str(default)))
            text = self._documentation(value, default)
            model.fields.append(ModelField(name, kind, name in required, text, default))
        return model

    def _properties(self, schema: Schema, *, open_ended: bool) -> tuple[dict[str, Any], set[str], set[str]]:
        """Returns the properties that a schema and its alternatives name, and which are always required or left open.

        A property is left open if only alternatives name it, and another alternative allows it to be anything.
        """
        properties = dict(mapping(schema.get("properties")))
        required = _required(schema)
        left_open: set[str] = set()
        for keyword in ("anyOf", "oneOf"):
            if not schema.get(keyword):
                continue
            given = [mapping(branch) for branch in elements(schema[keyword]) if branch is not False] or [{}]
            branches = [self._flat(branch) for branch in given]
            for branch in branches:
                self._spend(len(mapping(branch.get("properties"))))
            required |= set[str].intersection(*map(_required, branches))
            offered: dict[str, list[Any]] = {}
            for branch in branches if open_ended else ():
                for name, value in mapping(branch.get("properties")).items():
                    if name not in properties:
                        offered.setdefault(name, []).append(value)
            properties |= {name: vs[0] if len(vs) == 1 else {"anyOf": vs} for name, vs in offered.items()}
            open_branches = [mapping(branch.get("properties")).keys() for branch in branches if not _is_closed(branch)]
            named = Counter(name for names in open_branches for name in names)
            left_open |= {name for name in offered if named[name] < len(open_branches)}
        if open_ended:
            properties |= dict.fromkeys(sorted(required - properties.keys()), True)
        return properties, required, left_open

    def _documentation(self, schema: Any, shown: DefaultValue | None) -> str:
        """Returns the property's description, with the default and constraints that its code doesn't show."""
        if not is_object(schema):
            return ""
        flat = self._flat(schema)
        # The description of a shared object is on its class.
        of_class = id(flat) in self._resolver.names and mapping(flat.get("properties"))
        text = description_of(schema) or ("" if of_class else description_of(flat))
        self._spend(len(text))
        notes: list[str] = []
        kind, pattern = flat.get("format"), flat.get("pattern")
        if isinstance(kind, str) and kind.lower() not in text.lower():
            notes.append(f"format {kind}")
        if isinstance(pattern, str) and not usable_pattern(pattern, self._resolver.patterns):
            notes.append(f"pattern {pattern}")
        default = schema.get("default", flat.get("default"))
        if default is not None and not shown and "default" not in text.lower():
            plain = isinstance(default, str) and default.strip()
            notes.append(f"default {default if plain else json.dumps(default, ensure_ascii=False)}")
        if not notes:
            return text
        note = "; ".join(note if len(note) <= _MAX_NOTE else note[: _MAX_NOTE - 1] + "…" for note in notes)
        return f"{text} ({note})" if text else note[:1].upper() + note[1:]


def description_of(schema: Schema) -> str:
    """Returns the schema's description, or an empty text."""
    text = schema.get("description")
    return text.strip() if isinstance(text, str) else ""


def _required(schema: Schema) -> set[str]:
    # In draft 3, `required` was a flag of the property.
    return set(strings(schema["required"])) if isinstance(schema.get("required"), list) else set()


def _is_closed(schema: Schema) -> bool:
    """Returns whether a schema forbids properties that it doesn't name."""
    return schema.get("additionalProperties") is False and not mapping(schema.get("patternProperties"))
