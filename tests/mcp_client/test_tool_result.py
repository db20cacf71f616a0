"""What a tool returned is there, whatever form its server gives it."""

import base64
import math
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult
from mcp_types.methods import parse_server_result, serialize_server_result, validate_server_result

from ipybox.mcp_client.answers import MAX_BLOCKS, ToolResult, hidden_result, tool_result

VERSIONS = ["2024-11-05", "2025-11-25", "2026-07-28"]
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n1234").decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe01234").decode()


def accepted(result: dict[str, Any], version: str) -> ToolResult:
    """Returns what a client gets; fails if the SDK would refuse what it gets instead."""
    hidden = hidden_result(result)
    validate_server_result("tools/call", version, hidden)
    return tool_result(CallToolResult.model_validate(hidden, by_name=False))


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def image(data: str, mime_type: str) -> dict[str, Any]:
    return {"type": "image", "data": data, "mimeType": mime_type}


def resource(**parts: Any) -> dict[str, Any]:
    return {"type": "resource", "resource": parts}


def unchanged(*content: Any) -> tuple[Any, list[dict[str, Any]]]:
    return [*content], [*content]


CONTENT: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "text": ("done", [text("done")]),
    "block": (text("done"), [text("done")]),
    "number": (5, [text("5")]),
    "list of text": (["a", text("b"), 5], [text("a"), text("b"), text("5")]),
    "no type": ([{"text": "a"}], [text('{"text": "a"}')]),
    "text that is none": ([{"type": "text", "text": {"a": "ä"}}], [text('{"a": "ä"}')]),
    "text of another type": ([{"type": "markdown", "text": "# a"}], [text("# a")]),
    "text that is missing": ([{"type": "text"}], [text('{"type": "text"}')]),
    "odd annotation": unchanged(text("a") | {"annotations": {"priority": 7}, "_meta": 5}),
    "image without a type": ([{"type": "image", "data": PNG}], [image(PNG, "image/png")]),
    "photo without a type": ([{"type": "image", "data": JPEG, "mimeType": None}], [image(JPEG, "image/jpeg")]),
    "anything without a type": ([{"type": "image", "data": "AAAA"}], [image("AAAA", "")]),
    "sound like an image": unchanged({"type": "audio", "data": "UklGRAAA"}),
    "image without data": unchanged({"type": "image", "url": "x:y"}),
    "unknown block": unchanged({"type": "widget", "n": 1}, text("a")),
    "resource of a number": unchanged(resource(uri=5, text="a", mimeType=7)),
    "empty resource": unchanged(resource(uri="x:y")),
    "link without a name": unchanged({"type": "resource_link", "uri": "x:y", "size": "big", "title": "T"}),
    "null": (None, []),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("content", "expected"), CONTENT.values(), ids=CONTENT.keys())
def test_malformed_content_is_kept(content: Any, expected: list[dict[str, Any]], version: str):
    result = accepted({"content": content}, version)
    assert result.content == expected
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
    assert accepted(result, version) == ToolResult(WELL_FORMED, {"a": 1}, True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "structured", [[1, 2], [], "x", 0, False, {}, {"mean": math.inf}, {"_meta": 1}, [{"a": None}]], ids=repr
)
def test_structured_content_of_any_kind_is_kept(structured: Any, version: str):
    for meta in ({}, {"_meta": {"a": 1}}, {"_meta": "x"}):
        assert accepted({"structuredContent": structured, **meta}, version).structured_content == structured


@pytest.mark.parametrize("version", VERSIONS)
def test_data_that_are_the_result_itself_are_its_text(version: str):
    assert accepted({"toolResult": [1], "ok": True}, version).content == [text('{"toolResult": [1], "ok": true}')]
    assert accepted({"structuredContent": {"a": 1}, "ok": True}, version).content == []
    assert accepted({}, version).content == []


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
    assert accepted({"content": [text("a")], "resultType": kind}, "2026-07-28").content == [text("a")]


@pytest.mark.parametrize("questions", [{str(number): {"method": "roots/list"} for number in range(100_000)}, [[]]])
def test_a_request_for_input_that_nobody_can_give_is_an_error_before_the_sdk_reads_it(questions: Any):
    with pytest.raises(MCPError, match="the tool asks for input from the user or a model"):
        hidden_result({"resultType": "input_required", "inputRequests": questions})


def test_a_request_to_call_again_is_left_alone():
    request: dict[str, Any] = {"resultType": "input_required", "requestState": "a"}
    assert hidden_result({**request, "inputRequests": {}}) == request


def test_more_blocks_than_a_result_may_have_become_one():
    result = accepted({"content": [*range(MAX_BLOCKS), 7, text("8")]}, VERSIONS[-1])

    assert len(result.content) == MAX_BLOCKS + 1
    assert result.content[-1] == text('[7, {"type": "text", "text": "8"}]')


def test_the_sdk_copies_nothing_of_a_result():
    result: dict[str, Any] = {"content": [], "structuredContent": {"a": [1]}}
    hidden = hidden_result(result)
    assert serialize_server_result("tools/call", "2025-06-18", hidden)["_meta"] == {"ipybox/result": ""}
    parsed = parse_server_result("tools/call", "2025-06-18", hidden)
    assert isinstance(parsed, CallToolResult)
    assert tool_result(parsed).structured_content is result["structuredContent"]
