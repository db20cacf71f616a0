"""`ipybox import`: servers of other clients are registered with real connections, and their secrets stay secret."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ipybox import CodeExecutor
from ipybox.workspace.seal import ImportedSecrets
from tests.cli.test_parsing import on_terminal
from tests.conftest import Mode, both_modes
from tests.servers import WAIT, scripted

SECRET = "n0body-should-see-this"
CELL = "import json; from mcptools.acme import env; print(json.loads(env.run(env.Params()))['ACME_KEY'][::-1])"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, whose Cursor has two servers."""
    home = tmp_path / "home"
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    acme = {**scripted(), "env": {"ACME_KEY": SECRET}}
    write(home / ".cursor/mcp.json", {"acme": acme, "broken": {"command": "/no/such/program", "env": {"K": SECRET}}})
    return home


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with a server of its own, which writes a file when it starts."""
    workspace = tmp_path / "workspace"
    code = f"open({str(tmp_path / 'started')!r}, 'w')"
    write(workspace / ".mcp.json", {"theirs": {"command": sys.executable, "args": ["-S", "-c", code, "\nfake line"]}})
    return workspace


def write(path: Path, servers: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}))


def imported(workspace: Path, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "ipybox", "import", "--workspace", str(workspace), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=4 * WAIT, check=False, stdin=subprocess.DEVNULL
    )
    assert SECRET not in done.stdout + done.stderr
    return done.returncode, done.stdout, done.stderr


def containing(secret: str, *directories: Path) -> list[Path]:
    files = [path for directory in directories for path in directory.rglob("*") if path.is_file()]
    return [path for path in files if secret.encode() in path.read_bytes()]


def test_listing_starts_nothing_and_shows_no_secret(workspace: Path, tmp_path: Path, home: Path):
    write(home / ".qwen/settings.json", {"bad": {"command": []}})
    for arguments in ((), ("--json",), ("--dry-run", "--all"), ("acme", "--dry-run"), ("acme", "--dry-run", "--json")):
        status, shown, _ = imported(workspace, *arguments)
        assert status == 0
        assert "${ACME_KEY}" in shown
        assert ("unsupported" in shown) == ("--dry-run" not in arguments)

    assert {path.name for path in workspace.iterdir()} == {".mcp.json"}
    assert not (tmp_path / "started").exists()


@both_modes
@pytest.mark.asyncio
async def test_imported_servers_work_and_their_secrets_are_nowhere_else(workspace: Path, home: Path, mode: Mode):
    status, shown, _ = imported(workspace, "acme")
    assert status == 0
    assert " tools in mcptools/acme" in shown
    assert "tokens (characters / 4)" in shown
    assert f"delete mcpServers.acme in {home}/.cursor/mcp.json" in shown

    async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox, audit="full") as executor:
        assert (await executor.execute(CELL)).text == SECRET[::-1]
        echoed = "from mcptools.acme import echo; echo.run(echo.Params(text={!r}[::-1]))"
        await executor.execute(echoed.format(SECRET[::-1]))

    [stored] = ImportedSecrets(workspace).directory.iterdir()
    assert containing(SECRET, workspace, home) == [home / ".cursor/mcp.json", stored]
    assert "${acme.ACME_KEY}" in (workspace / ".ipybox/audit.jsonl").read_text()


def test_files_without_servers_and_files_that_are_wrong_are_told(workspace: Path, home: Path):
    (home / ".cursor/mcp.json").write_text("{")
    (workspace / ".mcp.json").write_text("{}")

    status, shown, told = imported(workspace)

    assert (status, shown) == (0, "no MCP servers found in other clients' configurations\n")
    assert f"{home}/.cursor/mcp.json" in told


def test_json_contains_results_and_errors_of_all_chosen_servers(workspace: Path):
    write(workspace.parent / "home/.qwen/settings.json", {"other": {"command": "a"}})
    write(workspace.parent / "home/.gemini/settings.json", {"other": {"command": "b"}, "ipybox": {"command": "ipybox"}})
    status, shown, told = imported(workspace, "--all", "--json")

    assert "'other' is ambiguous, use `ipybox import --from CLIENT`" in told
    results = {each["name"]: each for each in json.loads(shown)}
    assert status == 1
    assert results["acme"]["package"] == "mcptools/acme"
    assert results["acme"]["tools"] == len([*(workspace / "mcptools/acme").glob("[a-z]*.py")])
    assert results["acme"]["tokens"] > 100
    assert "command not found" in results["broken"]["error"]
    assert "a person must confirm it" in results["theirs"]["error"]
    assert "broken" in told


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nope"], "no MCP client is configured with a server named 'nope'; configured servers: acme, broken, theirs"),
        (
            ["acme", "--from", "zed"],
            "a server named 'acme'; configured servers: none",
        ),
        (["--from", "nobody"], "--from"),
    ],
)
def test_mistakes_are_explained(arguments: Sequence[str], problem: str, workspace: Path):
    status, _, told = imported(workspace, *arguments)

    assert status != 0
    assert problem in told


def test_servers_of_the_workspace_start_only_if_a_person_agrees(workspace: Path, tmp_path: Path, home: Path):
    status, shown, _ = imported(workspace, "theirs")
    assert status == 1
    assert "theirs was not imported: run this in a terminal to be asked" in shown
    assert "--yes" not in shown
    assert "\nfake line" not in shown
    assert not (tmp_path / "started").exists()

    environment = {"HOME": str(home)}
    arguments = ("import", "--workspace", str(workspace), "theirs")
    assert "was not imported" in on_terminal(*arguments, environment=environment, typed=b"n\n")
    assert not (tmp_path / "started").exists()
    shown = on_terminal(*arguments, environment=environment, typed=b"y\n")
    assert "Start and register this server?" in shown
    assert (tmp_path / "started").exists()  # though it is no MCP server


def test_a_person_sees_all_that_a_repository_has_a_server_start_with(tmp_path: Path, home: Path):
    key = "sk-0123456789abcdef"
    server = {"command": "${NODE}", "args": ["-e", "x=evil()"], "env": {"NODE_OPTIONS": "--import evil", "KEY": key}}
    name = 'docs: {"command": "docs"}'
    write(tmp_path / "repository" / ".mcp.json", {name: server})
    (tmp_path / "repository" / ".env").write_text("NODE=other\n")
    shown = on_terminal(
        *("import", "--workspace", str(tmp_path / "repository"), name),
        environment={"HOME": str(home)},
        typed=b"n\n",
        columns=400,
    )
    assert (
        '"command": "other", "args": ["-e", "x=evil()"], "env": {"NODE_OPTIONS": "--import evil", "KEY": "${KEY}"}'
        in shown
    )
    assert key not in shown
    assert r'"docs:\u0020{\"command\":\u0020\"docs\"}": {"command": "other"' in shown


def test_a_person_chooses_among_the_listed_servers(workspace: Path, home: Path):
    shown = on_terminal(
        *("import", "--workspace", str(workspace), "--from", "cursor"),
        environment={"HOME": str(home)},
        typed=b"acme\n",
        columns=200,
    )

    assert " tools in mcptools/acme" in shown
    assert SECRET not in shown
    assert os.listdir(workspace / "mcptools/acme")


def test_what_was_imported_is_followed_by_how_its_reading_tools_run_without_asking(
    workspace: Path, home: Path, tmp_path: Path
):
    hints = {"readOnlyHint": True, "openWorldHint": False}
    tool = {"name": "echo", "inputSchema": {"type": "object"}, "annotations": hints}
    (tmp_path / "tools.json").write_text(json.dumps([tool]))
    servers = {"acme": scripted("--tools", str(tmp_path / "tools.json")), "ipybox": {"command": "ipybox"}}
    write(home / ".cursor/mcp.json", servers)
    assert "ipybox" not in imported(workspace)[1]

    _, shown, _ = imported(workspace, "acme")

    assert "acme: 1 tool in mcptools/acme\n" in shown
    assert "  only read: 1; after `ipybox trust acme`, `--approve writes` doesn't ask about them\n" in shown
