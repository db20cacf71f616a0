"""MCP servers that start beside a sandbox take no programs from the workspace, which code in the sandbox can write."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ipybox import generate_mcp_sources
from ipybox.errors import MCPServerError
from ipybox.sandbox.servers import start_beside
from ipybox.tool_exec.seal import key_path
from tests import servers
from tests.servers import WAIT


def test_a_server_behind_a_url_is_left_alone():
    params = {"url": "http://localhost/mcp", "headers": {"A": "b"}}

    assert start_beside(params) is params


def test_what_the_user_has_set_stays():
    params: dict[str, Any] = {"command": "python", "args": ["-m", "x"], "env": {"PYTHONSAFEPATH": "", "A": "b"}}

    started = start_beside(params)

    assert (started["command"], started["args"]) == ("python", ["-m", "x"])
    assert started["env"] == {"PYTHONSAFEPATH": "", "A": "b", "UV_NO_CONFIG": "1"}
    assert params["env"] == {"PYTHONSAFEPATH": "", "A": "b"}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"command": "npx", "args": ["-y", "server", "."]}, ["npx", "{prefix}", "-y", "server", "."]),
        ({"command": "/usr/bin/npx"}, ["/usr/bin/npx", "{prefix}"]),
        ({"command": "srt", "args": ["-s", "f", "npx", "server"]}, ["srt", "-s", "f", "npx", "{prefix}", "server"]),
        ({"command": "node", "args": ["npx-server.js"]}, ["node", "npx-server.js"]),
    ],
    ids=["npx", "path", "in_srt", "another_program"],
)
def test_npx_gets_a_directory_of_its_own(params: dict[str, Any], words: list[str]):
    started = start_beside(params)

    prefix = f"--prefix={key_path().parent / 'npx'}"
    assert [started["command"], *started["args"]] == [word.format(prefix=prefix) for word in words]


def test_npx_does_not_run_what_is_in_the_workspace(tmp_path: Path):
    programs = tmp_path / "node_modules" / ".bin"
    programs.mkdir(parents=True)
    (programs / "planted").write_text("#!/bin/sh\necho planted\n")
    (programs / "planted").chmod(0o755)
    started = start_beside({"command": "npx", "args": ["--no-install", "planted"]})

    planted = _output(["npx", "--no-install", "planted"], tmp_path)
    beside = _output([started["command"], *started["args"]], tmp_path)

    assert "planted" in planted.splitlines()  # the control
    assert "planted" not in beside.splitlines()


@pytest.mark.parametrize("beneath", [False, True], ids=["control", "beside_a_sandbox"])
async def test_a_python_server_does_not_import_from_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beneath: bool
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mcp_server_time.py").write_text("open('planted', 'w')\nraise SystemExit(1)\n")

    try:
        names = await generate_mcp_sources(
            "clock", servers.time_(), tmp_path / "mcptools", beneath=tmp_path if beneath else None
        )
    except MCPServerError:
        assert not beneath
    else:
        assert "get_current_time" in names

    assert (tmp_path / "planted").exists() == (not beneath)


def _output(command: list[str], directory: Path) -> str:
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "npm_config_offline": "true"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    return done.stdout + done.stderr
