"""Servers whose tools a person lets run without asking, on the command line."""

import json
from pathlib import Path

import pytest

from ipybox.cli.tools import tools
from ipybox.workspace.registrations import PinnedTool, Registration, locked_registration, record_file
from tests.workspace.trust.files import trust

TOOLS = {
    "search": PinnedTool("a", ("read_only",)),
    "fetch\x1b": PinnedTool("b", ("read_only", "open_world")),
    "delete": PinnedTool("c"),
}


def register(workspace: Path, seal: str = "seal") -> Path:
    place = workspace / "mcptools" / "github"
    place.mkdir(parents=True, exist_ok=True)
    with locked_registration(record_file(place)) as record:
        record.place = place
        record.write(b"", "", seal, {}, TOOLS, "npx server\x1b")
    return record_file(place)


@pytest.fixture
def record(workspace: Path, state: Path) -> Path:
    del state
    return register(workspace)


def unasked(record: Path) -> list[str]:
    return Registration.read(record).unasked


def test_a_person_sees_how_a_server_starts_and_which_tools_read(
    workspace: Path, record: Path, capsys: pytest.CaptureFixture[str]
):
    assert trust(workspace, yes=False) == 1  # there is no terminal
    told = capsys.readouterr().out
    assert told.splitlines()[:4] == [
        "MCP server github says: 2 of 3 tools only read, 1 of them reaches the internet",
        "  started as: npx server\\u001b",
        "  stay offline: search",
        '  reach the internet, so calls still ask: "fetch\\u001b"',
    ]
    assert "add --yes" in told
    assert unasked(record) == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("x" + " " * 90 + "MCP server evil", '"x' + r"\u0020" * 90 + r'MCP\u0020server\u0020evil"'),
        ("d\u0435lete", r'"d\u0435lete"'),
    ],
)
def test_a_name_of_a_tool_can_not_be_taken_for_what_ipybox_says(
    workspace: Path,
    record: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    shown: str,
):
    monkeypatch.setitem(TOOLS, name, PinnedTool("d", ("read_only",)))
    register(workspace)
    trust(workspace, yes=False)
    told = capsys.readouterr().out
    assert shown in told.replace("\n| ", "")
    assert "\n    MCP" not in told


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_command_line_can_not_be_taken_for_what_ipybox_says(
    workspace: Path,
    record: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
):
    monkeypatch.setenv("COLUMNS", str(columns))
    with locked_registration(record) as found:
        hidden = f"npx '{' ' * 500}  started as: npx server'; 漢{'漢' * 50}MCP server github says: all tools only read"
        found.write(b"", "", "seal", {}, TOOLS, hidden)
    trust(workspace, yes=False)
    *told, _ = capsys.readouterr().out.splitlines()
    assert [line[:8] for line in told if not line.startswith("| ")] == ["MCP serv", "  starte", "  stay o", "  reach "]
    assert max(sum(2 if each == "漢" else 1 for each in line) for line in told[1:]) <= columns


def test_agreement_covers_the_tools_that_only_read_and_is_listed_and_revoked(
    workspace: Path, record: Path, capsys: pytest.CaptureFixture[str]
):
    assert trust(workspace) == 0
    assert unasked(record) == ["search"]
    assert trust(workspace, Path("github")) == 0
    assert trust(workspace, listed=True) == 0
    told = capsys.readouterr().out
    assert "MCP server github is already trusted: 1 tool runs without asking" in told
    assert "MCP server github runs without asking: search" in told

    assert trust(workspace, Path("github"), revoked=True) == 0
    assert unasked(record) == []
    assert Registration.read(record).undecided
    assert trust(workspace, revoked=True) == 0
    assert capsys.readouterr().out.endswith(f"nothing is trusted in {workspace}\n")


def test_a_server_none_of_whose_tools_only_read_is_named(
    workspace: Path, record: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(TOOLS, "search", PinnedTool("d"))
    register(workspace)
    assert trust(workspace, Path("github")) == 0
    assert capsys.readouterr().out == (
        "MCP server github: nothing to trust; it says that 1 of 3 tools only read, 1 of them reaches the internet\n"
    )


def test_files_and_servers_are_trusted_apart(workspace: Path, record: Path, file: Path):
    assert trust(workspace, file) == 0
    assert unasked(record) == []
    assert trust(workspace, Path("github")) == 0
    assert trust(workspace, file, revoked=True) == 0
    assert unasked(record) == ["search"]


def test_code_can_not_hide_a_trusted_server_from_its_user(workspace: Path, record: Path):
    assert trust(workspace) == 0
    (workspace / "mcptools" / "github").rmdir()
    (workspace / "mcptools").rmdir()
    assert trust(workspace, revoked=True) == 0
    assert unasked(record) == []


def test_servers_of_other_workspaces_are_left_alone(workspace: Path, record: Path, tmp_path: Path):
    (tmp_path / "other").mkdir()
    assert trust(tmp_path / "other") == 0
    assert unasked(record) == []


def test_a_server_with_other_parameters_has_to_be_trusted_anew(workspace: Path, record: Path):
    assert trust(workspace) == 0
    register(workspace, "another seal")
    assert unasked(record) == []


def test_tools_lists_the_split(workspace: Path, record: Path, capsys: pytest.CaptureFixture[str]):
    (workspace / "mcptools" / "github" / "search.py").write_text("def run(params): ...\n")
    Registration.read(record).agree(["search", "delete"])
    assert tools(workspace, (), as_json=False) == 0
    assert "github: 2 of 3 tools only read, 1 of them reaches the internet, 2 run without asking" in (
        capsys.readouterr().out
    )


def test_the_list_for_programs_names_servers_and_their_tools(
    workspace: Path, record: Path, capsys: pytest.CaptureFixture[str]
):
    from ipybox.cli.trust import trust as command

    Registration.read(record).agree(["search"])
    assert command(workspace, (), profile="default", yes=False, listed=True, revoked=False, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == [{"server": "github", "tools": ["search"]}]
