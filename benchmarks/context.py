"""What the documented example costs the model's context: with the codeact plugin, and beside it with JSON tools.

All sides are sessions of the real Claude Code with the same MCP server. A script is the model (`example.py`), and what
the client sends to it is counted (`conversation.py`). The server is registered beforehand, and `search_repositories`
has its output parser.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from benchmarks import example
from benchmarks.conversation import Conversation
from benchmarks.measurement import Measurement, Samples, Setting, Target
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

#: Bytes of a token, roughly.
TOKEN_BYTES = 4

#: How the model gets to the server's tools: those that are compared, and variants, which are tried with `TOOLS` tools.
Means = Literal["JSON tools", "code", "saved action", "JSON tools in turn", "tool search", "code, files read"]
COMPARED: tuple[Means, ...] = ("JSON tools", "code", "saved action")
FLOOR: Means = "JSON tools"

#: Allows the tools of the plugin's server.
ALLOWED = f"mcp__plugin_{example.PLUGIN}_ipybox"

#: Which requests count: the last one, which has all that the context holds in the end, or all of them.
Way = Literal["last", "all"]

#: All conversations, by the number of the server's tools.
Growth = Mapping[int, Mapping[Means, Conversation]]


def measurements() -> list[Measurement]:
    """Returns the measurements of this module."""
    what, limit = f"example, {TOOLS} tools", Target(floors=0.1)
    return [
        Measurement("context", f"{what}: last request", FLOOR, partial(measure, way="last"), limit, "B"),
        Measurement("context-sent", f"{what}: all requests", FLOOR, partial(measure, way="all"), limit, "B"),
    ]


def measure(_setting: Setting, way: Way) -> Samples:
    """Counts; nothing varies from round to round."""
    growth = conversations()
    floor, ours = (float(_bytes(growth[TOOLS][means], way)) for means in (FLOOR, "code"))
    remarks = _growth(growth, way)
    if way == "last":
        origin = SCHEMAS.name if SCHEMAS.exists() else "those of tests/github_server.py, repeated"
        remarks = [f"definitions: {origin}", *remarks, *_parts(growth[TOOLS])]
    return Samples({"floor": [floor], "ipybox": [ours]}, remarks)


@cache
def conversations() -> Growth:
    """Has the example done by each means, and returns what that took; it is done once for all measurements."""
    with tempfile.TemporaryDirectory(prefix="ipybox-bench-", ignore_cleanup_errors=True) as name:
        clients = Clients(Path(name))
        return {count: clients.compare(count) for count in COUNTS}


class Clients:
    """Claude Code, plain and with the plugin.

    Args:
        directory: An empty one.
    """

    def __init__(self, directory: Path):
        self._directory = directory
        repository = publish(directory)
        self._plain = self._home("plain", repository)
        self._searching = self._home("searching", repository)
        self._searching.env["ENABLE_TOOL_SEARCH"] = "true"  # it is off where the API isn't the real one
        self._coding = self._home("coding", repository)
        self._coding.marketplace_add()
        self._coding.install(example.PLUGIN)
        self._coding.mcp_list(self._workspace("first"))  # the first start makes the plugin's environment

    def compare(self, count: int) -> dict[Means, Conversation]:
        """Has the example done with a server of so many tools."""
        server = _server(count)
        loaded = server | {"alwaysLoad": True}
        workspace = self._workspace(f"coding-{count}")
        self._register(server, workspace)
        done: dict[Means, Conversation] = {
            "JSON tools": self._with_json(self._plain, f"plain-{count}", loaded, example.json_tools()),
            "code": self._with_code(workspace, example.code()),
        }
        if count == TOOLS:
            package = str(workspace / "mcptools" / example.SERVER)
            done |= {
                "JSON tools in turn": self._with_json(self._plain, "in-turn", loaded, example.json_tools_in_turn()),
                "tool search": self._with_json(self._searching, "searching", server, example.tool_search()),
                "code, files read": self._with_code(workspace, example.code_and_files(package)),
            }
        shutil.copytree(SAVED / "gentools", workspace / "gentools", ignore=shutil.ignore_patterns("__pycache__"))
        done["saved action"] = self._with_code(workspace, example.saved_action())
        return done

    def _register(self, server: Mapping[str, Any], workspace: Path) -> None:
        """Registers the server, and gives the tool of the example its output parser."""
        params = {"command": server["command"], "args": server["args"]}
        use = tool("register_mcp_server", server_name=example.SERVER, server_params=params)
        self._coding.session("Register it", [[use], [text("Done.")]], workspace, allowed=[ALLOWED])
        _add_parser(workspace)

    def _with_json(self, home: Home, name: str, server: Mapping[str, Any], script: example.Script) -> Conversation:
        workspace = self._workspace(name)
        bare = _bare(home, workspace)
        home.claude("mcp", "add-json", "--scope", "local", example.SERVER, json.dumps(server), cwd=workspace)
        allowed = [f"mcp__{example.SERVER}", "ToolSearch"]
        session = home.session(example.PROMPT, [*script.values(), example.answer], workspace, allowed=allowed)
        return Conversation.of(session.requests, bare, [*script])

    def _with_code(self, workspace: Path, script: example.Script) -> Conversation:
        bare = _bare(self._plain, workspace)
        allowed = [ALLOWED, "Skill", "Read", "Bash"]
        session = self._coding.session(example.PROMPT, [*script.values(), example.answer], workspace, allowed=allowed)
        return Conversation.of(session.requests, bare, [*script])

    def _home(self, name: str, repository: Path) -> Home:
        place = self._directory / name
        place.mkdir()
        return Home(place, repository, package_cache=self._directory / "packages")

    def _workspace(self, name: str) -> Path:
        workspace = self._directory / "workspaces" / name
        workspace.mkdir(parents=True)
        return workspace


def _server(count: int) -> dict[str, Any]:
    """Returns how a client starts the stand-in of GitHub's server with so many tools."""
    tools = ["--tools", str(SCHEMAS)] if SCHEMAS.exists() else []
    script = str(ROOT / "tests" / "github_server.py")
    return {"type": "stdio", "command": sys.executable, "args": [script, *tools, "--count", str(count)]}


def _bare(home: Home, workspace: Path) -> Request:
    """Returns what the client sends where there is neither server nor plugin."""
    return home.session(example.PROMPT, [[text("I have no tools for that.")]], workspace).requests[0]


def _add_parser(workspace: Path) -> None:
    """Gives the tool of the example its output parser, as it is in the documentation."""
    shutil.copytree(SAVED / "mcpparse", workspace / "mcpparse", ignore=shutil.ignore_patterns("__pycache__"))
    extended, generated = (
        (SAVED / "mcptools" / example.SERVER / f"{example.SEARCH}{end}.py").read_text() for end in ("", "_orig")
    )
    with (workspace / "mcptools" / example.SERVER / f"{example.SEARCH}.py").open("a") as module:
        module.write(extended.removeprefix(generated))


def _bytes(conversation: Conversation, way: Way) -> int:
    return conversation.last.total if way == "last" else conversation.all


def _growth(growth: Growth, way: Way) -> list[str]:
    """Returns a line for each number of tools."""
    lines: list[str] = []
    for count, done in growth.items():
        figures = {means: _bytes(done[means], way) for means in COMPARED}
        described = [
            f"{means} {number / 1000:>7.1f} kB ≈ {number / TOKEN_BYTES / 1000:>5.1f}k tokens"
            + ("" if means == FLOOR else f" {number / figures[FLOOR]:>6.1%}")
            for means, number in figures.items()
        ]
        lines.append(f"{count:>3} tools: {', '.join(described)}")
    return lines


def _parts(done: Mapping[Means, Conversation]) -> list[str]:
    """Returns a line for each conversation that says what its last request consists of."""
    lines: list[str] = []
    for means, conversation in done.items():
        last, count = conversation.last, len(conversation.requests)
        parts = " + ".join(f"{what} {number:,}" for what, number in last.parts.items() if number)
        lines.append(f"{means}: {conversation.all:,} B in {count} requests, {last.total:,} B in the last: {parts}")
    return lines
