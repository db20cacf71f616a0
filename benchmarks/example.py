"""What users ask for, and how a model does it by one means or another: scripts for `tests.claude.api`.

A script is a turn for each use of tools, by what its result is, and the answer. A turn uses only what the results
before it have shown, and fails where they have not.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tests.claude.api import Block, Request, Turn, text, tool

#: Name of the server, of the plugin, and of the two tools of the example on that server.
SERVER, PLUGIN = "github", "codeact-default"
SEARCH, LIST = "search_repositories", "list_commits"

Script = dict[str, Turn]


@dataclass(frozen=True)
class Printed:
    """What a cell prints that has all that the user asked for: the pattern matches once for each part of the answer."""

    pattern: re.Pattern[str]
    parts: int


@dataclass(frozen=True)
class Task:
    """What a user asks for.

    Attributes:
        prompt: What the user says.
        owner: Whose repositories.
        repositories: How many of those with the most stars.
        commits: How many of the latest commits of each; 0 if the repositories themselves suffice.
        act: The cell of a model that has seen the interfaces.
        printed: What the cell prints.
    """

    prompt: str
    owner: str
    repositories: int
    commits: int
    act: str
    printed: Printed

    @property
    def queries(self) -> tuple[str, ...]:
        """What the model searches for: a verb and a noun per step."""
        return ("search repositories", "list commits") if self.commits else ("search repositories",)


def _find(owner: str, repositories: int) -> str:
    """Returns the lines of a cell that find repositories with the output parser."""
    return f"""
import json
from mcptools.{SERVER} import {LIST}, {SEARCH} as search
found = search.run_parsed(search.Params(query="user:{owner}", sort="stars", perPage={repositories}))
"""


#: The documented example.
DOCUMENTED = Task(
    prompt="Show the latest 5 commits of the 3 repositories of torvalds with the most stars: name, stars, first lines "
    "of the messages, links.",
    owner="torvalds",
    repositories=3,
    commits=5,
    act=_find("torvalds", 3)
    + f"""
for repo in found.repositories:
    print(repo.name, repo.stargazers_count)
    commits = {LIST}.run({LIST}.Params(owner="torvalds", repo=repo.name, perPage=5))
    for commit in json.loads(commits):
        print(" ", commit["commit"]["message"].partition("\\n")[0], commit["html_url"])
""",
    printed=Printed(re.compile(r"/torvalds/[\w-]+/commit/[0-9a-f]{40}"), 15),
)

#: Results that only code needs to read: the user wants to know three names.
LOOP = Task(
    prompt="Who made the most of the latest 5 commits of each of the 30 repositories of octocat with the most stars? "
    "Name all authors with their numbers.",
    owner="octocat",
    repositories=30,
    commits=5,
    act=_find("octocat", 30)
    + f"""
from collections import Counter
authors = Counter()
for repo in found.repositories:
    commits = {LIST}.run({LIST}.Params(owner="octocat", repo=repo.name, perPage=5))
    authors.update(commit["commit"]["author"]["name"] for commit in json.loads(commits))
print(authors.most_common())
""",
    printed=Printed(re.compile(r"'(?:Octocat|Ada Example|Bo Sample)', \d+"), 3),
)

#: One call whose result is short: there is nothing for code to save.
ONE_CALL = Task(
    prompt="How many stars has the repository of torvalds with the most stars?",
    owner="torvalds",
    repositories=1,
    commits=0,
    act=f"""
from mcptools.{SERVER} import {SEARCH} as search
found = search.run_parsed(search.Params(query="user:torvalds", sort="stars", perPage=1))
print(found.repositories[0].name, found.repositories[0].stargazers_count)
""",
    printed=Printed(re.compile(r"\blinux \d{6}"), 1),
)

#: Looks at a part of a result before acting on it, as where a model does not know what the tool returns.
LOOK = f"""
from mcptools.{SERVER} import {LIST}
print({LIST}.run({LIST}.Params(owner="torvalds", repo="linux", perPage=1))[:500])
"""

USE_SAVED = f"""
from gentools.{SERVER}.commits_of_top_repos import run
for repo in run("torvalds", top_n_repos=3, last_n_commits=5):
    print(repo.name, repo.stars)
    for commit in repo.commits:
        print(" ", commit.message, commit.url)
"""


def json_tools(task: Task) -> Script:
    """Returns the script of a model that is given the server's tools."""
    repositories: Script = {"repositories": [_search(task)]}
    if not task.commits:
        return repositories | {"answer": then(ANSWER, found=[r'"name": ?"linux"'])}
    return repositories | {"commits": partial(_list_commits, task), "answer": partial(_answer_from_commits, task)}


def tool_search(task: Task) -> Script:
    """Returns the same for a client that defers definitions until the model asks for them."""
    needed = (SEARCH, LIST) if task.commits else (SEARCH,)
    names = ",".join(f"mcp__{SERVER}__{name}" for name in needed)
    script = json_tools(task)
    return {
        "tool search": [tool("ToolSearch", query=f"select:{names}")],
        **script,
        "repositories": then(_search(task)),
    }


def code(task: Task) -> Script:
    """Returns the script of a model that follows the server's instructions, where the server is registered."""
    return {"search": [cell(_find_tools(task))], "action": _acts(task), "answer": answers(task.printed)}


def code_with_skill(task: Task) -> Script:
    """Returns the same for a model that loads the skill first, as where the user asks for it."""
    return {
        "skill": [tool("Skill", skill=f"{PLUGIN}:codeact")],
        **code(task),
        "search": then(cell(_find_tools(task))),
    }


def code_with_look(task: Task) -> Script:
    """Returns the same for a model that looks at a result before it acts."""
    script = code(task)
    return {
        "search": script["search"],
        "look": then(cell(LOOK), found=_interfaces(task)),
        "action": then(cell(task.act), found=["html_url"]),
        "answer": script["answer"],
    }


ANSWER = text("Here they are.")


def _find_tools(task: Task) -> str:
    queries = ", ".join(f'"{query}"' for query in task.queries)
    return f"from ipybox.codeact import tools\nprint(tools({queries}))"


def _interfaces(task: Task) -> list[str]:
    """What the model must have seen in order to write the cell."""
    seen = [f"from mcptools.{SERVER} import {SEARCH}", r"run_parsed\(", "query: str", "sort: Sort", "perPage: float"]
    if task.commits:
        seen += ["repositories: list", f"from mcptools.{SERVER} import {LIST}", "owner: str", "repo: str", r"-> str"]
    return [*seen, "name: str", "stargazers_count: int"]


def _acts(task: Task) -> Turn:
    return then(cell(task.act), found=_interfaces(task))


def answers(printed: Printed) -> Turn:
    """Answers, having made sure that the cell has printed all that the user asked for."""

    def turn(request: Request) -> Sequence[Block]:
        succeeded(request)
        parts = set(printed.pattern.findall(_shown(request)))
        assert len(parts) == printed.parts, f"these were printed: {parts}"
        return [ANSWER]

    return turn


def _answer_from_commits(task: Task, request: Request) -> list[Block]:
    """Answers, having made sure that the commits of all repositories have been shown."""
    succeeded(request)
    links = set(re.findall(r"/commit/([0-9a-f]{40})", json.dumps(request.body["messages"])))
    assert len(links) == task.repositories * task.commits, f"these commits were found: {links}"
    return [ANSWER]


def _search(task: Task) -> Block:
    return tool(SEARCH, query=f"user:{task.owner}", sort="stars", perPage=task.repositories)


def _list_commits(task: Task, request: Request) -> Sequence[Block]:
    """Asks for the commits of all repositories in one turn."""
    return [_commits(task, name) for name in _names(request)]


def _commits(task: Task, repository: str) -> Block:
    return tool(LIST, owner=task.owner, repo=repository, perPage=task.commits)


def _names(request: Request) -> list[str]:
    return [repository["name"] for repository in json.loads(request.result)["items"]]


def cell(code: str) -> Block:
    return tool("execute_ipython_cell", code=code.strip())


def then(*blocks: Block, found: Sequence[str] = ()) -> Turn:
    """Returns a turn for when the tools of the one before have succeeded, and have shown what is needed."""

    def turn(request: Request) -> Sequence[Block]:
        succeeded(request)
        for pattern in found:
            assert re.search(pattern, _shown(request)), f"{pattern} is not in what was shown: {_shown(request)}"
        return blocks

    return turn


def _shown(request: Request) -> str:
    return "\n".join(result.text for result in request.results)


def succeeded(request: Request) -> None:
    failed = [result.text for result in request.results if result.is_error]
    assert not failed, f"tools failed: {failed}"
