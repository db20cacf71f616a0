"""Codex, Copilot, Gemini CLI and opencode, the real programs, with a scripted model and `ipybox install`.

`make clients` installs them. What they answer to a form, `tests/mcp_server/test_forms_of_clients.py` repeats with more
forms; here it is seen that they still answer so. docs/mcp-server.md says what works where.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.audit.lines import events
from tests.claude.cli import no_process_left
from tests.clients.model import DONE, Call, Model, serving_model
from tests.clients.runs import NPM, run
from tests.conftest import Fifo
from tests.servers import ROOT

# Calls run outside of the kernel, so a sandbox would change nothing.
pytestmark = pytest.mark.kernel

ECHO = {"command": sys.executable, "args": [str(ROOT / "tests" / "echo_server.py")]}
SCRIPT: list[Call] = [
    ("register_mcp_server", {"server_name": "echo", "server_params": ECHO}),
    ("execute_ipython_cell", {"code": "from mcptools.echo import echo; print(echo.run(echo.Params(text='hello')))"}),
    ("execute_ipython_cell", {"code": "x = 2; 6 * 7"}),
    ("execute_ipython_cell", {"code": "[1, x]"}),
    ("execute_ipython_cell", {"code": "'x' in dir()", "session": "other"}),
    (
        "execute_ipython_cell",
        {"code": "print('before'); from PIL import Image; display(Image.new('RGB', (2, 2), 'red'))"},
    ),
]

CODEX = """
model = "scripted"
model_provider = "local"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.local]
name = "local"
base_url = "{url}"
wire_api = "responses"
"""


@dataclass(frozen=True)
class Agent:
    """A coding agent: how it runs without a person, and what it does with ipybox.

    Attributes:
        client: Its name for `ipybox install`.
        command: The command, which ends with the prompt.
        file: Its configuration in its home.
        configuration: What this contains, given the model's address.
        env: Its variables, given its home and the model's address.
        has_forms: Whether it answers forms, if only by declining them.
        shows_pictures: Whether the model gets images.
    """

    client: str
    command: tuple[str, ...]
    file: str
    configuration: Callable[[str], str]
    env: Callable[[Path, str], Mapping[str, str]]
    has_forms: bool
    shows_pictures: bool = True


def _copilot_env(home: Path, url: str) -> dict[str, str]:
    provider = {"COPILOT_PROVIDER_BASE_URL": url, "COPILOT_PROVIDER_API_KEY": "none"}
    return {"COPILOT_HOME": str(home), "COPILOT_OFFLINE": "true", "COPILOT_MODEL": "scripted", **provider}


def _gemini_env(_: Path, url: str) -> dict[str, str]:
    return {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": url.removesuffix("/v1")}


def _gemini_settings(_: str) -> str:
    settings: dict[str, Any] = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    return json.dumps(settings)


def _opencode_env(home: Path, _: str) -> dict[str, str]:
    places = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("DATA", "CACHE")}
    return {"XDG_CONFIG_HOME": str(home), "OPENCODE_DISABLE_MODELS_FETCH": "1", **places}


def _opencode_configuration(url: str) -> str:
    modalities = {"input": ["text", "image"], "output": ["text"]}
    limit = {"context": 200_000, "output": 8_000}
    model = {"name": "scripted", "attachment": True, "tool_call": True, "modalities": modalities, "limit": limit}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": url, "apiKey": "none"},
        "models": {"scripted": model},
    }
    off = {"autoupdate": False, "share": "disabled"}
    return json.dumps(
        {"model": "local/scripted", "small_model": "local/scripted", "provider": {"local": provider}, **off}
    )


AGENTS = (
    Agent(
        "codex",
        ("codex", "exec", "--skip-git-repo-check", "begin"),
        ".codex/config.toml",
        lambda url: CODEX.format(url=url),
        lambda home, _: {"CODEX_HOME": str(home / ".codex")},
        has_forms=True,
    ),
    Agent(
        "copilot",
        ("copilot", "--allow-all-tools", "-p", "begin"),
        "config.json",
        lambda _: "{}",
        _copilot_env,
        has_forms=True,
        shows_pictures=False,
    ),
    Agent(
        "gemini",
        ("gemini", "--yolo", "--skip-trust", "-m", "gemini-2.5-pro", "-p", "begin"),
        ".gemini/settings.json",
        _gemini_settings,
        _gemini_env,
        has_forms=False,
    ),
    Agent(
        "opencode",
        ("opencode", "run", "begin"),
        "opencode/opencode.json",
        _opencode_configuration,
        _opencode_env,
        has_forms=False,
    ),
)


@dataclass(frozen=True)
class Installed:
    """An agent in a directory, with ipybox."""

    agent: Agent
    workspace: Path
    env: Mapping[str, str]

    @classmethod
    def create(cls, agent: Agent, directory: Path, model: Model, *options: str) -> "Installed":
        """Installs ipybox by its command."""
        installed = cls.without_ipybox(agent, directory, model)
        run([sys.executable, "-m", "ipybox", "install", agent.client, *options], installed.workspace, **installed.env)
        if agent.client == "codex":  # as `ipybox install` advises
            configuration = directory / "home" / agent.file
            configuration.write_text(
                configuration.read_text().replace("[mcp_servers.ipybox]", "[mcp_servers.ipybox]\nrequired = true")
            )
        return installed

    @classmethod
    def without_ipybox(cls, agent: Agent, directory: Path, model: Model) -> "Installed":
        home, workspace = directory / "home", directory / "workspace"
        workspace.mkdir()
        configuration = home / agent.file
        configuration.parent.mkdir(parents=True)
        configuration.write_text(agent.configuration(model.url))
        programs = NPM / "node_modules" / ".bin"
        assert (programs / agent.command[0]).exists(), f"there is no {agent.command[0]} in .npm/clients: `make clients`"
        # opencode believes PWD.
        env = {
            "HOME": str(home),
            "PWD": str(workspace),
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            **agent.env(home, model.url),
        }
        return cls(agent, workspace, env)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.client)
@pytest.mark.parametrize("approve", ["ask", "auto"])
def test_an_agent_runs_cells_and_only_calls_that_nobody_has_to_approve(agent: Agent, approve: str, tmp_path: Path):
    with serving_model(SCRIPT) as model:
        installed = Installed.create(agent, tmp_path, model, f"--approve={approve}")
        said = run([*agent.command], installed.workspace, **installed.env)

    assert DONE in said
    registered, called, computed, listed, other, shown = model.results
    assert "echo" in registered
    assert "42" in computed
    assert "[1,2]" in listed.replace(" ", "")  # Copilot formats JSON
    assert "False" in other
    assert "before\n" in shown, "its texts must not be joined"
    assert model.saw_picture == agent.shows_pictures
    decision = events(installed.workspace, "decision")[-1]
    if approve == "auto":
        assert "hello" in called
        assert (decision["accepted"], decision["by"]) == (True, "auto")
    else:
        declined = "the client declined it on its own" if agent.has_forms else "no person was asked"
        assert "call to echo.echo was rejected: " in called
        assert declined in called
        assert decision["accepted"] is False
        assert [call["outcome"] for call in events(installed.workspace, "tool_call")] == ["rejected"]


@pytest.mark.parametrize(
    ("client", "commands"),
    [
        (
            "codex",
            [
                ["codex", "plugin", "marketplace", "add", str(ROOT)],
                ["codex", "plugin", "add", "codeact-default@ipybox"],
            ],
        ),
        ("gemini", [["gemini", "extensions", "install", str(ROOT / "plugins/codeact-default"), "--consent"]]),
    ],
)
def test_the_plugins_work_in_the_project_and_bring_the_skill(client: str, commands: list[list[str]], tmp_path: Path):
    agent = next(agent for agent in AGENTS if agent.client == client)
    with serving_model([("execute_ipython_cell", {"code": "import os; print(os.getcwd())"})]) as model:
        installed = Installed.without_ipybox(agent, tmp_path, model)
        for command in commands:
            run(command, tmp_path, "y\n", **installed.env)
        run([*agent.command], installed.workspace, **installed.env)

    [directory] = model.results
    assert str(installed.workspace) in directory
    assert "codeact-default:codeact" in model.request if client == "codex" else "codeact" in model.request


#: Calls a tool of each of three servers.
CALLS = """
from mcptools.one import echo as a
from mcptools.two import echo as b
from mcptools.three import echo as c
print([tool.run(tool.Params(text=text)).result for tool, text in ((a, "x"), (b, "y"), (c, "z"))])
"""
SECRET = "sk-live-4f9c1e7720b35da8"


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.client)
def test_an_agent_uses_the_servers_that_one_command_imports_from_three_clients(agent: Agent, tmp_path: Path):
    with serving_model([("execute_ipython_cell", {"code": CALLS})]) as model:
        installed = Installed.create(agent, tmp_path, model)
        home = Path(installed.env["HOME"])
        for file, key, name in (
            (".claude.json", "mcpServers", "one"),
            (".cursor/mcp.json", "mcpServers", "two"),
            (".qwen/settings.json", "mcpServers", "three"),
        ):
            (home / file).parent.mkdir(exist_ok=True)
            (home / file).write_text(json.dumps({key: {name: {**ECHO, "env": {"API_KEY": SECRET}}}}))
        told = run([sys.executable, "-m", "ipybox", "import", "--all"], installed.workspace, **installed.env)
        said = run([*agent.command], installed.workspace, **installed.env)

    assert DONE in said
    assert "['x', 'y', 'z']" in model.results[0]
    assert SECRET not in told + said
    assert [
        path for path in installed.workspace.rglob("*") if path.is_file() and SECRET in path.read_text("latin1")
    ] == []


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.client)
async def test_a_killed_agent_leaves_no_process(agent: Agent, tmp_path: Path, fifo: Fifo):
    waiting = f"import time\nwith open({str(fifo.path)!r}, 'w') as pipe: pipe.write('runs\\n')\ntime.sleep(600)"
    with serving_model([("execute_ipython_cell", {"code": waiting})]) as model:
        installed = Installed.create(agent, tmp_path, model)
        with no_process_left():
            process = await asyncio.create_subprocess_exec(
                *agent.command,
                cwd=installed.workspace,
                env={**os.environ, **installed.env},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                process_group=0,
            )
            await fifo.line()
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
