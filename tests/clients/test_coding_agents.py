"""Codex and Copilot, the real programs, with a scripted model: what becomes of a call when nobody is there to ask.

`make clients` installs them. What they answer to a form, `tests/mcp_server/test_forms_of_clients.py` repeats with more
forms; here it is seen that they still answer so.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.audit.lines import events
from tests.clients.model import DONE, Call, serving_model
from tests.clients.runs import NPM, run, stdio_server
from tests.servers import ROOT

# Calls run outside of the kernel, so a sandbox would change nothing.
pytestmark = pytest.mark.kernel

ECHO = {"command": sys.executable, "args": [str(ROOT / "tests" / "echo_server.py")]}
SCRIPT: list[Call] = [
    ("register_mcp_server", {"server_name": "echo", "server_params": ECHO}),
    ("execute_ipython_cell", {"code": "from mcptools.echo import echo; print(echo.run(echo.Params(text='hello')))"}),
    ("execute_ipython_cell", {"code": "6 * 7"}),
]

CODEX = """
model = "scripted"
model_provider = "local"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.local]
name = "local"
base_url = {url}
wire_api = "responses"

[mcp_servers.ipybox]
required = true
command = {command}
args = {args}
env = {{ {env} }}
"""


def codex(home: Path, server: dict[str, Any], url: str) -> str:
    """Runs Codex with all its rights, so that it asks nobody whether it may call the server."""
    env = ", ".join(f"{name} = {json.dumps(value)}" for name, value in server["env"].items())
    values = {name: json.dumps(value) for name, value in {**server, "url": url}.items()}
    (home / "config.toml").write_text(CODEX.format(**{**values, "env": env}))
    workspace = server["args"][-1]
    return run(
        [_program("codex"), "exec", "--skip-git-repo-check", "begin"], workspace, CODEX_HOME=str(home), HOME=str(home)
    )


def copilot(home: Path, server: dict[str, Any], url: str) -> str:
    """Runs Copilot, which may call all tools."""
    configuration = {"mcpServers": {"ipybox": {"type": "local", "tools": ["*"], **server}}}
    (home / "mcp-config.json").write_text(json.dumps(configuration))
    provider = {"BASE_URL": url, "API_KEY": "none"}
    return run(
        [_program("copilot"), "--allow-all-tools", "-p", "begin"],
        server["args"][-1],
        **{"COPILOT_HOME": str(home), "HOME": str(home), "COPILOT_OFFLINE": "true", "COPILOT_MODEL": "scripted"},
        **{f"COPILOT_PROVIDER_{name}": value for name, value in provider.items()},
    )


def _program(name: str) -> str:
    program = NPM / "node_modules" / ".bin" / name
    assert program.exists(), f"there is no {name} in .npm/clients: run `make clients`"
    return str(program)


@pytest.mark.parametrize("agent", [codex, copilot])
@pytest.mark.parametrize("approve", ["ask", "auto"])
def test_a_call_runs_only_if_nobody_has_to_approve_it(
    agent: Callable[[Path, dict[str, Any], str], str], approve: str, tmp_path: Path
):
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    home.mkdir()
    workspace.mkdir()
    server = stdio_server(workspace)
    server["args"][-2:-2] = [f"--approve={approve}", "--audit=full"]

    with serving_model(SCRIPT) as model:
        said = agent(home, server, model.url)

    assert DONE in said
    registered, called, computed = model.results
    assert "echo" in registered
    assert "42" in computed
    decision = events(workspace, "decision")[-1]
    if approve == "auto":
        assert "hello" in called
        assert (decision["accepted"], decision["by"]) == (True, "auto")
    else:
        assert "call to echo.echo was rejected: the client declined it on its own" in called
        assert (decision["accepted"], decision["by"]) == (False, "client")
        assert [call["outcome"] for call in events(workspace, "tool_call")] == ["rejected"]
