"""What a registration's record keeps about tools, and when a person's decision on them lapses."""

from pathlib import Path
from typing import Any

import pytest

from ipybox.guest.tools.protocol import RunRequest
from ipybox.workspace.registrations import PinnedTool, Registration, ToolSpec, locked_registration, record_file
from ipybox.workspace.seal import SealVerifier, seal

PARAMS = {"command": "server"}
READ, FETCH, WRITE = PinnedTool("r", ("read_only",)), PinnedTool("f", ("read_only", "open_world")), PinnedTool("w")
TOOLS = {"read": READ, "fetch": FETCH, "write": WRITE}


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


def register(workspace: Path, tools: dict[str, PinnedTool], params: dict[str, Any] = PARAMS) -> Registration:
    """Records a registration of a server; returns its record as a reader without the lock sees it."""
    place = workspace / "mcptools" / "server"
    with locked_registration(record_file(place)) as record:
        record.write(b"", "origin", seal("server", params, place.parent), {}, tools, "launch")
    return Registration.read(record_file(place))


def call(workspace: Path, tool: str, params: dict[str, Any] = PARAMS, **changes: Any) -> RunRequest:
    sealed = seal("server", params, workspace / "mcptools")
    request = RunRequest(server_name="server", server_params=params, seal=sealed, tool_name=tool, tool_args={})
    request.update(changes)  # pyright: ignore[reportCallIssue, reportArgumentType]
    return request


def decisions(record: Registration) -> list[bool | None]:
    return [tool.unasked for tool in record.tools.values()]


#: Schemas, and the names of their parameters if these are all.
SCHEMAS: list[tuple[Any, list[str] | None]] = [
    ({"properties": {"a": {}, "b": {}}, "required": ["a"]}, ["a", "b"]),
    ({"properties": {}, "additionalProperties": False}, []),
    ({"type": "object"}, None),
    ({"properties": {"a": {}}, "additionalProperties": True}, None),
    ({"properties": {"a": {}}, "additionalProperties": {}}, None),
    ({"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}]}, None),
    ({"properties": ["a"]}, None),
    (True, None),
]


@pytest.mark.parametrize(("schema", "parameters"), SCHEMAS)
def test_parameters_are_known_if_the_schema_names_all(schema: Any, parameters: list[str] | None):
    assert ToolSpec("tool", None, schema).parameters == parameters


def test_a_record_says_what_only_reads_and_what_reaches_the_internet(workspace: Path):
    record = register(workspace, TOOLS)
    assert (record.reading, record.offline) == (["read", "fetch"], ["read"])
    assert record.split == "2 of 3 tools only read, 1 of them reaches the internet"
    assert (record.launch, record.undecided, decisions(record)) == ("launch", True, [None] * 3)
    assert register(workspace, {"write": WRITE}).split == "0 of 1 tools only read"


def test_a_decision_lasts_until_its_tool_changes(workspace: Path):
    register(workspace, TOOLS).agree(["read", "write"])
    assert decisions(register(workspace, TOOLS)) == [True, False, True]
    assert decisions(register(workspace, {**TOOLS, "read": READ._replace(digest="other")})) == [None, False, True]
    assert decisions(register(workspace, TOOLS)) == [None, False, True], "the change is not undone by the next one"


def test_a_decision_ends_with_other_parameters(workspace: Path):
    register(workspace, TOOLS).agree(["read"])
    assert decisions(register(workspace, TOOLS, {"command": "other"})) == [None] * 3
    assert decisions(register(workspace, TOOLS)) == [None] * 3


def test_a_decision_covers_only_what_was_shown(workspace: Path):
    shown = register(workspace, TOOLS)
    register(workspace, {"read": READ._replace(digest="other"), "fetch": FETCH, "new": WRITE})
    assert decisions(shown.agree(["read", "fetch", "new"])) == [None, True, None]
    register(workspace, TOOLS, {"command": "other"})
    assert decisions(shown.agree(["read"])) == [None] * 3


def test_a_tool_without_a_digest_can_not_be_agreed_to(workspace: Path):
    assert decisions(register(workspace, {"deep": READ._replace(digest="")}).agree(["deep"])) == [None]


def test_a_decision_can_be_revoked(workspace: Path):
    agreed = register(workspace, TOOLS).agree(["read"])
    assert decisions(agreed.agree(None)) == [None] * 3


def test_a_partly_written_record_has_no_tools_and_no_origin(workspace: Path):
    register(workspace, TOOLS)
    file = record_file(workspace / "mcptools" / "server")
    file.write_bytes(file.read_bytes()[:-10])
    record = Registration.read(file)
    assert (record.tools, record.origin, record.seal != "") == ({}, "", True)


def test_a_call_finds_its_tool_as_it_was_registered_last(workspace: Path):
    registrations = SealVerifier(workspace)
    assert registrations.pinned(call(workspace, "read")) is None
    record = register(workspace, TOOLS)
    assert registrations.pinned(call(workspace, "read")) == (*READ[:1], ["read_only"], None, None)
    record.agree(["read"])
    assert (registrations.pinned(call(workspace, "read")) or WRITE).unasked
    register(workspace, {"write": WRITE})
    assert registrations.pinned(call(workspace, "read")) is None


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"seal": None}, id="no-seal"),
        pytest.param({"seal": "mcptools:" + "0" * 64}, id="invented-seal"),
        pytest.param({"server_params": {"command": "evil"}}, id="other-parameters"),
        pytest.param({"server_name": "trusted"}, id="other-name"),
        pytest.param({"tool_name": "Read"}, id="other-tool"),
    ],
)
def test_only_the_registered_server_has_pinned_tools(workspace: Path, changes: dict[str, Any]):
    register(workspace, TOOLS).agree(["read"])
    registrations = SealVerifier(workspace)
    assert registrations.pinned(call(workspace, "read")) is not None
    assert registrations.pinned(call(workspace, "read", **changes)) is None


def test_the_seal_of_an_earlier_registration_has_no_pinned_tools(workspace: Path):
    register(workspace, TOOLS).agree(["read"])
    registrations, earlier = SealVerifier(workspace), call(workspace, "read")
    assert registrations.pinned(earlier) is not None
    register(workspace, TOOLS, {"command": "other"})
    assert registrations.pinned(earlier) is None
