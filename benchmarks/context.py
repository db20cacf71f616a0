"""Measures what tasks cost the model's context: with the codeact plugin, compared with JSON tools.

All sides are sessions of the real Claude Code with the same MCP server. A script is the model (`example.py`), and what
the client sends to it is counted (`conversation.py`). The server is registered beforehand, and `search_repositories`
has its output parser.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Literal

from benchmarks import example
from benchmarks.conversation import Conversation, Recorded
from benchmarks.measurement import Limit, Measurement, Samples, Setting
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

#: Bytes of a token, roughly.
TOKEN_BYTES = 4

#: How the model gets to the server's tools: those that are compared, and variants, which are tried with `TOOLS` tools.
Means = Literal[
    "JSON tools",
    "code",
    "saved action",
    "JSON tools in turn",
    "tool search",
    "code, skill loaded",
    "code, a look first",
    "code, files read",
]
COMPARED: tuple[Means, ...] = ("JSON tools", "code", "saved action")
FLOOR: Means = "JSON tools"

#: Allows the tools of the plugin's server.
ALLOWED = f"mcp__plugin_{example.PLUGIN}_ipybox"

#: Which requests count: the last one, which has all that the context holds in the end, or all of them.
Way = Literal["last", "all"]

Done = dict[Means, Conversation]

#: How a client starts servers, by their names.
Servers = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Conversations:
    """All that was measured.

    Attributes:
        growth: The documented example, by the number of the server's tools.
        loop: A loop over 30 results, with `TOOLS` tools.
        one_call: One call of a server that has the fewest tools of `COUNTS`.
        parsers: An output parser, by how the model makes it.
    """

    growth: Mapping[int, Done]
    loop: Done
    one_call: Done
    parsers: Mapping[example.Making, Conversation]


def measurements() -> list[Measurement]:
    """Returns the measurements of this module."""
    what, limit = f"example, {TOOLS} tools", (Limit(0.1),)
    return [
        Measurement("context", "context", f"{what}: last request", FLOOR, partial(measure, way="last"), limit, "B"),
        Measurement("context-sent", "context", f"{what}: all requests", FLOOR, partial(measure, way="all"), limit, "B"),
    ]


def measure(_setting: Setting, way: Way) -> Samples:
    """Counts; nothing varies from round to round."""
    measured = conversations()
    floor, ours = (float(_bytes(measured.growth[TOOLS][means], way)) for means in (FLOOR, "code"))
    remarks = _growth(measured.growth, way)
    if way == "last":
        origin = SCHEMAS.name if SCHEMAS.exists() else "those of tests/github_server.py, repeated"
        remarks = [f"definitions: {origin}", *remarks, *_parts(measured.growth[TOOLS])]
    else:
        remarks += _beside_tool_search(measured)
        remarks += [
            f"output parser, {means}: {done.all:,} B in {len(done.requests)} requests; "
            f"the model wrote {done.written[-1]:,} B"
            for means, done in measured.parsers.items()
        ]
    return Samples({"floor": [floor], "ipybox": [ours]}, remarks)


@cache
def conversations() -> Conversations:
    """Has each task done by each means, and returns what that took; it is done once for all measurements."""
    with tempfile.TemporaryDirectory(prefix="ipybox-bench-", ignore_cleanup_errors=True) as name:
        clients = Clients(Path(name))
        growth = {count: clients.compare(count) for count in COUNTS}
        loop, one_call = clients.beside_search(example.LOOP, TOOLS), clients.beside_search(example.ONE_CALL, COUNTS[0])
        return Conversations(growth, loop, one_call, clients.make_parsers())


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

    def compare(self, count: int) -> Done:
        """Has the documented example done with a server of so many tools."""
        task = example.DOCUMENTED
        server = {example.SERVER: github(count)}
        loaded = {example.SERVER: github(count) | {"alwaysLoad": True}}
        workspace = self.workspace(f"coding-{count}")
        self.register(server, workspace)
        done: dict[Means, Recorded] = {
            "JSON tools": self._with_json(self.plain, f"plain-{count}", loaded, task, example.json_tools(task)),
            "code": self.with_code(workspace, task.prompt, example.code(task)),
        }
        if count == TOOLS:
            package = str(workspace / "mcptools" / example.SERVER)
            in_turn, search = example.json_tools_in_turn(task), example.tool_search(task)
            done |= {
                "JSON tools in turn": self._with_json(self.plain, "in-turn", loaded, task, in_turn),
                "tool search": self._with_json(self.searching, "searching", server, task, search),
                "code, skill loaded": self.with_code(workspace, task.prompt, example.code_with_skill(task)),
                "code, a look first": self.with_code(workspace, task.prompt, example.code_with_look(task)),
                "code, files read": self.with_code(workspace, task.prompt, example.code_and_files(task, package)),
            }
        shutil.copytree(SAVED / "gentools", workspace / "gentools", ignore=shutil.ignore_patterns("__pycache__"))
        done["saved action"] = self.with_code(workspace, task.prompt, example.saved_action(task))
        return _measured(done)

    def beside_search(self, task: example.Task, count: int) -> Done:
        """Has a task done by code and by the client's tool search, with a server of so many tools."""
        server = {example.SERVER: github(count)}
        place = f"{task.repositories}-of-{task.owner}"
        workspace = self.workspace(f"coding-{place}")
        self.register(server, workspace)
        search = example.tool_search(task)
        return _measured(
            {
                "tool search": self._with_json(self.searching, f"searching-{place}", server, task, search),
                "code": self.with_code(workspace, task.prompt, example.code(task)),
            }
        )

    def make_parsers(self) -> dict[example.Making, Conversation]:
        """Has an output parser made in each way."""
        page = str(self._coding.plugin_root(example.PLUGIN) / "skills" / "codeact" / "references" / "output-parsers.md")
        made: dict[example.Making, Conversation] = {}
        for making in example.MAKINGS:
            workspace = self.workspace(f"parser-{len(made)}")
            self.register({example.SERVER: github(COUNTS[0])}, workspace, parser=False)
            done = self.with_code(workspace, example.PARSER.prompt, example.parser(page, making))
            made[making] = done.measured()
        return made

    def register(self, servers: Servers, workspace: Path, *, parser: bool = True) -> Recorded:
        """Registers servers in a session, and by default gives the tool of the example its output parser."""
        uses = [
            tool(
                "register_mcp_server",
                server_name=name,
                server_params={"command": server["command"], "args": server["args"]},
            )
            for name, server in servers.items()
        ]
        registered = self.with_code(workspace, "Register it", {"register": uses, "answer": [text("Done.")]})
        if parser:
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

    def _with_json(
        self, home: Home, name: str, servers: Servers, task: example.Task, script: example.Script
    ) -> Recorded:
        return self.with_json(home, self.workspace(name), servers, task.prompt, script)

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


def _measured(done: Mapping[Means, Recorded]) -> Done:
    return {means: recorded.measured() for means, recorded in done.items()}


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


def _bytes(conversation: Conversation, way: Way) -> int:
    return conversation.last.total if way == "last" else conversation.all


def _growth(growth: Mapping[int, Done], way: Way) -> list[str]:
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


def _beside_tool_search(measured: Conversations) -> list[str]:
    """Returns a line for each task that compares all requests with those of the client's tool search."""
    example_done, fewest = measured.growth[TOOLS], COUNTS[0]
    rows: list[tuple[str, Conversation, Conversation]] = [
        (f"example, {TOOLS} tools, {means}", example_done[means], example_done["tool search"])
        for means in ("code", "code, a look first", "code, skill loaded", "saved action")
    ]
    rows.append((f"loop over 30 results, {TOOLS} tools", measured.loop["code"], measured.loop["tool search"]))
    rows.append((f"one call, {fewest} tools", measured.one_call["code"], measured.one_call["tool search"]))
    return [
        f"{what}: {ours.all:,} B in {len(ours.requests)} requests, tool search {search.all:,} B in "
        f"{len(search.requests)}: {ours.all / search.all:.2f} ×"
        for what, ours, search in rows
    ]


def _parts(done: Mapping[Means, Conversation]) -> list[str]:
    """Returns a line for each conversation that says what its last request consists of."""
    lines: list[str] = []
    for means, conversation in done.items():
        last, count = conversation.last, len(conversation.requests)
        parts = " + ".join(f"{what} {number:,}" for what, number in last.parts.items() if number)
        lines.append(f"{means}: {conversation.all:,} B in {count} requests, {last.total:,} B in the last: {parts}")
    return lines
