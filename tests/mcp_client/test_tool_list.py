"""What is usable of a server's tools, whatever else it lists."""

from typing import Any

import pytest
from mcp_types import ListToolsResult
from mcp_types.methods import validate_server_result

from ipybox.mcp_client.answers import ToolList, hidden_page
from ipybox.workspace.registrations import UNDECLARED, ToolSpec

VERSIONS = ["2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28"]
OBJECT = {"type": "object"}
GOOD: dict[str, Any] = {"name": "good", "description": "Does it.", "inputSchema": {"type": "object", "properties": {}}}


def tool(**parts: Any) -> dict[str, Any]:
    return {"name": "x", "inputSchema": OBJECT, **parts}


def schema(**parts: Any) -> dict[str, Any]:
    return tool(inputSchema={"type": "object", **parts})


USABLE: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "no type": (tool(inputSchema={}), OBJECT, []),
    "null": (tool(inputSchema=None), OBJECT, ["inputSchema"]),
    "missing": ({"name": "x"}, OBJECT, ["inputSchema"]),
    "list": (tool(inputSchema=[]), OBJECT, ["inputSchema"]),
    "text": (tool(inputSchema="object"), OBJECT, ["inputSchema"]),
    "another type": (tool(inputSchema={"type": "string", "minLength": 3}), OBJECT, ["inputSchema"]),
    "no word for a type": (tool(inputSchema={"type": 5}), OBJECT, ["inputSchema"]),
    "several types": (tool(inputSchema={"type": ["object", "null"]}), OBJECT, []),
    "alternatives alone": (tool(inputSchema={"anyOf": [OBJECT]}), {"type": "object", "anyOf": [OBJECT]}, []),
    "required among the properties": (
        schema(properties={"c": {"type": "string"}, "required": ["c"]}),
        {"type": "object", "properties": {"c": {"type": "string"}}},
        ["inputSchema.properties.'required'"],
    ),
    "property that is a word": (
        schema(properties={"c": "string", "d": None, "e": True}),
        {"type": "object", "properties": {"c": True, "d": True, "e": True}},
        ["inputSchema.properties.'c'", "inputSchema.properties.'d'"],
    ),
    "list of properties": (schema(properties=["a"]), OBJECT, ["inputSchema.properties"]),
    "required of draft 3": (schema(required=True), OBJECT, ["inputSchema.required"]),
    "required by number": (schema(required=["a", 1]), OBJECT, ["inputSchema.required"]),
    "dialect": (schema(**{"$schema": 7}), OBJECT, []),
    "size of an icon": (tool(icons=[{"src": "data:,", "sizes": "48x48"}]), OBJECT, []),
    "hint": (tool(annotations={"readOnlyHint": "maybe"}), OBJECT, []),
    "description": (tool(description=["a", "b"]), OBJECT, ["description"]),
    "title": (tool(title={"en": "X"}), OBJECT, []),
    "all at once": (
        {"name": "x", "inputSchema": {"required": True}, "icons": 1, "title": 1, "_meta": 1, "annotations": 1},
        OBJECT,
        ["inputSchema.required"],
    ),
}


def page(*tools: Any, **parts: Any) -> dict[str, Any]:
    return {"tools": [*tools], "resultType": "complete", "cacheScope": "private", "ttlMs": 0, **parts}


def accepted(answer: dict[str, Any], version: str) -> tuple[dict[str, ToolSpec], list[str]]:
    """Returns what a client gets, and the remarks; fails if the SDK would refuse the page."""
    hidden = hidden_page(answer, version)
    validate_server_result("tools/list", version, hidden)
    tools = ToolList()
    tools.add(ListToolsResult.model_validate(hidden, by_name=False))
    return {each.name: each for each in tools}, tools.remarks


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("malformed", "expected", "losses"), USABLE.values(), ids=USABLE.keys())
def test_a_malformed_tool_is_usable_and_hides_no_other(
    malformed: dict[str, Any], expected: dict[str, Any], losses: list[str], version: str
):
    tools, remarks = accepted(page(malformed, GOOD), version)
    assert tools.keys() == {"x", "good"}
    assert tools["good"] == ToolSpec("good", "Does it.", GOOD["inputSchema"], None, UNDECLARED)
    assert {name: value for name, value in tools["x"].input_schema.items() if value} == expected
    assert remarks == ([f"tool 'x': ignored malformed {', '.join(losses)}"] if losses else [])


@pytest.mark.parametrize("output", [None, {}, [], "x", {"type": "array"}, {"type": "string"}, True], ids=repr)
@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_an_output_schema_that_is_not_one_of_objects_is_none(output: Any, version: str):
    tools, remarks = accepted(page(tool(outputSchema=output), GOOD), version)
    assert tools["x"].output_schema is None
    assert bool(remarks) == (output not in (None, {}))


def test_what_is_well_formed_in_a_malformed_tool_is_kept():
    output = {"properties": {"a": {"type": "integer"}}}
    malformed = tool(title=5, description=[], execution={"taskSupport": "required"}, outputSchema=output)
    tools, remarks = accepted(page(malformed, tool(name="y", execution={"taskSupport": "maybe"})), "2025-11-25")
    mark = "Can't be called: it runs only as an MCP task, and ipybox doesn't support tasks."
    assert tools["x"] == ToolSpec("x", f"{mark}\n\n", OBJECT, {"type": "object", **output}, UNDECLARED)
    assert tools["y"].description is None
    assert remarks == [f"tool 'x': ignored malformed description; {mark}"]


def test_the_sdk_gets_the_schemas_from_which_it_takes_headers():
    header = schema(properties={"a": {"type": "string", "x-mcp-header": "A"}})
    (shown,) = hidden_page(page(GOOD, header), "2026-07-28")["tools"]
    assert shown == header


UNUSABLE: list[Any] = [
    None,
    5,
    "x",
    [],
    {},
    {"name": None, "inputSchema": OBJECT},
    {"name": 7},
    {"inputSchema": OBJECT},
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("malformed", UNUSABLE, ids=repr)
def test_a_tool_without_a_name_is_omitted(malformed: Any, version: str):
    tools, remarks = accepted(page(GOOD, malformed, {**GOOD, "name": "other"}), version)
    assert tools.keys() == {"good", "other"}
    assert remarks == ["tool number 2 is omitted: it has no name"]


def test_a_tool_that_the_protocol_forbids_is_omitted_with_the_reason():
    header = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "bad header"}}}
    tools, remarks = accepted(page({"name": "x", "inputSchema": header}, GOOD), "2026-07-28")
    assert tools.keys() == {"good"}
    (remark,) = remarks
    assert remark.startswith("tool 'x' is omitted: ")
    assert "header" in remark


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("tools", [{"tools": None}, {}, {"tools": []}], ids=repr)
def test_a_list_that_is_null_is_empty(tools: dict[str, Any], version: str):
    assert accepted(tools, version) == ({}, [])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cursor", [5, 0, False, {}, ["a"]], ids=repr)
def test_a_malformed_cursor_leaves_the_tools_before_it(cursor: Any, version: str):
    tools, remarks = accepted(page(GOOD, nextCursor=cursor), version)
    assert tools.keys() == {"good"}
    assert remarks == ["the tool list is incomplete: the server's cursor for the next page is not a string"]


@pytest.mark.parametrize("cursor", [None, "", "next"])
def test_a_cursor_is_passed_on(cursor: str | None):
    assert hidden_page(page(GOOD, nextCursor=cursor), "2025-11-25").get("nextCursor") == (cursor or None)


def test_what_a_version_requires_of_a_page_is_not_needed():
    assert accepted({"tools": [GOOD], "ttlMs": "soon", "cacheScope": 1}, "2026-07-28")[0].keys() == {"good"}


def test_the_first_of_several_tools_with_a_name_counts():
    tools, remarks = accepted(page(GOOD, GOOD, {**GOOD, "description": "Other."}, tool()), "2025-11-25")
    assert [*tools] == ["good", "x"]
    assert tools["good"].description == "Does it."
    assert remarks == ["tool 'good' is listed twice: the second definition is ignored"]


@pytest.mark.parametrize(
    ("annotations", "hints"),
    [
        pytest.param(None, ("destructive", "open_world"), id="none"),
        pytest.param({}, ("destructive", "open_world"), id="empty"),
        pytest.param({"readOnlyHint": True, "openWorldHint": False}, ("read_only",), id="reads"),
        pytest.param({"readOnlyHint": True}, ("read_only", "open_world"), id="reads-the-internet"),
        pytest.param({"readOnlyHint": True, "destructiveHint": True}, ("read_only", "open_world"), id="contradiction"),
        pytest.param({"destructiveHint": False, "idempotentHint": True}, ("idempotent", "open_world"), id="adds"),
        pytest.param({"readOnlyHint": "true", "openWorldHint": 0}, ("destructive", "open_world"), id="not-booleans"),
        pytest.param(["readOnlyHint"], ("destructive", "open_world"), id="not-an-object"),
    ],
)
def test_hints_are_the_declared_ones_and_mcps_defaults(annotations: Any, hints: tuple[str, ...]):
    tools, _ = accepted(page(tool(annotations=annotations)), "2025-11-25")
    assert tools["x"].hints == hints
