"""The constraints of a schema: those that pydantic checks exactly as JSON Schema defines them, and all keywords."""

import math
import re
from typing import Any

from pydantic_core import SchemaError, SchemaValidator, core_schema

from ipybox.mcp_apigen.schema.ir import Constraints
from ipybox.mcp_apigen.schema.values import Schema, is_number

_MAX_LENGTH = 2**31  # pydantic stores lengths as machine words
_UNREADABLE = 2**64  # larger bounds help no reader; the kernel checks them with the schema
#: The largest integer that JavaScript holds exactly: servers written in it declare this bound for each integer.
_SAFE = 2**53 - 1
_MAX_PATTERN = 500
#: Maximum different patterns of a package that types check: one can take 70 ms to compile.
_MAX_PATTERNS = 100

_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "divisibleBy"}
#: Keywords of all drafts that demand something of values of one kind only.
OF_KIND: dict[str, set[str]] = {
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
    "boolean": set(),
    "null": set(),
}  # fmt: skip
_OF_SOME_KIND = set[str]().union(*OF_KIND.values())
#: Keywords that demand nothing with these values.
_IDLE: Schema = {"minLength": 0, "minItems": 0, "minProperties": 0, "uniqueItems": False}
#: Keywords for the parts of arrays and objects, which types express.
_PARTS = {"items", "properties", "required", "additionalProperties"}
#: What the keywords for minimum and maximum sizes end with.
_SIZES = {"string": "Length", "array": "Items", "object": "Properties"}
#: Keywords that demand something of any value.
OF_ALL = {
    "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const",
    "extends", "disallow",
}  # fmt: skip
#: All keywords that demand something.
DEMANDING = {"type", *OF_ALL, *_OF_SOME_KIND}

# JSON Schema's patterns are ECMA 262 expressions. Rust's expressions, which pydantic uses, differ: they have nested
# sets and set operations in brackets, groups with flags, and letters with another meaning after a backslash.
_DIFFERENT = re.compile(
    r"""\(\?[^:]                           # anything but a plain non-capturing group
      | \\(?![pP]\{)[^bBdDwWsStnrfvux\W_]  # letters and digits with another meaning
      | && | -- | ~~
      | \[[^\]]*\[                         # a bracket within brackets
      | \[\^?\]                            # in ECMA 262 nothing, or anything
    """,
    re.VERBOSE,
)


def demands(schema: Schema, kinds: list[str]) -> set[str]:
    """Returns the keywords, except `type`, that demand something of values of these kinds; all if none are given."""
    said = schema.keys() & (OF_ALL | _OF_SOME_KIND)
    return said - _OF_SOME_KIND.difference(*map(OF_KIND.__getitem__, kinds)) if kinds else said


def limits_of(schema: Schema, kind: str, patterns: dict[str, bool]) -> tuple[Constraints, int]:
    """Returns the limits of values of a kind, and how many keywords limit them, apart from keywords for their parts."""
    keywords = schema.keys() & OF_KIND[kind] - _PARTS - dict(_IDLE.items() & schema.items()).keys()
    limits: list[tuple[str, Any]] = []
    if kind in ("integer", "number"):
        limits += number_limits(schema, integral=kind == "integer")
    elif kind in _SIZES:
        for name, keyword, least in (("min_length", f"min{_SIZES[kind]}", 1), ("max_length", f"max{_SIZES[kind]}", 0)):
            value = schema[keyword] if keyword in keywords else None
            if value is not None and is_number(value) and least <= value < _MAX_LENGTH and value == int(value):
                limits.append((name, int(value)))
        if "pattern" in keywords and (pattern := usable_pattern(schema["pattern"], patterns)):
            limits.append(("pattern", pattern))
    return tuple(limits), len(keywords)


def at_most(limits: Constraints, size: int) -> Constraints:
    """Returns the limits, reduced to at most `size` elements."""
    sizes = dict(limits)
    sizes["max_length"] = min(size, sizes.get("max_length", size))
    return tuple(sorted(sizes.items(), reverse=True))


def number_limits(schema: Schema, *, integral: bool) -> Constraints:
    """Returns the bounds of a number, and the step of an integer."""
    limits: list[tuple[str, Any]] = []
    for name, keyword, rounded in (
        ("ge", "minimum", math.ceil),
        ("gt", "exclusiveMinimum", math.floor),
        ("le", "maximum", math.floor),
        ("lt", "exclusiveMaximum", math.ceil),
    ):
        value = schema.get(keyword)
        if is_number(value) and abs(value) < _UNREADABLE:
            limits.append((name, rounded(value) if integral or value == int(value) else value))
    step = schema.get("multipleOf")
    # Floats have no exact multiples.
    if integral and is_number(step) and 1 < step < _UNREADABLE and step == int(step):
        limits.append(("multiple_of", int(step)))
    return tuple(limits)


def beyond_safe(limits: Constraints) -> Constraints | None:
    """Returns an integer's limits besides JavaScript's safe range; None if its bounds don't express that range."""
    bounds = dict(limits)
    lower, upper = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    if lower is None or upper is None or lower < -_SAFE or upper > _SAFE or _SAFE not in (-lower, upper):
        return None
    return tuple(limit for limit in limits if limit not in (("ge", -_SAFE), ("le", _SAFE)))


def usable_pattern(pattern: Any, known: dict[str, bool]) -> str | None:
    """Returns `pattern` if pydantic can check it as ECMA 262 defines it, or else None.

    `known` tells of each pattern of the package so far whether pydantic accepts it.
    """
    if not isinstance(pattern, str) or not 0 < len(pattern) <= _MAX_PATTERN or not pattern.isprintable():
        return None
    if _DIFFERENT.search(pattern):
        return None
    if pattern not in known:
        known[pattern] = len(known) < _MAX_PATTERNS and _compiles(pattern)
    return pattern if known[pattern] else None


def _compiles(pattern: str) -> bool:
    try:
        SchemaValidator(core_schema.str_schema(pattern=pattern))
    except SchemaError:
        return False
    return True
