"""Nothing of a schema is executed, whatever it contains; and no schema keeps the others from being generated."""

import ast
import json
import logging
import random
import time
from collections.abc import Callable
from typing import Any
from unicodedata import normalize

import pytest

from ipybox.guest.tools.models import wire
from ipybox.mcp_apigen.package.files import ToolSpec, render_package
from ipybox.mcp_apigen.render.naming import module_names
from ipybox.mcp_apigen.render.text import literal
from ipybox.mcp_apigen.schema.values import elements, is_object, is_text
from tests.mcp_apigen import harmless
from tests.mcp_apigen.conftest import Loader
from tests.mcp_apigen.fuzz import named_apart
from tests.mcp_apigen.hostile import PAYLOADS

# Every keyword that carries text, a name or a value is somewhere in here.
SEED: dict[str, Any] = {
    "$schema": "S",
    "$id": "S",
    "type": "object",
    "title": "S",
    "description": "S",
    "required": ["S", "b"],
    "default_factory": "S",
    "customTypePath": "S",
    "x-python-import": {"module": "S", "name": "S"},
    "properties": {
        "S": {"type": "string", "description": "S", "default": "S", "pattern": "S", "format": "S", "examples": ["S"]},
        "b": {"enum": ["S", "x", "y"], "title": "S", "default": {"S": "S"}},
        "c": {"const": "S"},
        "d": {"enum": [1.5, ["S"], {"S": "S"}]},
        "e": {"type": "array", "items": {"type": "object", "title": "S", "properties": {"S": {"pattern": "S"}}}},
        "f": {"$ref": "S"},
        "g": {"$ref": "#/$defs/S"},
        "h": {"oneOf": [{"title": "S", "properties": {"k": {"const": "S"}}}, {"const": "S"}, {"$ref": "#/$defs/r"}]},
        "i": {"type": "S", "minimum": "S", "items": "S", "anyOf": "S", "additionalProperties": "S"},
        "j": {"type": ["string", "S"], "maxLength": "S", "$comment": "S"},
        "k": {"enum": [1, "S", None]},
    },
    "$defs": {
        "S": {"type": "object", "description": "S", "properties": {"S": {"$ref": "#/$defs/r"}}},
        "r": {"type": "object", "description": "S", "properties": {"n": {"$ref": "#/$defs/r"}, "S": {"const": "S"}}},
    },
}


def infested(value: Any, choose: Callable[[], str]) -> Any:
    """A copy in which some of the strings, and of the names, are payloads."""
    if is_object(value):
        return {(choose() if key == "S" else key): infested(item, choose) for key, item in value.items()}
    if isinstance(value, list):
        return [infested(item, choose) for item in elements(value)]
    return choose() if value == "S" else value


def infested_tools(seed: int, count: int) -> list[ToolSpec]:
    dice = random.Random(seed)

    def choose() -> str:
        payload = dice.choice(PAYLOADS)
        return payload if dice.random() < 0.7 else dice.choice(PAYLOADS) + payload

    return [
        ToolSpec(choose(), choose(), infested(SEED, choose), infested(SEED, choose) if dice.random() < 0.3 else None)
        for _ in range(count)
    ]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:  # pyright: ignore[reportUnusedFunction] - pytest calls it
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("seed", range(4))
def test_generated_code_holds_nothing_but_models_and_calls(seed: int) -> None:
    # 60 schemas of 60 places each, on top of tool names and descriptions.
    tools = named_apart(infested_tools(seed, 60))
    files = render_package("hostile", {"command": "x"}, tools, "seal")
    modules = module_names([tool.name for tool in tools], {})
    schemas = {f".{module}.schema.json" for module in modules}
    assert {f"{module}.py" for module in modules} == files.keys() - {"__init__.py", ".ipybox.json"} - schemas
    assert len({name.casefold() for name in files}) == len(files)
    assert len(files.keys() - schemas) == len(tools) + 2
    for tool, module in zip(tools, modules, strict=True):
        harmless.Module(files[f"{module}.py"], tool.name, module)
        assert module.isidentifier()
        assert normalize("NFKC", module) == module


@pytest.mark.parametrize("seed", range(2))
def test_hostile_modules_can_be_imported(seed: int, load: Loader) -> None:
    for module in load(named_apart(infested_tools(100 + seed, 20))):
        assert module.Params.__name__ == "Params"


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: ascii(payload)[:40])
def test_strings_arrive_as_they_are(payload: str, load: Loader) -> None:
    schema = {
        "type": "object",
        "description": payload,
        "properties": {payload: {"const": payload, "description": payload}, "e": {"enum": [payload, "x"]}},
    }
    (module,) = load([ToolSpec(payload, payload, schema, schema)])
    # A lone surrogate has no wire form, and so no place among the fields.
    values = {payload: payload, "e": payload} if is_text(payload) else {"e": "x"}
    module.run(module.Params(**values))
    assert module.CLIENT.calls == [("reply_sync", payload, values)]


@pytest.mark.parametrize("cookie", ["# coding: utf-7", "# -*- coding: utf-7 -*-", "# vim: set fileencoding=utf-7 :"])
def test_descriptions_do_not_say_how_a_module_is_encoded(cookie: str, load: Loader) -> None:
    # https://peps.python.org/pep-0263/ looks at the first two lines, where the tool's description is.
    for text in (cookie, f"Finds it.\n{cookie}\n+AGE-"):
        (module,) = load([ToolSpec("find", text, {"type": "object"})])
        assert module.run.__doc__ == module.__doc__ == text


def test_server_params_and_name_are_literals() -> None:
    params = {"command": PAYLOADS[0], "args": PAYLOADS, "env": {payload: payload for payload in PAYLOADS}}
    tree = ast.parse(render_package("x", params, [], PAYLOADS[0])["__init__.py"])
    assert [type(node) for node in tree.body] == [ast.Expr, ast.ImportFrom, ast.Assign, ast.Assign]
    exported, assignment = [node for node in tree.body if isinstance(node, ast.Assign)]
    assert ast.literal_eval(exported.value) == ["CLIENT"]
    assert isinstance(assignment.value, ast.Call)
    values = {keyword.arg: ast.literal_eval(keyword.value) for keyword in assignment.value.keywords}
    assert values == {"server_name": "x", "server_params": params, "seal": PAYLOADS[0]}


def _nested(depth: int, keyword: str) -> Any:
    schema: Any = {"type": "object"}
    for _ in range(depth):
        schema = {keyword: {"a": schema} if keyword == "properties" else [schema]}
    return schema


def _doubling(levels: int, keyword: str) -> Any:
    """A small document that is enormous where its references are followed."""
    definitions: dict[str, Any] = {f"d{levels}": {"type": "string"}}
    for level in range(levels):
        below = {"$ref": f"#/$defs/d{level + 1}"}
        definitions[f"d{level}"] = {keyword: [below, {"properties": {"p": below, "q": below}}, below]}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions}


HEAVY = {
    "10,000 levels of properties": _nested(10_000, "properties"),
    "10,000 levels of anyOf": _nested(10_000, "anyOf"),
    "60 levels of properties": _nested(30, "properties"),
    "60 levels of allOf": _nested(30, "allOf"),
    "doubling anyOf": _doubling(30, "anyOf"),
    "doubling allOf": _doubling(30, "allOf"),
    "enum of a megabyte": {
        "type": "object",
        "properties": {"a": {"enum": ["x" * 100 + str(n) for n in range(10_000)]}},
    },
    "string of two megabytes": {"type": "object", "properties": {"a": {"description": "x" * 2_000_000}}},
    "2,000 properties": {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(2_000)}},
    "300 references in a row": {
        "properties": {"a": {"$ref": "#/$defs/d0"}},
        "$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(300)},
    },
    "300 objects in a row": {
        "properties": {"a": {"$ref": "#/$defs/d0"}},
        "$defs": {f"d{n}": {"properties": {"n": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(300)},
    },
    "same property 40 times over": {
        "allOf": [{"properties": {"a": {"allOf": [{"properties": {"b": {"type": "string"}}}] * 40}}}] * 40
    },
    "3,000 properties 100 times over": {
        "allOf": [{"properties": {f"p{n}": {"type": "string"} for n in range(3_000)}}, *[{"$ref": "#/allOf/0"}] * 99]
    },
    "long integers": {"properties": {"a": {"enum": [10**4299]}, "b": {"minimum": 10**4299, "type": "number"}}},
    "infinity": {"properties": {"a": {"enum": [float("inf")], "default": float("nan")}}},
}


@pytest.mark.parametrize("schema", HEAVY.values(), ids=HEAVY.keys())
def test_heavy_schema_costs_one_tool_at_most_its_types(schema: Any, load: Loader) -> None:
    started = time.process_time()
    heavy, light = load(
        [
            ToolSpec("heavy", "Heavy.", schema, schema),
            ToolSpec("light", "Light.", {"type": "object", "properties": {"a-b": {"type": "integer"}}}),
        ]
    )
    assert time.process_time() - started < 10
    assert json.dumps(wire(heavy.Params(z=[1]))) == '{"z": [1]}'
    assert wire(light.Params(a_b=1)) == {"a-b": 1}


def test_nothing_is_fetched(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr("socket.socket", refuse)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    schema = {"properties": {"a": {"$ref": "https://example.com/s.json"}, "b": {"$ref": "file:///etc/passwd"}}}
    (module,) = load([ToolSpec("remote", "", schema)])
    assert wire(module.Params(a=1, b=None)) == {"a": 1, "b": None}


def test_only_json_becomes_a_literal() -> None:
    assert literal({"a": [None, True, 1.5, "x"]}) == '{"a": [None, True, 1.5, "x"]}'
    with pytest.raises(ValueError, match="object is not a JSON value"):
        literal([object()])
