"""Sessions of the real Claude Code, offline: plain, with its tool search, and with the codeact plugin.

All use the same MCP server. A script is the model (`example.py`), and each request of the client is recorded
(`conversation.py`).
"""

import json
import shutil
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks import example
from benchmarks.conversation import Recorded
from tests.claude.api import Request, text, tool
from tests.claude.cli import Home, publish
from tests.servers import ROOT

#: The definitions of the real server. Where they are not present, those of the stand-in are repeated.
SCHEMAS = ROOT.parent / "shared" / "schemas" / "github_tools.json"

#: How many tools the real server has, and what they are cut down to or repeated up to.
TOOLS = 117
COUNTS = (10, 50, TOOLS, 500)

#: A workspace in which a parser was appended to a tool, and a code action was saved: see the README.md there.
SAVED = ROOT / "docs" / "generated"

#: Milliseconds that the plugin's first start may take.
FIRST_START = "110000"

#: Has the client wait for MCP servers before its first request, so that it always has the names of deferred tools.
PATIENCE = {"MCP_CONNECTION_NONBLOCKING": "0", "MCP_CONNECT_TIMEOUT_MS": "30000"}

#: Allows the tools of the plugin's server.
ALLOWED = f"mcp__plugin_{example.PLUGIN}_ipybox"

#: How a client starts servers, by their names.
Servers = Mapping[str, Mapping[str, Any]]


class Clients:
    """Claude Code, plain, with its tool search, and with the plugin.

    Args:
        directory: An empty one.
    """

    def __init__(self, directory: Path):
        self._directory = directory
        self._bares: dict[tuple[Path, str], Request] = {}
        self._repository = publish(directory)
        self.plain = self._home("plain", self._repository)
        self.searching = self._home("searching", self._repository)
        self.searching.env["ENABLE_TOOL_SEARCH"] = "true"  # it is off where the API isn't the real one
        for home in (self.plain, self.searching):
            home.env |= PATIENCE

    @cached_property
    def _coding(self) -> Home:
        home = self._home("coding", self._repository)
        # The first start makes the plugin's environment, which the client of a busy machine would not wait for.
        home.env |= {"MCP_TIMEOUT": FIRST_START, "MCP_CONNECT_TIMEOUT_MS": FIRST_START}
        home.marketplace_add()
        home.install(example.PLUGIN)
        home.mcp_list(self.workspace("first"))
        return home

    def register(self, servers: Servers, workspace: Path) -> Recorded:
        """Registers servers in a session, and gives the tool of the example its output parser."""
        uses = [
            tool(
                "register_mcp_server",
                server_name=name,
                server_params={"command": server["command"], "args": server["args"]},
            )
            for name, server in servers.items()
        ]
        registered = self.with_code(workspace, "Register it", {"register": uses, "answer": [text("Done.")]})
        _add_parser(workspace)
        return registered

    def with_json(self, home: Home, workspace: Path, servers: Servers, prompt: str, script: example.Script) -> Recorded:
        """Runs a session in which the servers are the client's."""
        bare = self._bare(home, workspace, prompt)
        for name, server in servers.items():
            home.claude("mcp", "add-json", "--scope", "local", name, json.dumps(server), cwd=workspace)
        allowed = [*(f"mcp__{name}" for name in servers), "ToolSearch"]
        session = home.session(prompt, [*script.values()], workspace, allowed=allowed)
        return Recorded(session.requests, bare, [*script][:-1])

    def with_code(self, workspace: Path, prompt: str, script: example.Script) -> Recorded:
        """Runs a session with the plugin."""
        bare = self._bare(self.plain, workspace, prompt)
        allowed = [ALLOWED, "Skill", "Read", "Bash"]
        session = self._coding.session(prompt, [*script.values()], workspace, allowed=allowed)
        return Recorded(session.requests, bare, [*script][:-1])

    def workspace(self, name: str) -> Path:
        """Makes a workspace."""
        workspace = self._directory / "workspaces" / name
        workspace.mkdir(parents=True)
        return workspace

    def _bare(self, home: Home, workspace: Path, prompt: str) -> Request:
        """Returns what the client sends where there is neither server nor plugin, which no workspace changes."""
        key = (home.path, prompt)
        if key not in self._bares:
            script = [[text("I have no tools for that.")]]
            self._bares[key] = home.session(prompt, script, workspace).requests[0]
        return self._bares[key]

    def _home(self, name: str, repository: Path) -> Home:
        place = self._directory / name
        place.mkdir()
        return Home(place, repository)


def github(count: int) -> dict[str, Any]:
    """Returns how a client starts the stand-in of GitHub's server with so many tools."""
    tools = ["--tools", str(SCHEMAS)] if SCHEMAS.exists() else []
    script = str(ROOT / "tests" / "github_server.py")
    return {"type": "stdio", "command": sys.executable, "args": [script, *tools, "--count", str(count)]}


def _add_parser(workspace: Path) -> None:
    """Gives the tool of the example its output parser, as it is in the documentation."""
    shutil.copytree(SAVED / "mcpparse", workspace / "mcpparse", ignore=shutil.ignore_patterns("__pycache__"))
    extended, generated = (
        (SAVED / "mcptools" / example.SERVER / f"{example.SEARCH}{end}.py").read_text() for end in ("", "_orig")
    )
    with (workspace / "mcptools" / example.SERVER / f"{example.SEARCH}.py").open("a") as module:
        module.write(extended.removeprefix(generated))
