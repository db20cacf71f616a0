"""A workspace in which all is well: two servers, a parser for a tool of each, and two saved code actions."""

from pathlib import Path

import pytest

from ipybox.mcp_apigen.package.files import ToolSpec, render_package
from tests.mcp_apigen import golden
from tests.written_packages import write_package

_PAGED = {"page": {"type": "integer"}, "perPage": {"type": "integer", "description": "Most results on a page."}}

GITHUB = [
    ToolSpec(
        "search_repositories",
        "Finds repositories. Best matches first.",
        {"type": "object", "required": ["query"], "properties": {"query": {"type": "string"}, **_PAGED}},
    ),
    ToolSpec(
        "list_commits",
        "Lists the commits of a branch.",
        {
            "type": "object",
            "required": ["owner", "repo"],
            "properties": {
                "owner": {"type": "string"},
                "repo": {"type": "string"},
                "author": {"type": "string", "description": "A user whose changes to look for."},
                **_PAGED,
            },
        },
    ),
]

APPENDED = '''

from pydantic import BaseModel


class Repository(BaseModel):
    name: str
    stars: int


class ParseResult(BaseModel):
    repositories: list[Repository]


def run_parsed(params: Params) -> ParseResult:
    """The repositories that were found."""
    from mcpparse.github import search_repositories as parser

    return parser.parse(run(params))
'''

PARSER = '''"""Parses what search_repositories returns: a secret of the implementation."""

import json

from mcptools.github.search_repositories import ParseResult, Repository


def parse(result: str) -> ParseResult:
    try:
        items = json.loads(result)["items"]
        return ParseResult(repositories=[Repository(name=each["name"], stars=each["stars"]) for each in items])
    except (ValueError, LookupError) as exc:
        raise ValueError(f"no repositories in {result[:100]!r}") from exc
'''

TRACKER_APPENDED = '''

from pydantic import BaseModel


class ParseResult(BaseModel):
    titles: list[str]


async def run_parsed_async(params: Params) -> ParseResult:
    """The titles of the tickets."""
    from mcpparse.tracker.search_tickets import parse

    return parse(await run_async(params))
'''

TRACKER_PARSER = """from mcptools.tracker.search_tickets import ParseResult, Result


def parse(result: Result) -> ParseResult:
    return ParseResult(titles=[ticket.title for ticket in result.tickets])
"""

API = '''"""The latest commits of somebody's most popular repositories."""

from pydantic import BaseModel, field_validator


class Commit(BaseModel):
    sha: str
    """The whole hash."""


class Repo(BaseModel):
    name: str
    commits: list[Commit]

    @field_validator("name")
    @classmethod
    def _is_named(cls, name: str) -> str:
        return name.strip()


def run(username: str, top_n_repos: int = 3, last_n_commits: int = 5) -> list[Repo]:
    """The latest commits of a user's repositories with most stars.

    Args:
        username: Whose.
        top_n_repos: How many repositories.
        last_n_commits: How many commits of each.
    """
    from . import impl

    return impl.run(username, top_n_repos, last_n_commits)
'''

IMPL = """from mcptools.github import list_commits, search_repositories

from .api import Commit, Repo


def run(username: str, top_n_repos: int, last_n_commits: int) -> list[Repo]:
    found = search_repositories.run_parsed(search_repositories.Params(query=f"user:{username}"))
    return [_repo(username, each.name, last_n_commits) for each in found.repositories[:top_n_repos]]


def _repo(owner: str, name: str, limit: int) -> Repo:
    text = list_commits.run(list_commits.Params(owner=owner, repo=name))
    return Repo(name=name, commits=[Commit(sha=sha) for sha in text.split()[:limit]])
"""

INIT = """from .api import Commit, Repo, run

__all__ = ["Commit", "Repo", "run"]
"""

ASYNC_API = '''from collections.abc import Mapping


async def run(labels: "Mapping[str, int]", /, *names: str, at_least: int | None = None, **more: str) -> dict[str, int]:
    """How often each label is used."""
    from .impl import run as counted

    return await counted(labels, *names, at_least=at_least, **more)
'''

ASYNC_IMPL = """from collections.abc import Mapping


async def run(labels: Mapping[str, int], /, *names: str, at_least: int | None, **more: str) -> dict[str, int]:
    return {**labels}
"""

ASYNC_INIT = """from .api import run

__all__ = ["run"]
"""

SEARCH = "mcptools/github/search_repositories.py"
SEARCH_PARSER = "mcpparse/github/search_repositories.py"
COMMITS = "gentools/github/commits_of_top_repos"


def make_workspace(root: Path) -> Path:
    """Puts into a directory what was generated, and what an agent has saved there."""
    for server, tools in (("github", GITHUB), ("tracker", golden.TOOLS)):
        write_package(root / "mcptools" / server, render_package(server, {"command": "x"}, tools, "seal"))
    append(root / SEARCH, APPENDED)
    append(root / "mcptools/tracker/search_tickets.py", TRACKER_APPENDED)
    files = {
        SEARCH_PARSER: PARSER,
        "mcpparse/tracker/search_tickets.py": TRACKER_PARSER,
        f"{COMMITS}/__init__.py": INIT,
        f"{COMMITS}/api.py": API,
        f"{COMMITS}/impl.py": IMPL,
        "gentools/labels/count/__init__.py": ASYNC_INIT,
        "gentools/labels/count/api.py": ASYNC_API,
        "gentools/labels/count/impl.py": ASYNC_IMPL,
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A workspace in which all is well, for a test to spoil."""
    return make_workspace(tmp_path)
