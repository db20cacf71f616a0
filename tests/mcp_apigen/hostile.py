"""Hostile tools: realistic schemas in which something is replaced by what might break out, break off or blow up.

Each is made from a seed and its number alone, so that a failure can be made again.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

from ipybox.mcp_apigen.package.files import ToolSpec
from ipybox.mcp_apigen.schema.values import Schema, elements, is_object, mapping
from tests.mcp_apigen.corpus import SCHEMAS

#: Comments that tools obey.
DIRECTIVES = [
    "type: ignore", "type:ignore[assignment]", "TYPE: int", "pyright: basic", "pyright: ignore", "mypy: ignore-errors",
    "noqa", "NoQA: F401", "nosec", "NOSONAR", "fmt: off", "fmt:skip", "Owner; fmt: skip", "ruff: noqa", "isort:skip",
    "Owner pylint: disable=all", "Owner  # noqa", "Owner # type: ignore", "pragma no cover", "lgtm[py/x]", "%%", "!sh",
    "coding: utf-7", "coding=utf-7", "# coding: utf-7", "# -*- coding: utf-7 -*-", "vim: set ft=sh:", "noinspection X",
]  # fmt: skip

PAYLOADS = [
    *DIRECTIVES,
    '"""\nimport os; os.abort()\n"""', "'''\nraise SystemExit\n'''", '"; raise SystemExit; "',
    "'); raise SystemExit #", '\\"""\nraise SystemExit\n', "\\", "\\\\", '"', '""', '"""', "'", "''", '\\"',
    "\n", "\r", "\r\n    raise SystemExit", "\0", "\x0b", "\x0c", "\x85raise SystemExit",
    "\u2028raise SystemExit", "\u2029", "\u202e\u2066evil\u2069", "\ud800", "\udfff\ud800", "${HOME}",
    "{{ 7*7 }}", "{0.__class__}", "%s%n", "$(id)", "`id`", "__import__('os').abort()", "lambda: 0", "*", "...",
    "__init__", "__class__", "__builtins__", "__annotations__", "__pydantic_extra__",
    "__get_pydantic_core_schema__", "model_config", "model_post_init", "CLIENT", "Params", "Result", "run",
    "wire", "UNSET", "Field", "Any", "str", "self", "cls", "None", "True", "class", "async", "../../evil", "..",
    "/etc/passwd", "C:\\x", "a" * 5000, " " * 300, "# type: ignore", "-*- coding: utf-7 -*-",
    "\N{CYRILLIC SMALL LETTER IE}val", "ﬁ", "２", "٣", "ª", "\u200b", "\N{PILE OF POO}", "(?i)x", "[[a]", "(",
    "", " ", "\t", "#{7*7}", "{% import os %}", "{os.abort()}", "f'{os.abort()}'", "\\N{DIGIT ONE}", "\\u0022\\x22",
    "\\\n", "'\"\"\"'\\", "\ufeff", "\u0085", "x\u0301", "ſelf", "__debug__", "__slots__", "__module__", "__dict__",
    "model_fields", "model_validate", "__new__", "__class_getitem__", "__init_subclass__", "_", "__", "mro", "name",
    "value", "_missing_", "_ignore_", "_generate_next_value_", "match", "type", "print", "exec", "list[Params]",
    "Annotated", "Literal", "dict", "import os", "os.system('id')", "a/b", "a\\b", "nul", "con", ".", "~", "%2e%2e%2f",
    "a\0b.py", "__init__.py", ".ipybox.json", "x" * 100_000, "\u2066" * 50, "()" * 500, "[" * 300, "(?:" * 300,
    "a{9999}",
    "(a+)+$", "\\p{L}", "[a-z&&[^b]]", "\\1", "(?P<n>a)(?P=n)", "http://127.0.0.1:9/x", "file:///etc/passwd", "#", "#/",
    "#/$defs/node", "//host/share", "data:,x", "\N{KELVIN SIGN}", "Ⅷ", "℀", "𝐬𝐞𝐥𝐟", "İ", "ß", "１２", "²",
]  # fmt: skip

_KEYWORDS = [
    "type", "enum", "const", "default", "title", "description", "format", "pattern", "$id", "id", "$ref", "$anchor",
    "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$schema", "$vocabulary", "$defs", "definitions", "properties",
    "required", "additionalProperties", "patternProperties", "propertyNames", "dependentRequired", "dependentSchemas",
    "dependencies", "minProperties", "maxProperties", "items", "prefixItems", "additionalItems", "contains",
    "minContains", "maxContains", "minItems", "maxItems", "uniqueItems", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "allOf", "anyOf", "oneOf", "not", "if", "then", "else",
    "unevaluatedItems", "unevaluatedProperties", "nullable", "discriminator", "examples", "contentEncoding",
    "contentMediaType", "contentSchema", "readOnly", "deprecated", "extends", "disallow", "divisibleBy",
]  # fmt: skip

# What generators of code have taken for an instruction.
_TEMPTING = [
    "default_factory", "customTypePath", "x-python-import", "customBasePath", "x-python-type", "x-enum-varnames",
    "x-validators", "additionalImports", "validators", "__root__", "$code", "python_type", "import", "class",
]  # fmt: skip
_INSTRUCTIONS: list[Any] = [
    "os.abort", "os.system", "subprocess.Popen", "__import__('os').abort()", "ipybox.cli.main", "antigravity",
    {"module": "os", "name": "abort"}, {"module": "antigravity"}, ["os.abort"], {"import": "os", "type": "os.abort()"},
]  # fmt: skip

_REFERENCES = [
    "#", "#/", "#/properties", "#/properties/a", "#/$defs/a", "#/$defs/node", "#/definitions/a", "#/allOf/0", "#node",
    "#/$defs/nothing", "#/%", "#/~", "#/~2", "#/-1", "#/properties/\ud800", "http://127.0.0.1:9/s.json", "//host/share",
    "https://example.invalid/s.json#/a", "file:///etc/passwd", "file://host/x", "ftp://127.0.0.1:9/x", "data:,{}",
    "../../etc/passwd", "/etc/passwd", "urn:uuid:0", "jar:file:///x!/y", "http://[", "http://[::1", "\\\\host\\share",
    "https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#", "", " ", "?", "%00",
]  # fmt: skip

_ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, -0.0, 1e308, 5e-324, float("nan"), float("inf"), float("-inf"), 10**4000, -(10**400),
    2**31, 2**63, 2**64, "", "S", "object", "string", [], {}, [[]], [None], [{}], {"": {}}, [True, False],
    ["object", 5],
    {"$ref": "#"}, [{"$ref": "#"}], {"type": "object", "properties": {"a": False}}, [1, "1", 1.0, True, None],
]  # fmt: skip


def hostile_tool(seed: int, number: int) -> ToolSpec:
    """The tool of this number: a fragment of a realistic schema with one to three changes."""
    dice = random.Random(f"{seed}/{number}")
    schema = _hostile_schema(dice)
    result = _hostile_schema(dice) if dice.random() < 0.2 else None
    name = _text(dice) if dice.random() < 0.3 else f"tool-{number}"
    description = _text(dice) if dice.random() < 0.3 else "Does it."
    return ToolSpec(name, description, schema, result)


def _hostile_schema(dice: random.Random) -> Any:
    # A list around it, so that the root can be replaced as well.
    holder = [_copy(dice.choice(_FRAGMENTS))]
    for _ in range(dice.choice((1, 1, 2, 3))):
        change = dice.choices(_CHANGES, _WEIGHTS)[0]
        change(dice, holder)
    return holder[0]


def _text(dice: random.Random) -> str:
    text = dice.choice(PAYLOADS)
    while len(text) > 1000 and dice.random() < 0.95:  # long ones cost time, and tell little in most places
        text = dice.choice(PAYLOADS)
    return text if dice.random() < 0.7 else dice.choice(("a", "'", '"', "\\", "_", "Params.")) + text


def _replace_text(dice: random.Random, holder: list[Any]) -> None:
    """Puts a payload in the place of a string, or of many: a value or the name of a member."""
    places = [place for place in _places(holder) if isinstance(_at(place), str) or place[2]]
    for place in dice.sample(places, -(-len(places) // 3) if dice.random() < 0.1 else min(1, len(places))):
        _put(place, _text(dice))


def _replace_value(dice: random.Random, holder: list[Any]) -> None:
    """Puts a value of a wrong type or size in any place."""
    places = [place for place in _places(holder) if not place[2]]
    _put(dice.choice(places), _copy(dice.choice(_ODD)))


def _replace_keyword(dice: random.Random, holder: list[Any]) -> None:
    """Says something odd with a keyword."""
    value = dice.choice((dice.choice(_ODD), _text(dice), [_text(dice), _text(dice)], {_text(dice): dice.choice(_ODD)}))
    _any_object(dice, holder)[dice.choice(_KEYWORDS)] = _copy(value)


def _add_instruction(dice: random.Random, holder: list[Any]) -> None:
    value = dice.choice((dice.choice(_INSTRUCTIONS), _text(dice)))
    _any_object(dice, holder)[dice.choice(_TEMPTING)] = _copy(value)


def _add_reference(dice: random.Random, holder: list[Any]) -> None:
    keyword = dice.choice(("$ref", "$ref", "$ref", "$dynamicRef", "$recursiveRef", "$id", "$schema"))
    _any_object(dice, holder)[keyword] = dice.choice(_REFERENCES)


def _nest(dice: random.Random, holder: list[Any]) -> None:
    depth = dice.choice((10, 30, 60, 70, 100, 300, 10_000))
    place = dice.choice([place for place in _places(holder) if not place[2]])
    value = _at(place)
    name = _text(dice)
    wrap = dice.choice(_WRAPPERS)
    for _ in range(depth):
        value = wrap(name, value)
    _put(place, value)


def _swell(dice: random.Random, holder: list[Any]) -> None:
    text = _text(dice)
    size = dice.choice((300, 3_000, 30_000))
    target = _any_object(dice, holder)
    match dice.randrange(4):
        case 0:
            target["enum"] = [f"{text[:40]}{n}" for n in range(size)]
        case 1:
            target["properties"] = {f"{text[:40]}{n}": {"type": "string"} for n in range(size // 10)}
        case 2:
            target["anyOf"] = [{"const": n, "title": text[:40]} for n in range(size // 10)]
        case _:
            target["description"] = text[:40] * size


_Change = Callable[[random.Random, list[Any]], None]
_CHANGES: list[_Change] = [
    _replace_text, _replace_value, _replace_keyword, _add_instruction, _add_reference, _nest, _swell,
]  # fmt: skip
_WEIGHTS = [55, 15, 12, 8, 9.5, 0.25, 0.25]

_WRAPPERS: list[Callable[[str, Any], Any]] = [
    lambda name, value: {"type": "object", "properties": {name: value}},
    lambda _, value: {"type": "array", "items": value},
    lambda _, value: {"anyOf": [value, {"type": "null"}]},
    lambda _, value: {"allOf": [value]},
    lambda _, value: {"not": value},
    lambda _, value: [value],
]

#: A container, a key or index in it, and whether the key itself is meant.
_Place = tuple[Any, Any, bool]


def _places(value: Any) -> Iterator[_Place]:
    stack = [value]
    while stack:
        container = stack.pop()
        if is_object(container):
            yield from ((container, name, meant) for name in container for meant in (False, True))
            stack += container.values()
        elif isinstance(container, list):
            items = elements(container)
            yield from ((container, index, False) for index in range(len(items)))
            stack += items


def _at(place: _Place) -> Any:
    container, key, _ = place
    return container[key]


def _put(place: _Place, new: Any) -> None:
    container, key, is_name = place
    if not is_name:
        container[key] = new
        return
    renamed = {(new if name == key else name): value for name, value in container.items()}
    container.clear()
    container.update(renamed)


def _any_object(dice: random.Random, holder: list[Any]) -> Schema:
    found = [value for place in _places(holder) if not place[2] and is_object(value := _at(place))]
    return dice.choice(found) if found else {}


def _copy(value: Any) -> Any:
    if is_object(value):
        return {name: _copy(item) for name, item in value.items()}
    return [_copy(item) for item in elements(value)] if isinstance(value, list) else value


def _fragments() -> Iterator[Schema]:
    for schema in SCHEMAS.values():
        properties = mapping(schema.get("properties"))
        rest = {name: _described(value) for name, value in schema.items() if name != "properties"}
        yield {"title": "T", "description": "D", **rest}
        for name, value in properties.items():
            yield {**rest, "properties": _described({name: value})}


def _described(schemas: Any) -> Any:
    """The same schemas by name, each with a description."""
    if not is_object(schemas) or not all(map(is_object, schemas.values())):
        return schemas
    return {name: {"title": "T", "description": "D", **schema} for name, schema in schemas.items()}


_FRAGMENTS = list(_fragments())
