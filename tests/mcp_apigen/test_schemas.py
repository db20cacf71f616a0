"""What a schema says is what the generated Python accepts and sends."""

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from pydantic import ValidationError

from ipybox.guest.tools.models import wire

LoadOne = Callable[..., ModuleType]

NODE = {
    "type": "object",
    "required": ["value"],
    "properties": {
        "value": {"type": "integer"},
        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
        "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
    },
}


class Case(NamedTuple):
    """A schema of a property, with values that it accepts and refuses."""

    schema: Any
    accepted: list[Any]
    refused: list[Any] = []  # noqa: RUF012 - never changed
    defs: dict[str, Any] = {}  # noqa: RUF012


CASES = {
    "string": Case({"type": "string"}, ["", "x", "größe", "\0"], [1, None, True, ["x"]]),
    "integer": Case({"type": "integer"}, [0, -1, 10**30, 1.0], ["1", 1.5, True, None]),
    "number": Case({"type": "number"}, [0, 1.0, 1.5, 10**20], ["1", True, None, float("nan"), float("inf")]),
    "boolean": Case({"type": "boolean"}, [True, False], [1, 0, "true", None]),
    "null": Case({"type": "null"}, [None], [0, "", False]),
    "type list": Case({"type": ["string", "null"]}, ["x", None], [1, False]),
    "integer or string": Case({"type": ["integer", "string"]}, [1, "1"], [1.5, None, True]),
    "nullable": Case({"type": "string", "nullable": True}, ["x", None], [1]),
    "no type": Case({}, [None, 1, "x", [1], {"a": None}]),
    "true": Case(True, [None, 1, {"a": [1.0]}]),
    "uri": Case({"type": "string", "format": "uri"}, ["http://EXAMPLE.com", "no uri"], [1]),
    "uuid": Case({"type": "string", "format": "uuid"}, ["0D3EE9A4E4F34C2C9B4B5A0B9E3C1C11"]),
    "date-time": Case({"type": "string", "format": "date-time"}, ["2026-11-01T00:00:00+0000"]),
    "email": Case({"type": "string", "format": "email"}, ["a@b", "A@B.c"]),
    "password": Case({"type": "string", "format": "password"}, ["secret"]),
    "lengths": Case({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "äöü"], ["a", "abcd"]),
    "pattern": Case({"type": "string", "pattern": "^[a-z]+$"}, ["abc"], ["", "ABC", "abc\n"]),
    "pattern is searched": Case({"type": "string", "pattern": "b+"}, ["abc"], ["ac"]),
    "lookahead": Case({"type": "string", "pattern": "^(?=a)"}, ["abc"], ["x"]),
    "broken pattern is left out": Case({"type": "string", "pattern": "(["}, ["abc"]),
    "bounds": Case({"type": "integer", "minimum": 1, "maximum": 3}, [1, 3], [0, 4]),
    "exclusive bounds": Case({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, [0.5], [0, 1]),
    "bounds of draft 4": Case({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, [1], [0]),
    "fractional bounds": Case({"type": "integer", "minimum": 0.5, "maximum": 2.5}, [1, 2], [0, 3]),
    "multiple": Case({"type": "integer", "multipleOf": 5}, [0, 5, -10], [1]),
    "multiple of a fraction": Case({"type": "number", "multipleOf": 0.1}, [0.3, 1, 1e300], [0.35]),
    "integers of JavaScript": Case(
        {"type": "integer", "minimum": 1 - 2**53, "maximum": 2**53 - 1}, [0, 2**53 - 1], [2**53, -(2**53), 1.5]
    ),
    "positive integers of JavaScript": Case(
        {"type": "integer", "exclusiveMinimum": 0, "maximum": 2**53 - 1}, [1, 2**53 - 1], [0, 2**53]
    ),
    "half of JavaScript's integers": Case({"type": "integer", "maximum": 2**53 - 1}, [-(10**30)], [2**53]),
    "absurd bounds": Case({"type": "integer", "minimum": -1e308, "maximum": "3"}, [10**9]),
    "string enum": Case({"enum": ["a", "b-c", "name", ""]}, ["a", "b-c", "name", ""], ["x", None, 1]),
    "null in enum": Case({"type": ["string", "null"], "enum": ["a", "b", None]}, ["a", None], ["c"]),
    "integer enum": Case({"type": "integer", "enum": [1, 2]}, [1, 2], [3, True, "1"]),
    "boolean enum": Case({"enum": [True]}, [True], [1, False, "true"]),
    "mixed enum": Case({"enum": [1, "1", None, False]}, [1, "1", None, False], [0, True, "None"]),
    "enum of structures": Case({"enum": [[1], {"a": [True]}, 1.5]}, [[1], {"a": [True]}, 1.5], [[2], {"a": [1]}]),
    "boolean enum against type": Case({"type": "boolean", "enum": [True, "x"]}, [True], [False, "x"]),
    "number enum against type": Case({"type": "integer", "enum": [1.0, 2.5]}, [1.0], [2.5, 3]),
    "list enum against type": Case({"type": "array", "enum": [[1], {"a": 1}]}, [[1]], [[2], {"a": 1}]),
    "object enum against type": Case({"type": "object", "enum": [[1], {"a": 1}]}, [{"a": 1}], [{"a": 2}, [1]]),
    "const": Case({"const": "x"}, ["x"], ["y", None]),
    "null const": Case({"const": None}, [None], [0, False]),
    "enum against type": Case({"type": "string", "enum": ["a", "b", 1]}, ["a"], [1]),
    "large enum": Case({"type": "string", "enum": [str(n) for n in range(500)]}, ["1"], ["x", 1]),
    "titled constants": Case({"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, ["a", "b"], ["A", None]),
    "array": Case({"type": "array", "items": {"type": "integer"}}, [[], [1, 2]], [[1.5], ["1"], "x", {}]),
    "array of anything": Case({"type": "array"}, [[], [1, "x", None]], ["x"]),
    "array bounds": Case({"type": "array", "minItems": 1, "maxItems": 2}, [[1], [1, 2]], [[], [1, 2, 3]]),
    "nested constraint": Case({"type": "array", "items": {"type": "string", "minLength": 1}}, [["a"]], [[""]]),
    "tuple": Case(
        {"type": "array", "prefixItems": [{"type": "string"}], "items": False}, [["a"], []], [[1], ["a", "b"]]
    ),
    "tuple of draft 7": Case({"type": "array", "items": [{"type": "string"}]}, [["a", 1]], ["a"]),
    "tuple of many": Case({"type": "array", "prefixItems": [{"type": "string"}] * 50}, [["a"]], ["a"]),
    "many alternatives": Case({"anyOf": [{"type": "array", "minItems": n} for n in range(50)]}, [[1]], []),
    "many alternatives of alternatives": Case(
        {"anyOf": [{"anyOf": [{"enum": [[n, m]]} for m in range(5)]} for n in range(20)]}, [[1, 1]], [[20, 1]]
    ),
    "patterns of names": Case({"type": "object", "patternProperties": {"^x": {}}}, [{"x": 1}, {}], ["x", []]),
    "open object": Case({"type": "object"}, [{}, {"a": 1, "from": None}], [[], "x"]),
    "dictionary": Case({"type": "object", "additionalProperties": {"type": "integer"}}, [{"a": 1}], [{"a": "1"}]),
    "empty object": Case({"type": "object", "additionalProperties": False}, [{}], [{"a": 1}]),
    "object": Case(
        {"type": "object", "properties": {"a-b": {"type": "integer"}, "c": {}}, "required": ["a-b"]},
        [{"a-b": 1}, {"a-b": 1, "c": None}, {"a-b": 1, "extra": 1.0}],
        [{}, {"a-b": "1"}, {"c": 1}],
    ),
    "closed object": Case(
        {"type": "object", "properties": {"from": {}}, "additionalProperties": False}, [{}, {"from": 1}], [{"a": 1}]
    ),
    "pattern properties keep an object open": Case(
        {"properties": {"a": {}}, "patternProperties": {"^x": {}}, "additionalProperties": False}, [{"a": 1, "x1": 2}]
    ),
    "required but not described": Case(
        {"type": "object", "properties": {"a": {}}, "required": ["z"]}, [{"z": None}], [{"a": 1}]
    ),
    "deeply nested": Case(
        {"properties": {"a": {"properties": {"b": {"properties": {"c": {"type": "integer"}}}}}}},
        [{"a": {"b": {"c": 1}}}, {"a": {"b": {}}}],
        [{"a": {"b": {"c": "1"}}}],
    ),
    "any of": Case({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, ["a", ["a"]], [1]),
    "one of objects": Case(
        {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": "a"}, "x": {"type": "integer"}},
                    "required": ["kind"],
                },
                {"type": "object", "properties": {"kind": {"const": "b"}, "y-y": {}}, "required": ["kind"]},
            ]
        },
        [{"kind": "a", "x": 1}, {"kind": "b", "y-y": None}],
        [{"kind": "c"}, {}],
    ),
    "type beside alternatives": Case(
        {"type": "string", "anyOf": [{"minLength": 3}, {"enum": ["a", "b"]}]}, ["abc", "a"], [1, "c"]
    ),
    "alternatives of required": Case(
        {"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [{"a": 1}, {"b": 1}],
    ),
    "no alternative": Case({"type": "object", "properties": {"a": {}}, "anyOf": [False]}, [], [{}, {"a": 1}]),
    "properties in alternatives": Case(
        {"type": "object", "properties": {"a": {}}, "oneOf": [{"properties": {"b": {"type": "integer"}}}]},
        [{"a": 1, "b": 1}],
        [{"b": "1"}],
    ),
    "property that another alternative leaves open": Case(
        {
            "type": "object",
            "properties": {"a": {}},
            "anyOf": [{"properties": {"b": {"type": "integer"}}, "required": ["b"]}, {"required": ["a"]}],
        },
        [{"a": 1, "b": "x"}, {"b": 1}, {"a": None, "b": [1]}],
        [{"b": "x"}, {}],
    ),
    "property that one of several alternatives leaves open": Case(
        {
            "type": "object",
            "properties": {"a": {}},
            "oneOf": [
                {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
                {"properties": {"b": {"type": "string"}}, "required": ["b"]},
                {"properties": {"c": {"type": "boolean"}}, "required": ["c"]},
            ],
        },
        [{"b": 1}, {"b": "x"}, {"b": None, "c": True}],
        [{"b": None}, {"c": 1}],
    ),
    "property that an alternative of anything leaves open": Case(
        {
            "type": "object",
            "properties": {"a": {}},
            "anyOf": [True, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}],
        },
        [{"b": "x"}, {}, {"b": 1}],
    ),
    "property that a referenced alternative leaves open": Case(
        {"type": "object", "properties": {"a": {}}, "anyOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/open"}]},
        [{"a": 1, "b": "x"}, {"b": 1}],
        [{"b": "x"}],
        {"b": {"properties": {"b": {"type": "integer"}}}, "open": {"required": ["a"]}},
    ),
    "property that another alternative has for some names": Case(
        {
            "type": "object",
            "properties": {"a": {}},
            "anyOf": [
                {"properties": {"b": {"type": "integer"}}, "required": ["a"]},
                {"patternProperties": {"^b": {"type": "string"}}, "additionalProperties": False},
            ],
        },
        [{"b": "x"}, {"a": 1, "b": 1}],
        [{"b": None}],
    ),
    "property that no other alternative allows": Case(
        {
            "type": "object",
            "properties": {"a": {}},
            "anyOf": [{"properties": {"b": {"type": "integer"}}}, {"required": ["a"], "additionalProperties": False}],
        },
        [{"a": 1, "b": 1}],
        [{"b": "x"}],
    ),
    "property once more in alternatives": Case(
        {"type": "object", "properties": {"a": {"type": "string"}}, "oneOf": [{"properties": {"a": {}, "b": {}}}]},
        [{"a": "x", "b": 1}],
        [{"a": 1}],
    ),
    "all of": Case(
        {
            "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}],
            "description": "both",
        },
        [{"a": "x", "b": 1}],
        [{"a": "x"}, {"b": 1}, {"a": 1, "b": 1}],
        {"base": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}},
    ),
    "bounds of all of": Case(
        {"allOf": [{"type": "integer", "minimum": 1, "maximum": 5}, {"minimum": 3, "maximum": 9, "title": "T"}]},
        [3, 5],
        [2, 6],
    ),
    "enums of all of": Case({"allOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]}, ["b"], ["a", "c"]),
    "types of all of": Case(
        {"allOf": [{"type": ["number", "string"]}, {"type": ["integer", "null"]}]}, [1], ["x", 1.5, None]
    ),
    "items of all of": Case(
        {"allOf": [{"type": "array", "items": True}, {"items": {"type": "integer"}}]}, [[1]], [["x"]]
    ),
    "the same items of all of, twice": Case(
        {"properties": {name: {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]} for name in "xy"}},
        [{"x": [1], "y": [1]}],
        [{"x": [0]}, {"y": [0]}, {"y": ["a"]}],
        {
            "a": {"type": "array", "items": {"type": "integer"}},
            "b": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        },
    ),
    "closed parts of all of": Case(
        {
            "allOf": [
                {"properties": {"a": {}}, "additionalProperties": False},
                {"properties": {"b": {}}, "additionalProperties": False},
            ]
        },
        [{}],
        [{"a": 1}],
    ),
    "same property in all of": Case(
        {"allOf": [{"properties": {"a": {"minimum": 1}}}, {"properties": {"a": {"type": "integer", "minimum": 3}}}]},
        [{"a": 3}],
        [{"a": 2}, {"a": "3"}],
    ),
    "ref": Case({"$ref": "#/$defs/s"}, ["x"], [1], {"s": {"type": "string"}}),
    "escaped ref": Case({"$ref": "#/$defs/a~1b%25"}, ["x"], [1], {"a/b%": {"type": "string"}}),
    "anchor": Case({"$ref": "#s"}, ["x"], [1], {"s": {"$anchor": "s", "type": "string"}}),
    "ref by id": Case({"$ref": "http://x/s"}, ["x"], [1], {"s": {"$id": "http://x/s", "type": "string"}}),
    "ref to true": Case({"$ref": "#/$defs/s"}, ["x", None], [], {"s": True}),
    "ref into a list": Case({"$ref": "#/$defs/s/anyOf/0"}, ["x"], [1], {"s": {"anyOf": [{"type": "string"}]}}),
    "ref beyond a list": Case({"$ref": "#/$defs/s/anyOf/1"}, ["x", 1], [], {"s": {"anyOf": [{"type": "string"}]}}),
    "id that is no address": Case({"$ref": "#/$defs/s"}, ["x"], [1], {"s": {"$id": "http://[x", "type": "string"}}),
    "dangling reference beside a type": Case(
        {"type": "string", "anyOf": [{"$ref": "#/$defs/nothing"}, {"minLength": 3}]}, ["abc"], []
    ),
    "ref with siblings": Case({"$ref": "#/$defs/s", "maxLength": 1}, ["x"], ["xx", 1], {"s": {"type": "string"}}),
    "recursion": Case(
        {"$ref": "#/$defs/node"},
        [{"value": 1}, {"value": 1, "children": [{"value": 2, "children": []}], "next": None}],
        [{"value": 1, "children": [{}]}, {"value": 1, "next": {"value": "1"}}],
        {"node": NODE},
    ),
    "mutual recursion": Case(
        {"$ref": "#/$defs/a"},
        [{"b-b": {"a": {"b-b": {}}}}, {"b-b": {"a": None}}],
        [{"b-b": {"a": {"b-b": 1}}}],
        {
            "a": {"type": "object", "properties": {"b-b": {"$ref": "#/$defs/b"}}},
            "b": {"type": "object", "properties": {"a": {"oneOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}},
        },
    ),
    "recursion beside literals": Case(
        {"$ref": "#/$defs/n"},
        [{"n": "a"}, {"n": {"n": "a"}}],
        [{"n": "b"}],
        {
            "n": {
                "type": "object",
                "properties": {"n": {"anyOf": [{"const": "a"}, {"$ref": "#/$defs/n"}]}},
                "required": ["n"],
            }
        },
    ),
    "recursion beside a text with a backslash": Case(
        {"$ref": "#/$defs/n"},
        [{"n": "a\\b"}, {"n": {"n": "a\\b"}}],
        [{}],
        {
            "n": {
                "type": "object",
                "properties": {"n": {"anyOf": [{"const": "a\\b"}, {"$ref": "#/$defs/n"}]}},
                "required": ["n"],
            }
        },
    ),
    "ref that may be null": Case({"$ref": "#/$defs/s", "nullable": True}, ["x", None], [1], {"s": {"type": "string"}}),
    "ref that is no text": Case({"type": "string", "$ref": 5}, ["x"], [1]),
    "self reference": Case({"$ref": "#/properties/v"}, [1, "x"]),
    "circular reference": Case(
        {"$ref": "#/$defs/a"}, [1], [], {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}
    ),
    "recursive alias": Case(
        {"$ref": "#/$defs/list"}, [[], [[]]], ["x"], {"list": {"type": "array", "items": {"$ref": "#/$defs/other"}}}
    ),
    "remote reference": Case({"$ref": "https://example.invalid/schema.json"}, [1, None]),
    "dangling reference": Case({"$ref": "#/$defs/nothing"}, [1, None]),
    "malformed": Case({"type": 5, "enum": "x", "anyOf": {}, "items": 1, "minimum": "1", "required": 3}, [1, None]),
    "malformed object": Case({"type": "object", "properties": [], "required": "x"}, [{"a": 1}]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_params_accept_and_send_what_the_schema_says(case: Case, load_one: LoadOne) -> None:
    module = load_one(
        {"type": "object", "properties": {"v": case.schema}, "required": ["v"], "$defs": case.defs},
    )
    for value in case.accepted:
        params = module.Params(v=value)
        assert json.dumps(wire(params)) == json.dumps({"v": value})
        assert module.run(params) == "text"
    for value in case.refused:
        with pytest.raises(ValidationError):
            module.Params(v=value)


def test_schema_whose_references_make_it_too_large_accepts_anything(load_one: LoadOne) -> None:
    properties = {f"p{number}": {"$ref": "#/$defs/s"} for number in range(200)}
    definition = {"type": "string", "description": "x" * 10_000}
    module = load_one({"type": "object", "properties": properties, "$defs": {"s": definition}})
    assert not module.Params.model_fields
    assert wire(module.Params(p1="x")) == {"p1": "x"}


def test_recursive_root_is_params_itself(load_one: LoadOne) -> None:
    module = load_one({"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}})
    params = module.Params(children=[module.Params(), {"children": []}])
    assert wire(params) == {"children": [{}, {"children": []}]}
    assert isinstance(params.children[1], module.Params)


def test_referenced_root_is_resolved(load_one: LoadOne) -> None:
    module = load_one({"$ref": "#/$defs/args", "$defs": {"args": {"type": "object", "properties": {"a-b": {}}}}})
    assert wire(module.Params(a_b=1)) == {"a-b": 1}


def test_wire_form_has_original_names_and_only_what_was_set(load_one: LoadOne) -> None:
    names = ["from", "max-results", "$id", "2fa", "class", "_id", "schema", "model_config", "self", "copy", "json"]
    module = load_one(
        {
            "type": "object",
            "properties": {name: {"type": ["integer", "null"], "default": 7} for name in names},
            "additionalProperties": False,
        }
    )
    assert wire(module.Params()) == {}
    by_wire_name = dict.fromkeys(names, None)
    assert wire(module.Params(**by_wire_name)) == by_wire_name
    by_python_name = {"from_": 1, "max_results": 2, "id": 3, "field_2fa": 4, "class_": 5, "id_2": 6, "schema_": 7}
    assert wire(module.Params(**by_python_name)) == dict(zip(names, range(1, 8), strict=False))
    with pytest.raises(ValidationError):
        module.Params(max__results=1)


def test_assigned_fields_are_sent_and_checked(load_one: LoadOne) -> None:
    module = load_one({"type": "object", "properties": {"page": {"type": "integer"}}})
    params = module.Params()
    params.page = 2
    assert wire(params) == {"page": 2}
    with pytest.raises(ValidationError):
        params.page = "2"


def test_enum_members_are_sent_as_their_values(load_one: LoadOne) -> None:
    choice = {"type": "string", "enum": ["created-at", "title"]}
    module = load_one(
        {"type": "object", "properties": {"sort": choice, "fields": {"type": "array", "items": choice}, "any": {}}}
    )
    params = module.Params(
        sort=module.Sort.created_at, fields=[module.FieldsItem.title, "created-at"], any={"deep": [module.Sort.title]}
    )
    assert json.dumps(wire(params)) == (
        '{"sort": "created-at", "fields": ["title", "created-at"], "any": {"deep": ["title"]}}'
    )
    assert params.fields[1] is module.FieldsItem.created_at


def test_members_are_called_as_their_values_even_where_strings_have_a_method_of_the_name(load_one: LoadOne) -> None:
    names = [
        "name",
        "value",
        "title",
        "count",
        "format",
        "encode",
        "lower",
        "join",
        "index",
        "replace",
        "strip",
        "split",
    ]
    schema = {
        "type": "object",
        "properties": {"by": {"enum": names}, "all": {"type": "array", "items": {"enum": names}}},
    }
    module = load_one(schema, schema)
    choices = [getattr(module.By, name) for name in names]
    for name, choice in zip(names, choices, strict=True):
        assert (choice.name, choice.value, f"{choice}") == (name, name, name)
        assert module.Result(by=name).by is choice
        assert json.dumps(wire(module.Params(by=choice, all=choices))) == json.dumps({"by": name, "all": names})


def test_errors_name_fields_as_the_caller_does(load_one: LoadOne) -> None:
    module = load_one({"type": "object", "properties": {"max-results": {"type": "integer"}}})
    with pytest.raises(ValidationError) as caught:
        module.Params(max_results="many")
    assert caught.value.errors()[0]["loc"] == ("max_results",)


def test_params_without_required_fields_may_be_left_out(load_one: LoadOne) -> None:
    module = load_one({"type": "object", "properties": {"page": {"type": "integer"}}}, name="list-all")
    assert module.run() == "text"
    assert module.CLIENT.calls == [("reply_sync", "list-all", {})]


async def test_result_is_parsed_and_tolerant(load_one: LoadOne) -> None:
    item = {"type": "object", "properties": {"item-id": {"type": "integer", "minimum": 100}}, "required": ["item-id"]}
    module = load_one(
        {"type": "object", "properties": {"item": item}},
        {
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": item},
                "total": {"type": "number"},
                "more": {"type": "string"},
            },
            "required": ["items"],
            "additionalProperties": False,
        },
    )
    module.CLIENT.result = {"items": [{"item-id": 5, "new": [1]}], "total": 1, "unknown": {"a": 1}}
    result = module.run(module.Params(item={"item-id": 100}))
    assert isinstance(result, module.Result)
    assert (result.items[0].item_id, result.total, result.more) == (5, 1, None)
    assert isinstance(result.items[0], module.ItemsItem)
    assert result.unknown == {"a": 1}
    assert (await module.run_async(module.Params())).total == 1
    assert [call[0] for call in module.CLIENT.calls] == ["reply_sync", "reply"]


def test_models_of_both_sides_have_names_of_their_own(load_one: LoadOne) -> None:
    schema = {"type": "object", "properties": {"item": {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}}}}
    module = load_one(schema, schema)
    assert module.Params(item={}).item.__class__ is module.Item
    assert module.Result(item={"a": "x"}).item.__class__ is module.ResultItem
    assert module.Result(item={"a": "x"}).item.a is module.A.x


def test_equal_objects_share_a_class(load_one: LoadOne) -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}}}
    module = load_one(
        {"type": "object", "properties": {"a": {"properties": {"at": point}}, "b": {"properties": {"at": dict(point)}}}}
    )
    assert not hasattr(module, "At2")
    assert isinstance(module.Params(b={"at": {"x": 1}}).b.at, module.At)


def test_class_names_do_not_collide_with_fields_or_imports(load_one: LoadOne) -> None:
    inner = {"type": "object", "properties": {"Field": {"type": "integer", "minimum": 1}, "List": {"type": "string"}}}
    names = [
        "Any",
        "Field",
        "List",
        "str",
        "Params",
        "Result",
        "Choice",
        "wire",
        "run",
        "CLIENT",
        "literal",
        "exception",
    ]
    module = load_one({"type": "object", "properties": dict.fromkeys(names, inner)})
    values = {name: {"Field": 1, "List": "x"} for name in names}
    assert wire(module.Params(**values)) == values


def test_enum_shared_by_several_fields_is_one_class(load_one: LoadOne) -> None:
    order = {"$ref": "#/$defs/Order"}
    module = load_one(
        {
            "type": "object",
            "properties": {"a": order, "b": {"allOf": [order], "description": "B"}},
            "$defs": {"Order": {"enum": ["asc", "desc"]}},
        }
    )
    params = module.Params(a=module.Order.asc, b="desc")
    assert params.b is module.Order.desc


@pytest.mark.parametrize(
    "schema",
    [{"type": "string"}, {"type": "array"}, True, None, 5, [], {"$ref": "http://x.invalid"}, {"$ref": "#"}],
    ids=repr,
)
def test_hopeless_schema_falls_back_to_a_model_of_anything(
    schema: Any, load_one: LoadOne, caplog: pytest.LogCaptureFixture
) -> None:
    module = load_one(schema, schema)
    assert wire(module.Params(anything=[1, None])) == {"anything": [1, None]}
    module.CLIENT.result = {"x": 1}
    result = module.run(module.Params())
    # Without a schema of objects, a result is text.
    assert result == "text" if "$ref" not in str(schema) else result.x == 1
    assert "tool 'tool': Params accepts any fields" in caplog.text
