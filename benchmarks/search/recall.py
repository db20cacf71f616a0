"""Ranks the tools of real servers for judged queries, by the search that `tools()` uses."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.search.judged import Judged
from ipybox import generate_mcp_sources
from ipybox.codeact.library import Library
from ipybox.codeact.search import search
from ipybox.codeact.tool_info import ToolInfo, mcp_cards
from ipybox.mcp_apigen.package.files import ToolSpec, render_package
from tests.servers import ROOT, filesystem, time_
from tests.written_packages import write_package

#: The definitions of GitHub's server, which are not part of the repository.
SCHEMAS = ROOT.parent / "shared" / "schemas" / "github_tools.json"


@dataclass(frozen=True)
class Ranked:
    """A judged query, and the names of its hits, best first."""

    judged: Judged
    hits: Sequence[str]

    def found(self, count: int) -> bool:
        """Returns whether one of the first hits answers the query."""
        return not self.judged.answers.isdisjoint(self.hits[:count])


def add_github(directory: Path) -> None:
    """Adds GitHub's 117 tools to a workspace."""
    tools = [
        ToolSpec(tool["name"], tool.get("description"), tool["inputSchema"])
        for tool in json.loads(SCHEMAS.read_bytes())
    ]
    package = render_package("github", {"command": "none"}, tools, "unsealed")
    write_package(directory / "mcptools" / "github", package)


def add_servers(directory: Path) -> None:
    """Registers the servers for files, git and the time in a workspace."""
    package_root = directory / "mcptools"
    local_git = {"command": sys.executable, "args": ["-m", "mcp_server_git"]}
    for name, params in (("filesystem", filesystem(directory)), ("git", local_git), ("time", time_())):
        asyncio.run(generate_mcp_sources(name, params, package_root))


def cards(workspace: Path) -> list[ToolInfo]:
    """Returns the tools of a workspace as they are searched."""
    return list(mcp_cards(Library(workspace)))


def ranked(tools: Sequence[ToolInfo], queries: Sequence[Judged]) -> list[Ranked]:
    """Returns the hits for each query.

    Raises:
        ValueError: If a query is answered by a tool that no server has.
    """
    known = {str(card.name) for card in tools}
    if unknown := [f"{name} for {each.query!r}" for each in queries for name in each.answers - known]:
        raise ValueError(f"judged queries: no such tools: {', '.join(sorted(unknown))}")
    return [Ranked(each, [str(card.name) for card in search(tools, each.query)]) for each in queries]


def recall(results: Sequence[Ranked], count: int) -> float:
    """Returns the share of the queries that one of the first hits answers."""
    return sum(each.found(count) for each in results) / len(results)
