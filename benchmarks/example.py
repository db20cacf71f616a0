"""The documented example as a model does it, by one means or another: scripts for `tests.claude.api`.

A script is a turn for each tool use, by what its result is. The answer, which is the same for all, comes on top.
"""

import json
import re
from collections.abc import Callable, Sequence

from tests.claude.api import Block, Request, Turn, text, tool

OWNER, REPOSITORIES, COMMITS = "torvalds", 3, 5

PROMPT = (
    f"Show the latest {COMMITS} commits of the {REPOSITORIES} repositories of {OWNER} with the most stars: "
    "name, stars, first lines of the messages, links."
)

#: Name of the server, of the plugin, and of the two tools of the example on that server.
SERVER, PLUGIN = "github", "codeact-default"
SEARCH, LIST = "search_repositories", "list_commits"

#: Link to a commit.
LINK = re.compile(rf"/{OWNER}/[\w-]+/commit/[0-9a-f]{{40}}")

#: Verb and noun, as the skill says: each search shows the interface of its best hit.
FIND_TOOLS = """
from ipybox.codeact import tools
print(tools("search repositories"))
print(tools("list commits"))
"""
ACT = f"""
import json
from mcptools.{SERVER} import {LIST}, {SEARCH} as search
found = search.run_parsed(search.Params(query="user:{OWNER}", sort=search.Sort.stars, perPage={REPOSITORIES}))
for repo in found.repositories:
    print(repo.name, repo.stars)
    commits = {LIST}.run({LIST}.Params(owner="{OWNER}", repo=repo.name, perPage={COMMITS}))
    for commit in json.loads(commits):
        print(" ", commit["commit"]["message"].partition("\\n")[0], commit["html_url"])
"""

FIND_SAVED = """
from ipybox.codeact import tools
print(tools("latest commits of top repositories"))
"""
USE_SAVED = f"""
from gentools.{SERVER}.commits_of_top_repos import run
for repo in run("{OWNER}", top_n_repos={REPOSITORIES}, last_n_commits={COMMITS}):
    print(repo.name, repo.stars)
    for commit in repo.commits:
        print(" ", commit.message, commit.url)
"""

Script = dict[str, Turn]


def json_tools() -> Script:
    """Returns the script of a model that is given the server's tools."""
    return {"repositories": [_search()], "commits": _list_commits}


def json_tools_in_turn() -> Script:
    """Returns the script of a model that uses one tool at a time."""
    repositories: list[str] = []

    def first(request: Request) -> Sequence[Block]:
        repositories.extend(_names(request))
        return [_commits(repositories[0])]

    def later(number: int) -> Turn:
        return lambda _: [_commits(repositories[number])]

    others: Script = {f"commits {number + 1}": later(number) for number in range(1, REPOSITORIES)}
    return {"repositories": [_search()], "commits 1": first, **others}


def tool_search() -> Script:
    """Returns the same for a client that defers definitions until the model asks for them."""
    names = ",".join(f"mcp__{SERVER}__{name}" for name in (SEARCH, LIST))
    return {
        "tool search": [tool("ToolSearch", query=f"select:{names}")],
        "repositories": _then(_search()),
        "commits": _list_commits,
    }


def code() -> Script:
    """Returns the script of a model that follows the skill, in a workspace where the server is registered."""
    return {
        "skill": [_skill()],
        "search": _then(_cell(FIND_TOOLS)),
        "action": _then(_cell(ACT), found=(f"mcptools/{SERVER}/{SEARCH}.py", f"mcptools/{SERVER}/{LIST}.py")),
    }


def code_and_files(package: str) -> Script:
    """Returns the same for a model that reads files instead of asking `tools()`.

    Args:
        package: The directory of the server's package.
    """
    interfaces = [tool("Read", file_path=f"{package}/{name}.py") for name in (SEARCH, LIST)]
    return {
        "skill": [_skill()],
        "list": _then(tool("Bash", command="ls mcptools"), tool("Read", file_path=f"{package}/__init__.py")),
        "interfaces": _then(*interfaces, found=(SEARCH, LIST)),
        "action": _then(_cell(ACT)),
    }


def saved_action() -> Script:
    """Returns the script of a later session, in which there is a saved code action that does it all."""
    return {
        "skill": [_skill()],
        "search": _then(_cell(FIND_SAVED)),
        "action": _then(_cell(USE_SAVED), found=(f"gentools/{SERVER}/commits_of_top_repos/api.py",)),
    }


def answer(request: Request) -> list[Block]:
    """Answers, having made sure that all that the user asked for is there."""
    _succeeded(request)
    links = set(LINK.findall(json.dumps(request.body["messages"])))
    assert len(links) == REPOSITORIES * COMMITS, f"these commits were found: {links}"
    return [text("Here they are.")]


def _search() -> Block:
    return tool(SEARCH, query=f"user:{OWNER}", sort="stars", perPage=REPOSITORIES)


def _list_commits(request: Request) -> Sequence[Block]:
    """Asks for the commits of all repositories in one turn."""
    return [_commits(name) for name in _names(request)]


def _commits(repository: str) -> Block:
    return tool(LIST, owner=OWNER, repo=repository, perPage=COMMITS)


def _names(request: Request) -> list[str]:
    return [repository["name"] for repository in json.loads(request.result)["items"]]


def _skill() -> Block:
    return tool("Skill", skill=f"{PLUGIN}:codeact")


def _cell(code: str) -> Block:
    return tool("execute_ipython_cell", code=code.strip())


def _then(*blocks: Block, found: Sequence[str] = ()) -> Callable[[Request], Sequence[Block]]:
    """Returns a turn for when the tools of the one before have succeeded, and have shown what is needed."""

    def turn(request: Request) -> Sequence[Block]:
        _succeeded(request)
        shown = "\n".join(result.text for result in request.results)
        for name in found:
            assert re.search(rf"\b{name}\b", shown), f"{name} is not among what was found: {shown}"
        return blocks

    return turn


def _succeeded(request: Request) -> None:
    failed = [result.text for result in request.results if result.is_error]
    assert not failed, f"tools failed: {failed}"
