"""Arguments of tools whose schemas say more than types: what is refused, and in which words."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from ipybox.guest.tools import schema_check
from ipybox.guest.tools.models import UNSET, CheckedInput, Input, wire

Validate = Callable[[Any, Any], Any]


class Filter(Input):
    a_b: Annotated[list[Any], Field(alias="a-b")] = UNSET
    id: Annotated[int | float, Field(alias="$id")] = UNSET


class Item(CheckedInput):
    filter: Filter = UNSET
    filters: list[Filter] = UNSET
    from_: Annotated[Any, Field(alias="from")] = UNSET
    v: Any = UNSET


@pytest.fixture
def validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Validate:
    """Makes arguments under a schema."""

    def validate(schema: Any, arguments: dict[str, Any]) -> Item:
        class Params(Item):  # a class of its own for each schema
            pass

        path = tmp_path / "schema.json"
        path.write_text(json.dumps(schema), encoding="utf-8")
        monkeypatch.setattr(CheckedInput, "schema_file", staticmethod(lambda: path))
        return Params(**arguments)

    return validate


FILTER = {"properties": {"a-b": {"uniqueItems": True}}, "dependentRequired": {"a-b": ["$id"]}}


@pytest.mark.parametrize(
    ("schema", "arguments", "place", "message"),
    [
        ({"properties": {"v": {"multipleOf": 0.1}}}, {"v": 0.35}, ("v",), "0.35 is not a multiple of 0.1"),
        ({"properties": {"v": {"multipleOf": 3}}}, {"v": 10**400}, ("v",), f"{10**400} is not a"[:300] + "…"),
        (
            {"properties": {"filter": FILTER}},
            {"filter": {"a_b": [1, 1], "id": 1}},
            ("filter", "a_b"),
            "[1, 1] has non-unique elements",
        ),
        (
            {"properties": {"filters": {"items": FILTER}}},
            {"filters": [{"id": 1}, {"a-b": [1]}]},
            ("filters", 1),
            "'id' is a dependency of 'a_b'",
        ),
        ({"anyOf": [{"required": ["from"]}]}, {"v": 1}, (), "'from_' is a required property"),
        ({"properties": {"from": {"not": {"type": "string"}}}}, {"from_": "x"}, ("from_",), "'x' should not be valid"),
        ({"properties": {"v": {"items": {"enum": [1]}}}}, {"v": {"a": 1}}, None, ""),
        ({"properties": {"v": {"items": {"enum": [1]}}}}, {"v": [1, True]}, ("v", 1), "True is not one of [1]"),
        ({"properties": {"v": {"properties": {"from": False}}}}, {"v": {"from": 1}}, ("v",), "False schema"),
    ],
    ids=["fraction", "long", "alias", "item", "required", "not", "other_type", "in_any", "false"],
)
def test_errors_name_what_the_caller_wrote(
    validate: Validate, schema: Any, arguments: dict[str, Any], place: tuple[str | int, ...] | None, message: str
):
    if place is None:
        assert wire(validate(schema, arguments)) == arguments
        return
    with pytest.raises(ValidationError) as caught:
        validate(schema, arguments)

    (error,) = caught.value.errors()
    assert error["loc"] == place
    assert error["msg"].startswith(message[:250])
    assert len(error["msg"]) <= 301


def test_all_errors_come_at_once_but_no_more_than_ten(validate: Validate):
    with pytest.raises(ValidationError) as caught:
        validate({"properties": {"v": {"items": {"minimum": 50}}}}, {"v": list(range(50))})

    assert [error["loc"] for error in caught.value.errors()] == [("v", n) for n in range(10)]


@pytest.mark.parametrize(
    ("schema", "accepted", "refused"),
    [
        ({"type": "string", "nullable": True, "pattern": "^(?=a)"}, [None, "a"], ["b"]),
        ({"enum": ["a"], "nullable": True, "not": {"const": "b"}}, [None, "a"], ["b"]),
        ({"const": "a", "nullable": False}, ["a"], [None]),
        ({"multipleOf": 0.1}, [0.3, 0.1, 1, 1e300, "x", True], [0.35, 1e-300]),
        ({"multipleOf": 1e-8}, [12391239123, 1e308], []),
    ],
    ids=["nullable_type", "nullable_enum", "not_nullable", "fractions", "small_steps"],
)
def test_null_and_fractions_are_taken_as_their_authors_mean_them(
    validate: Validate, schema: Any, accepted: list[Any], refused: list[Any]
):
    for value in accepted:
        assert wire(validate({"properties": {"v": schema}}, {"v": value})) == {"v": value}
    for value in refused:
        with pytest.raises(ValidationError):
            validate({"properties": {"v": schema}}, {"v": value})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/hostname"},
        {"$ref": "#/$defs/none"},
        {"$ref": "#"},
        {"properties": {"v": {"pattern": r"\p{L}"}}},
        {"properties": {"v": {"pattern": "[[a]"}}, "required": ["v"]},
        {"properties": {"v": {"type": "file"}}},
        {"$schema": "http://json-schema.org/draft-03/schema#", "properties": {"v": {"type": "file"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"v": {"$ref": {"a": 1}}}},
    ],
    ids=[
        "remote",
        "file",
        "dangling",
        "circle",
        "unknown_escape",
        "nested_set",
        "unknown_type",
        "draft_3",
        "malformed_reference",
    ],
)
def test_what_can_not_be_decided_here_is_left_to_the_server(
    validate: Validate, schema: Any, monkeypatch: pytest.MonkeyPatch
):
    def connect(*_: object) -> None:
        raise AssertionError("nothing is ever fetched")

    monkeypatch.setattr(socket.socket, "connect", connect)

    assert wire(validate(schema, {"v": "[a"})) == {"v": "[a"}


@pytest.mark.parametrize("text", [None, "", "{", "[" * 100_000], ids=["none", "empty", "broken", "deep"])
def test_without_a_schema_the_server_alone_checks(
    text: str | None, tmp_path: Path, validate: Validate, monkeypatch: pytest.MonkeyPatch
):
    validate({}, {})
    path = tmp_path / "other.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(CheckedInput, "schema_file", staticmethod(lambda: path))

    class Params(Item):
        pass

    assert wire(Params(v=1)) == {"v": 1}


def test_what_was_changed_within_is_checked_when_it_is_sent(validate: Validate):
    params = validate({"properties": {"filter": FILTER}}, {"filter": {}})
    params.filter.a_b = [1, 1]

    with pytest.raises(ValidationError, match="non-unique"):
        wire(params)


@pytest.mark.parametrize(
    ("schema", "dialect"),
    [
        ({"type": "object"}, "https://json-schema.org/draft/2020-12/schema"),
        ({"items": [{"type": "string"}]}, "https://json-schema.org/draft/2019-09/schema"),
        ({"minimum": 1, "exclusiveMinimum": True}, "http://json-schema.org/draft-04/schema#"),
        ({"properties": {"a": {"required": True}}}, "http://json-schema.org/draft-03/schema#"),
        ({"$schema": {}}, None),
        ({"$schema": 5}, None),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "http://json-schema.org/draft-07/schema#"),
        ({"$schema": "urn:unknown"}, "https://json-schema.org/draft/2020-12/schema"),
        ({"pattern": r"\p{L}"}, "https://json-schema.org/draft/2020-12/schema"),
        ({"type": 5}, None),
    ],
    ids=[
        "newest",
        "tuple",
        "flag",
        "required_flag",
        "schema_of_no_name",
        "number_for_a_name",
        "named",
        "unknown",
        "unknown_escape",
        "none",
    ],
)
def test_a_dialect_is_found_for_what_is_well_formed_in_any(schema: Any, dialect: str | None):
    found = schema_check.dialect_of(schema)

    assert (found and found.rstrip("#")) == (dialect and dialect.rstrip("#"))


def test_the_library_is_imported_without_its_slow_part_which_remains_importable():
    code = """
import sys
import ipybox.guest.tools.models
assert "jsonschema" not in sys.modules
import ipybox.guest.tools.schema_check
assert "jsonschema" in sys.modules and "lark" not in sys.modules
import rfc3987_syntax
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_host_generates_a_package_without_the_library():
    code = """
import sys
from ipybox.workspace.registrations import ToolSpec
from ipybox.mcp_apigen.package.files import render_package
schema = {"type": "object", "properties": {"a": {"type": ["string", *range(100_000)]}}, "anyOf": [{"required": ["a"]}]}
files = render_package("server", {"command": "x"}, [ToolSpec("tool", "", schema, schema)], "seal")
assert ".tool.schema.json" in files
assert "jsonschema" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
