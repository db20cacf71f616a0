"""Properties that a schema requires although it has a default for them: callers need not give them."""

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from ipybox.guest.tools.models import wire

LoadOne = Callable[..., ModuleType]


def required(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


SENT: dict[str, tuple[dict[str, Any], Any]] = {
    "choice": ({"enum": ["css", "device"]}, "css"),
    "string": ({"type": "string"}, "default"),
    "string with limits": ({"type": "string", "pattern": "^[a-z]+$"}, "default"),
    "integer": ({"type": "integer", "minimum": 1}, 5),
    "integer as a float": ({"type": "integer"}, 5.0),
    "number": ({"type": "number"}, 1),
    "flag": ({"type": "boolean"}, False),
    "null": ({"type": ["string", "null"]}, None),
    "one of several types": ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 1),
    "constant": ({"const": "v2"}, "v2"),
    "numbers": ({"enum": [1, 2, 3]}, 2),
    "structures": ({"enum": [1.5, "x"]}, 1.5),
    "list": ({"type": "array", "items": {"enum": ["markdown", "html"]}}, ["markdown"]),
    "empty list of objects": ({"type": "array", "items": required(a={})}, []),
    "long list": ({"type": "array", "items": {"type": "string"}}, ["a long text"] * 20),
    "dictionary": ({"type": "object", "additionalProperties": {"type": "string"}}, {"a": "b"}),
    "anything": ({}, {"a": [{"b": None}]}),
    "quotes": ({"type": "string"}, "\"'\\\n\u202e{}"),
    "items of what need be no list": ({"items": {"type": "string"}}, "text"),
    "checked with the schema": ({"type": "array", "uniqueItems": True}, ["a"]),
}


@pytest.mark.parametrize(("schema", "default"), SENT.values(), ids=SENT.keys())
@pytest.mark.parametrize("name", ["value", "from"])
def test_default_of_a_required_property_is_sent(name: str, schema: Any, default: Any, load_one: LoadOne) -> None:
    module = load_one(required(**{name: {**schema, "default": default}}))
    assert json.dumps(wire(module.Params())) == json.dumps({name: default})
    assert module.run(module.Params()) == "text"


GIVEN: dict[str, dict[str, Any]] = {
    "no default": {"type": "string"},
    "text for a number": {"type": "integer", "default": "5"},
    "number for a text": {"type": "string", "default": 5},
    "flag for a number": {"type": "integer", "default": True},
    "fraction for an integer": {"type": "integer", "default": 1.5},
    "null for a text": {"type": "string", "default": None},
    "not one of the choices": {"enum": ["css", "device"], "default": "screen"},
    "not one of the numbers": {"enum": [1, 2], "default": True},
    "no list": {"type": "array", "default": "a"},
    "wrong item": {"type": "array", "items": {"type": "integer"}, "default": ["a"]},
    "beyond the bounds": {"type": "integer", "minimum": 1, "default": 0},
    "against the pattern": {"type": "string", "pattern": "^a", "default": "b"},
    "against the schema": {"type": "array", "uniqueItems": True, "default": [1, 1]},
    "no number of JSON": {"type": "number", "default": float("nan")},
    "no text": {"type": "string", "default": "\ud800"},
    "too long to read": {"type": "string", "default": "x" * 10_000},
    "text for an object": {**required(a={"type": "string"}), "default": "x"},
    "object with names": {**required(a={"type": "string"}), "default": {"a": "x"}},
}


@pytest.mark.parametrize("schema", GIVEN.values(), ids=GIVEN.keys())
def test_default_that_the_schema_refuses_or_no_one_can_read_must_be_given(schema: Any, load_one: LoadOne) -> None:
    module = load_one(required(value=schema))
    with pytest.raises(ValidationError):
        module.Params()


def test_values_replace_defaults_and_each_object_has_its_own(load_one: LoadOne) -> None:
    module = load_one(
        required(scale={"enum": ["css", "device"], "default": "css"}, all={"type": "array", "default": []})
    )
    first = module.Params(scale="device")
    first.all.append(1)
    assert wire(first) == {"scale": "device", "all": [1]}
    assert wire(module.Params()) == {"scale": "css", "all": []}
    assert module.Params().scale is module.Scale.css
    with pytest.raises(ValidationError):
        module.Params(scale="screen")


def test_defaults_of_optional_properties_are_left_to_the_server(load_one: LoadOne) -> None:
    module = load_one({"type": "object", "properties": {"page": {"type": "integer", "default": 1}}})
    assert wire(module.Params()) == {}


def test_nested_objects_send_defaults_but_no_constant_that_tells_alternatives_apart(load_one: LoadOne) -> None:
    shapes = [
        required(kind={"const": kind, "default": kind}, color={"type": "string", "default": "red"})
        for kind in ("circle", "box")
    ]
    module = load_one(required(shape={"oneOf": shapes}))
    assert wire(module.Params(shape={"kind": "box"})) == {"shape": {"kind": "box", "color": "red"}}
    with pytest.raises(ValidationError):
        module.Params(shape={"color": "red"})


def test_defaults_without_end_must_be_given(load_one: LoadOne) -> None:
    schema = required(a={"$ref": "#", "default": {}}, b={"anyOf": [{"$ref": "#"}, {"type": "object"}], "default": {}})
    with pytest.raises(ValidationError, match="2 validation errors"):
        load_one(schema).Params()


def test_default_of_a_reference_counts(load_one: LoadOne) -> None:
    schema = required(a={"$ref": "#/$defs/scale"}, b={"$ref": "#/$defs/scale", "default": "device"})
    module = load_one({**schema, "$defs": {"scale": {"enum": ["css", "device"], "default": "css"}}})
    assert wire(module.Params()) == {"a": "css", "b": "device"}


def test_required_results_have_no_defaults(load_one: LoadOne) -> None:
    module = load_one({"type": "object"}, required(scale={"enum": ["css", "device"], "default": "css"}))
    with pytest.raises(ValidationError):
        module.Result()
