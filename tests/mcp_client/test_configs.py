"""Which servers are found in other clients' configurations, by examples of their documentation with other values."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ipybox.mcp_client.configs import servers as configs
from ipybox.mcp_client.configs.servers import (
    ConfiguredServer,
    configured_servers,
    find_server,
    parse_jsonc,
)
from ipybox.support.bounded_json import MAX_VALUES
from ipybox.workspace.writable import WritablePlaces

SECRET = "q8-hidden-value"
STDIO: dict[str, Any] = {"command": "npx", "args": ["-y", "@acme/server"]}
HTTP: dict[str, Any] = {"url": "https://acme.example/mcp", "type": "http"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SET", "1")
    monkeypatch.setattr("sys.platform", "linux")
    return home


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return workspace


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def found(workspace: Path) -> list[ConfiguredServer]:
    servers, unreadable = configured_servers(workspace, WritablePlaces(workspace))
    assert unreadable == []
    return servers


def entry(workspace: Path, home: Path, **definition: Any) -> ConfiguredServer:
    """Returns the server that Cursor's file defines."""
    write(home / ".cursor/mcp.json", {"mcpServers": {"acme": definition}})
    [server] = found(workspace)
    return server


CODEX = f"""
[mcp_servers.acme]
command = "npx"
args = ["-y", "@acme/server"]
env_vars = ["SET", {{ name = "UNSET", source = "local" }}]
startup_timeout_sec = 20
[mcp_servers.acme.env]
MY_VALUE = "{SECRET}"

[mcp_servers.remote]
url = "https://acme.example/mcp"
bearer_token_env_var = "ACME_TOKEN"
http_headers = {{ "X-Region" = "{SECRET}" }}
env_http_headers = {{ "X-Team" = "ACME_TEAM" }}
tool_timeout_sec = 45
"""
OPENCODE = """{
  "$schema": "https://opencode.ai/config.json",
  "mcp": {
    "acme": {
      "type": "local", // or "remote"
      "command": ["npx", "-y", "@acme/server"], /* an
      array */
      "environment": { "MY_VALUE": "{env:ACME_TOKEN}", "URL": "http://x//y", },
      "enabled": true,
    },
    "remote": {
      "type": "remote", "url": "https://acme.example/mcp", "headers": { "X-Key": "Bearer {env:ACME_TOKEN}" },
    },
  },
}"""
REMOTE_HEADER = {**HTTP, "headers": {"X-Key": "Bearer ${ACME_TOKEN}"}}
CLAUDE = {
    "numStartups": 3,
    "mcpServers": {"acme": {"type": "stdio", **STDIO, "env": {"MY_VALUE": "${ACME_TOKEN}"}, "alwaysLoad": True}},
    "projects": {
        "~": {"mcpServers": {"remote": {**HTTP, "headers": {"X-Key": "Bearer ${ACME_TOKEN}"}}}},
        "/elsewhere": {"mcpServers": {"other": STDIO}},
    },
}
GEMINI = {
    "theme": "x",
    "mcpServers": {
        "acme": {**STDIO, "env": {"MY_VALUE": "$ACME_TOKEN"}, "timeout": 15000, "trust": True},
        "remote": {"httpUrl": "https://acme.example/mcp", "headers": {"X-Key": "Bearer ${ACME_TOKEN}"}},
        "old": {"url": "https://acme.example/mcp"},
    },
}
COPILOT: dict[str, Any] = {
    "mcpServers": {
        "acme": {"type": "local", **STDIO, "env": {"MY_VALUE": "${ACME_TOKEN}"}, "tools": ["*"]},
        "remote": {**HTTP, "headers": {"X-Key": "Bearer ${ACME_TOKEN}"}, "tools": ["*"]},
    }
}
VSCODE = {
    "inputs": [{"type": "promptString", "id": "input", "description": "Acme token", "password": True}],
    "servers": {
        "acme": {"type": "stdio", **STDIO, "env": {"MY_VALUE": "${input:input}"}},
        "remote": {**HTTP, "headers": {"X-Key": "Bearer ${env:ACME_TOKEN}"}},
    },
}
ZED: dict[str, Any] = {
    "context_servers": {
        "acme": {"source": "custom", **STDIO, "env": {}},
        "remote": {"url": "https://acme.example/mcp", "headers": {"X-Key": "Bearer ${ACME_TOKEN}"}},
        "extension": {"source": "extension", "settings": {}},
    }
}
TOKEN = {**STDIO, "env": {"MY_VALUE": "${ACME_TOKEN}"}}
BOTH = {"acme": TOKEN, "remote": REMOTE_HEADER}


@pytest.mark.parametrize(
    ("user_file", "project_file", "client", "content", "params"),
    [
        (".claude.json", "", "claude-code", CLAUDE, BOTH),
        ("", ".mcp.json", "claude-code", {"mcpServers": {"acme": TOKEN}}, {"acme": TOKEN}),
        (".config/Claude/claude_desktop_config.json", "", "claude-desktop", {"mcpServers": {"a": STDIO}}, {"a": STDIO}),
        (".cursor/mcp.json", ".cursor/mcp.json", "cursor", {"mcpServers": {"a": {**HTTP}}}, {"a": HTTP}),
        (".config/Code/User/mcp.json", ".vscode/mcp.json", "vscode", VSCODE, BOTH),
        (".config/Code/User/settings.json", ".vscode/settings.json", "vscode", {"mcp": VSCODE}, BOTH),
        (
            *(".codex/config.toml", ".codex/config.toml", "codex", CODEX),
            {
                "acme": {**STDIO, "env": {"SET": "${SET}", "MY_VALUE": "${MY_VALUE}"}},
                "remote": {
                    **HTTP,
                    "headers": {
                        "X-Region": "${REMOTE_X_REGION}",
                        "X-Team": "${ACME_TEAM}",
                        "Authorization": "Bearer ${ACME_TOKEN}",
                    },
                },
            },
        ),
        *(
            (
                *(f".{client}/settings.json", f".{client}/settings.json", client, GEMINI),
                BOTH | {"old": {"url": "https://acme.example/mcp", "type": "sse"}},
            )
            for client in ("gemini", "qwen")
        ),
        (".copilot/mcp-config.json", "", "copilot", COPILOT, BOTH),
        (
            *(".config/opencode/opencode.jsonc", "opencode.json", "opencode", OPENCODE),
            {"acme": {**STDIO, "env": {"MY_VALUE": "${ACME_TOKEN}", "URL": "${URL}"}}, "remote": REMOTE_HEADER},
        ),
        (
            *(".config/zed/settings.json", ".zed/settings.json", "zed", ZED),
            {"acme": STDIO, "remote": REMOTE_HEADER, "extension": {}},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 50 else "",
)
def test_documented_examples_are_read_in_both_places(
    user_file: str, project_file: str, client: str, content: Any, params: Any, home: Path, workspace: Path
):
    if client == "claude-code" and user_file:
        content = json.loads(json.dumps(content).replace('"~"', json.dumps(str(workspace))))
    for place in [home / user_file] * bool(user_file) + [workspace / project_file] * bool(project_file):
        file = write(place, content)
        servers = found(workspace)
        shown = {server.name: server.params for server in servers}
        if client == "vscode":
            shown["acme"] = json.loads(json.dumps(shown["acme"]).replace("ACME_TOKEN", "INPUT"))
            expected = json.loads(json.dumps(params).replace('"MY_VALUE": "${ACME_TOKEN}"', '"MY_VALUE": "${INPUT}"'))
        else:
            expected = params
        assert shown == expected
        assert {(server.client, server.file) for server in servers} == {(client, file)}
        assert {server.is_untrusted for server in servers} == {place.is_relative_to(workspace)}
        assert SECRET not in repr(servers) + str([server.command_line for server in servers])
        file.unlink()


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        ({**HTTP, "headersHelper": "/bin/x"}, "headersHelper"),
        ({**STDIO, "sandboxEnabled": True}, "sandboxEnabled"),
        ({**HTTP, "auth": {"CLIENT_ID": "a"}}, "auth"),
        ({"args": ["x"]}, "malformed"),
        ({"command": ["x", 1], "type": "local"}, ""),
        ({"command": []}, "malformed"),
        ({**STDIO, "env": {"A": "${command:x}"}}, "placeholder"),
        ({**STDIO, "env": {"A": f"{SECRET}${{"}}, "placeholder"),
        ({**STDIO, "env": ["A"]}, "malformed"),
        ({**STDIO, "envFile": "missing.env"}, "envFile can't be read"),
        ({"command": "uvx", "args": ["--from", "x", "ipybox", "--sandbox"]}, "it is ipybox itself"),
        ({"url": "ftp://x/mcp"}, "http"),
        ({"url": "https://x/mcp", "type": "ws"}, "type"),
        ({"url": "https://x/mcp", "headers": "x"}, "malformed"),
    ],
)
def test_what_is_not_supported_is_shown_with_the_reason(definition: Any, problem: str, workspace: Path, home: Path):
    server = entry(workspace, home, **definition)

    assert problem in server.problem
    assert bool(server.problem) == bool(problem)
    assert SECRET not in server.problem


@pytest.mark.parametrize(
    ("url", "hidden", "secrets"),
    [
        ("https://u:p4ss@h/mcp", "https://u:${ACME_PASSWORD}@h/mcp", {"ACME_PASSWORD": "p4ss"}),
        ("https://t0ken@h/mcp", "https://${ACME}@h/mcp", {"ACME": "t0ken"}),
        (
            "https://h/ab12cd34ef56ab78cd90/cd34ef56ab78cd90ab12",
            "https://h/${ACME_KEY}/${ACME_KEY_2}",
            {"ACME_KEY": "ab12cd34ef56ab78cd90", "ACME_KEY_2": "cd34ef56ab78cd90ab12"},
        ),
    ],
    ids=["password", "user", "keys"],
)
def test_secrets_in_a_url_become_placeholders(
    url: str, hidden: str, secrets: dict[str, str], workspace: Path, home: Path
):
    server = entry(workspace, home, url=url)

    assert (server.params["url"], server.secrets) == (hidden, secrets)


def test_values_become_placeholders_but_references_and_settings_stay(workspace: Path, home: Path):
    write(home / "acme.env", f"FROM_FILE={SECRET}\nA=overridden\n")
    server = entry(
        workspace,
        home,
        command="${userHome}/bin/acme",
        args=["--root", "${workspaceFolder}/x", "--level", "${UNSET:-7}", "--token", f"{SECRET}2"],
        env={"A": "${UNSET:-}", "B": "${SET:-no}", "C": f"{SECRET}3", "DEBUG": True, "PORT": 8080, "NONE": None},
        envFile="${userHome}/acme.env",
        cwd="sub",
        excludeTools=["x"],
    )

    assert server.params == {
        "command": f"{home}/bin/acme",
        "args": ["--root", f"{workspace}/x", "--level", "7", "--token", "${ACME_TOKEN}"],
        "env": {"FROM_FILE": "${FROM_FILE}", "A": "", "B": "${SET}", "C": "${C}", "DEBUG": "true", "PORT": "8080"},
        "cwd": f"{workspace}/sub",
    }
    assert server.secrets == {"FROM_FILE": SECRET, "C": f"{SECRET}3", "ACME_TOKEN": f"{SECRET}2"}
    assert "filter" in server.note
    assert SECRET not in repr(server) + server.command_line


@pytest.mark.parametrize(
    "path", ["../outside.env", "/etc/hostname", "~/outside.env", "${workspaceFolder}/../outside.env"]
)
def test_files_outside_are_not_read_for_the_workspaces_own_files(path: str, workspace: Path):
    write(workspace.parent / "outside.env", f"A={SECRET}")
    write(workspace / ".cursor/mcp.json", {"mcpServers": {"acme": {**STDIO, "envFile": path}}})

    [server] = found(workspace)

    assert (server.params, server.secrets) == ({}, {})
    assert "outside of the workspace" in server.problem


def test_links_and_large_files_of_a_workspace_are_not_read(workspace: Path, home: Path, tmp_path: Path):
    target = write(tmp_path / "target", {"mcpServers": {"acme": STDIO}})
    (workspace / ".mcp.json").symlink_to(target)
    write(workspace / ".vscode/mcp.json", " " * 70_000)
    os.mkfifo(workspace / "opencode.json")
    write(home / ".gemini/settings.json", "{" * 5000)
    write(home / ".codex/config.toml", "a = [" * 5000)

    servers, unreadable = configured_servers(workspace, WritablePlaces(workspace))

    assert servers == []
    assert len(unreadable) == 5


@pytest.mark.parametrize(
    ("limit", "file", "content", "reason"),
    [
        ("MAX_UNTRUSTED", ".mcp.json", "{}         ", "larger than 10 bytes"),
        ("MAX_DOTS", ".codex/config.toml", "a.a.a.a.a.a.a.a.a.a.a.a = 1", "more than 10 dots"),
    ],
)
def test_files_that_cost_too_much_are_not_read(
    limit: str, file: str, content: str, reason: str, workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(configs, limit, 10)
    write((workspace if file == ".mcp.json" else home) / file, content)

    servers, [line] = configured_servers(workspace, WritablePlaces(workspace))

    assert servers == []
    assert reason in line


def test_a_home_that_is_the_workspace_makes_the_users_files_input(home: Path):
    write(home / ".cursor/mcp.json", {"mcpServers": {"acme": STDIO}})

    assert [server.is_untrusted for server in found(home)] == [True]


def test_names_must_be_exact_and_definitions_the_same(workspace: Path, home: Path):
    write(home / ".cursor/mcp.json", {"mcpServers": {"a": STDIO, "b": STDIO, "c": {**STDIO, "env": {"K": "one1"}}}})
    write(home / ".gemini/settings.json", {"mcpServers": {"a": STDIO, "b": {"httpUrl": "https://b.example/mcp"}}})
    write(home / ".config/zed/settings.json", {"context_servers": {"c": {**STDIO, "env": {"K": "two2"}}}})
    write(home / ".qwen/settings.json", {"mcpServers": {"d": {"command": []}}})
    servers = found(workspace)

    assert find_server(servers, "a").client == "cursor"
    for name in "bc":  # "c" differs only in a secret
        with pytest.raises(ValueError, match="ambiguous"):
            find_server(servers, name)
    with pytest.raises(ValueError, match=r"no MCP client .*'A'; .*: a, b, c, d"):
        find_server(servers, "A")
    with pytest.raises(ValueError, match=r"can't import d in .* malformed"):
        find_server(servers, "d")


@pytest.mark.parametrize(
    ("scope", "client", "removal"),
    [
        (".claude.json", "mcpServers", "claude mcp remove 'my server' --scope user"),
        (".gemini/settings.json", "mcpServers", "gemini mcp remove 'my server' --scope user"),
        (".cursor/mcp.json", "mcpServers", "delete mcpServers.'my server' in {file}"),
    ],
)
def test_how_to_remove_a_server_is_said(scope: str, client: str, removal: str, workspace: Path, home: Path):
    file = write(home / scope, {client: {"my server": STDIO}})

    [server] = found(workspace)

    assert server.removal == removal.format(file=file)
    assert server.package == "my server"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "// no /* comment */ ,]", // yes\n "b": [1, /* , */ ], }', {"a": "// no /* comment */ ,]", "b": [1]}),
        ('\ufeff["\\"//", /**/ 2 ]', ['"//', 2]),
        ("/* only */ 3 // end", 3),
    ],
)
def test_comments_and_trailing_commas_are_left_out(text: str, value: Any):
    assert parse_jsonc(text.encode()) == value


def test_json_of_too_many_values_is_not_read():
    with pytest.raises(ValueError, match=r"more than [0-9,]+ values"):
        parse_jsonc(b"[" + b"0," * MAX_VALUES + b"0]")
