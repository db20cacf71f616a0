"""`ipybox install`: what it runs and prints for each client. `tests/clients` runs it with the real ones."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ipybox.cli.install import CLIENTS
from tests.cli.test_parsing import run

PROGRAM = str(Path(sys.executable).with_name("ipybox"))


def installed(workspace: Path, home: Path, *arguments: str, path: str = "") -> tuple[int, str, str]:
    done = run("install", *arguments, cwd=workspace, HOME=str(home), PATH=path, XDG_CONFIG_HOME="", CODEX_HOME="")
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return workspace


def _json(text: str) -> dict[str, Any]:
    """Returns the JSON with which a text begins."""
    return json.JSONDecoder().raw_decode(text)[0]


def test_without_a_client_it_lists_them(workspace: Path, home: Path):
    _, shown, _ = installed(workspace, home)

    assert [line.split()[0] for line in shown.splitlines()] == list(CLIENTS)


@pytest.mark.parametrize("client", [name for name, each in CLIENTS.items() if each.add and name != "vscode"])
def test_it_needs_the_clients_program(client: str, workspace: Path, home: Path):
    status, shown, failed = installed(workspace, home, client, "--sandbox", "--approve=writes")

    add, place = CLIENTS[client].add, "" if CLIENTS[client].follows_project else f" --workspace {workspace}"
    command = f"{add} {PROGRAM} serve{place} --sandbox --approve writes\n"
    assert (status, re.sub(r" --env=\S*", "", shown)) == (1, command)
    assert failed == f"ipybox: {add.split()[0]} is not on your PATH\n"


@pytest.mark.parametrize(
    ("client", "file", "key"),
    [
        ("cursor", "~/.cursor/mcp.json", "mcpServers"),
        ("zed", "~/.config/zed/settings.json", "context_servers"),
    ],
)
def test_for_a_client_without_a_command_it_says_what_to_add_to_which_file(
    client: str, file: str, key: str, workspace: Path, home: Path
):
    status, shown, failed = installed(workspace, home, client, "--sandbox", "--approve=writes")

    assert (status, failed) == (0, "")
    entry = _json(shown.partition(f"add this to {file}:\n")[2])[key]["ipybox"]
    place = ["--workspace", str(workspace)]
    assert [entry["command"], *entry["args"]] == [PROGRAM, "serve", *place, "--sandbox", "--approve", "writes"]
    assert list(home.iterdir()) == list(workspace.iterdir()) == []


def test_a_given_workspace_and_rules_are_absolute_and_a_dry_run_starts_nothing(workspace: Path, home: Path):
    (workspace / "rules.yaml").touch()

    status, shown, failed = installed(
        workspace, home, "gemini", "--workspace=.", "--approve=rules.yaml", "--dry-run", path=os.environ["PATH"]
    )

    command, folder, approvals = shown.splitlines()
    assert (status, failed) == (0, "")
    assert "only in folders that you trust" in folder
    assert command == (
        f"gemini mcp add --scope user ipybox {PROGRAM} serve --workspace {workspace} "
        f"--approve {workspace / 'rules.yaml'}"
    )
    assert approvals.startswith("You answer approval requests with `ipybox approvals --watch`")


def test_a_program_that_code_could_write_is_not_started(workspace: Path, home: Path):
    program = workspace / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ntouch started\n")
    program.chmod(0o755)

    status, _, failed = installed(workspace, home, "claude-code", path=f"{program.parent}:/usr/bin:/bin")

    assert status == 1
    assert failed.startswith(f"ipybox: code in the workspace could replace {program}: install it elsewhere")
    assert not (workspace / "started").exists()


@pytest.mark.parametrize("status", [0, 3])
def test_a_command_that_fails_says_so(status: int, workspace: Path, home: Path, tmp_path: Path):
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho no rights >&2\nexit {status}\n")
    program.chmod(0o755)

    exited, _, failed = installed(workspace, home, "codex", path=f"{program.parent}:/usr/bin:/bin")

    assert exited == (1 if status else 0)
    assert failed.splitlines() == ["no rights", "ipybox: `codex` failed with status 3"][: exited + 1]


def test_vscode_gets_the_server_as_json(workspace: Path, home: Path):
    _, shown, _ = installed(workspace, home, "vscode", "--dry-run")

    start, _, server = shown.partition(" '")
    assert start == "code --add-mcp"
    arguments = ["serve", "--workspace", str(workspace)]
    assert json.loads(server.strip().rstrip("'")) == {"name": "ipybox", "command": PROGRAM, "args": arguments}
