"""What a tool returned is there, whatever form its server gives it."""

import base64
import json
import math
from typing import Any

import pytest
from mcp_types import CallToolResult
from mcp_types.methods import validate_server_result

from ipybox.mcp_client.answers import repaired_result, restored

VERSIONS = ["2024-11-05", "2025-11-25", "2026-07-28"]
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n1234").decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe01234").decode()


def accepted(result: dict[str, Any], version: str) -> CallToolResult:
    """Returns what a client gets; fails if the SDK would refuse the repaired result."""
    repaired = repaired_result(result, version)
    validate_server_result("tools/call", version, repaired)
    return restored(CallToolResult.model_validate(repaired, by_name=False))


def blocks(result: CallToolResult) -> list[dict[str, Any]]:
    return [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def image(data: str, mime_type: str) -> dict[str, Any]:
    return {"type": "image", "data": data, "mimeType": mime_type}


def resource(**parts: Any) -> dict[str, Any]:
    return {"type": "resource", "resource": parts}


def file(block: dict[str, Any]) -> dict[str, Any]:
    data = base64.b64encode(json.dumps(block).encode()).decode()
    return resource(uri=f"content:{block['type'][:20]}", mimeType="application/json", blob=data)


CONTENT: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "text": ("done", [text("done")]),
    "block": (text("done"), [text("done")]),
    "number": (5, [text("5")]),
    "list of text": (["a", text("b"), 5], [text("a"), text("b"), text("5")]),
    "no type": ([{"text": "a"}], [text('{"text": "a"}')]),
    "text that is none": ([{"type": "text", "text": {"a": "ä"}}], [text('{"a": "ä"}')]),
    "text of another type": ([{"type": "markdown", "text": "# a"}], [text("# a")]),
    "odd annotation": ([text("a") | {"annotations": {"priority": 7}}], [text("a")]),
    "annotations that are none": ([text("a") | {"annotations": [], "_meta": 5}], [text("a")]),
    "image without a type": ([{"type": "image", "data": PNG}], [image(PNG, "image/png")]),
    "photo without a type": ([{"type": "image", "data": JPEG, "mimeType": None}], [image(JPEG, "image/jpeg")]),
    "anything without a type": (
        [{"type": "audio", "data": "AAAA"}],
        [{"type": "audio", "data": "AAAA", "mimeType": ""}],
    ),
    "sound like an image": (
        [{"type": "audio", "data": "UklGRAAA"}],
        [{"type": "audio", "data": "UklGRAAA", "mimeType": ""}],
    ),
    "image with odd details": ([image(PNG, "image/png") | {"annotations": "x"}], [image(PNG, "image/png")]),
    "image without data": ([{"type": "image", "url": "x:y"}], [file({"type": "image", "url": "x:y"})]),
    "unknown block": ([{"type": "widget", "n": 1}, text("a")], [file({"type": "widget", "n": 1}), text("a")]),
    "type that is no name": ([{"type": "a" * 99}], [file({"type": "a" * 99})]),
    "resource without an address": ([resource(text="a")], [resource(uri="", text="a")]),
    "resource of a number": ([resource(uri=5, text="a", mimeType=7)], [resource(uri="5", text="a")]),
    "empty resource": ([resource(uri="x:y")], [file(resource(uri="x:y"))]),
    "link without a name": (
        [{"type": "resource_link", "uri": "x:y", "size": "big", "title": "T"}],
        [{"type": "resource_link", "uri": "x:y", "name": "x:y", "title": "T"}],
    ),
    "null": (None, []),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("content", "expected"), CONTENT.values(), ids=CONTENT.keys())
def test_malformed_content_is_kept(content: Any, expected: list[dict[str, Any]], version: str):
    result = accepted({"content": content}, version)
    assert blocks(result) == expected
    assert not result.is_error


WELL_FORMED = [
    text("a") | {"annotations": {"priority": 0.5}, "_meta": {"a": 1}},
    image(PNG, "image/png"),
    resource(uri="x:y", blob="AAAA", _meta={"a": 1}),
    {"type": "resource_link", "uri": "x:y", "name": "n", "size": 5, "description": "d"},
]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_well_formed_result_is_not_changed(version: str):
    result = {"content": WELL_FORMED, "structuredContent": {"a": 1}, "isError": True, "_meta": {"b": 2}}
    assert repaired_result(result, version) == result | {"resultType": "complete"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "structured", [[1, 2], [], "x", 0, False, {}, {"mean": math.inf}, {"_meta": 1}, [{"a": None}]], ids=repr
)
def test_structured_content_of_any_kind_is_kept(structured: Any, version: str):
    for meta in ({}, {"_meta": {"a": 1}}, {"_meta": "x"}):
        result = accepted({"content": [], "structuredContent": structured, **meta}, version)
        assert result.structured_content == structured
        assert result.meta == ({"a": 1} if meta == {"_meta": {"a": 1}} else None)


@pytest.mark.parametrize("version", VERSIONS)
def test_data_that_are_the_result_itself_are_its_text(version: str):
    assert blocks(accepted({"toolResult": [1], "ok": True}, version)) == [text('{"toolResult": [1], "ok": true}')]
    assert blocks(accepted({"structuredContent": {"a": 1}, "ok": True}, version)) == []
    assert blocks(accepted({}, version)) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        (None, False),
        (False, False),
        (True, True),
        ("false", False),
        ("False", False),
        ("true", True),
        (1, True),
        (0, False),
    ],
    ids=repr,
)
def test_a_failure_is_a_failure_in_other_words(flag: Any, expected: bool, version: str):
    assert accepted({"content": [], "isError": flag}, version).is_error is expected


@pytest.mark.parametrize("kind", [None, 5, "unknown"], ids=repr)
def test_an_unknown_kind_of_result_is_a_result(kind: Any):
    assert blocks(accepted({"content": [text("a")], "resultType": kind}, "2026-07-28")) == [text("a")]


def test_a_request_for_input_is_left_alone():
    request: dict[str, Any] = {"resultType": "input_required", "inputRequests": {}}
    assert repaired_result(request, "2026-07-28") is request
