"""The documented example, as a model does it that follows the skill to the letter: two scripts for two sessions.

Every step looks at what the client has sent for the one before. The Python of saved files is what the skill's pages
show, cut out of what the client's Read tool has sent.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import github_server
from tests.claude.api import Block, Request, Turn, text, tool
from tests.claude.conftest import Installed
from tests.servers import filesystem

#: In the workspace's .env, and nowhere else.
TOKEN = "secret-of-the-workspace"

OWNER = "octocat"

#: Prints what the saved code action returns, as JSON.
USE_GENTOOL = f"""
import json
from gentools.github.commits_of_top_repos import run
print(json.dumps([repo.model_dump() for repo in run({OWNER!r}, top_n_repos=2, last_n_commits=3)]))
"""

FIRST_ACTION = f"""
import json
from mcptools.github import list_commits, search_repositories
params = search_repositories.Params(query="user:{OWNER}", sort=search_repositories.Sort.stars, perPage=1)
repo = json.loads(search_repositories.run(params))["items"][0]["name"]
commits = json.loads(list_commits.run(list_commits.Params(owner="{OWNER}", repo=repo, perPage=3)))
print(repo, *(commit["sha"] for commit in commits))
"""

CHAINED_ACTION = f"""
from mcptools.github import list_commits, search_repositories
params = search_repositories.Params(query="user:{OWNER}", sort=search_repositories.Sort.stars, perPage=2)
for repo in search_repositories.run_parsed(params).repositories:
    print(repo.name, len(json.loads(list_commits.run(list_commits.Params(owner="{OWNER}", repo=repo.name, perPage=4)))))
"""

WRITE_FILE = """
from pathlib import Path
from mcptools.other import write_file
print(write_file.run(write_file.Params(path=str(Path("note.txt").resolve()), content="from npm's server")))
"""

TELL_TIME = """
from mcptools.other import get_current_time
print(get_current_time.run(get_current_time.Params(timezone="UTC")).timezone)
"""


def top_repositories(count: int) -> list[github_server.Repository]:
    """Returns the repositories with the most stars, as the server has them."""
    return sorted(github_server.repositories(OWNER), key=lambda repository: -repository.stars)[:count]


@dataclass
class Example:
    """What two sessions with a plugin do in a workspace, with a server behind a URL."""

    installed: Installed
    workspace: Path
    url: str
    skill: Path = field(init=False)
    generated: str = ""
    """What is in the module of the tool that gets a parser, before."""

    def __post_init__(self) -> None:
        self.skill = self.installed.home.plugin_root(self.installed.plugin) / "skills" / "codeact"
        (self.workspace / ".env").write_text(f"GITHUB_API_KEY={TOKEN}\n")

    @property
    def tool_module(self) -> Path:
        return self.workspace / "mcptools" / "github" / "search_repositories.py"

    @property
    def gentool(self) -> Path:
        return self.workspace / "gentools" / "github" / "commits_of_top_repos"

    @property
    def other_server(self) -> tuple[dict[str, Any], str, str, str]:
        """A server that others have made, started where the plugin runs it: a tool of it, and a use with its result.

        In the container it is one that the image has: what npx downloads may come too late.
        """
        if self.installed.plugin == "codeact-docker":
            return {"command": "python", "args": ["-m", "mcp_server_time"]}, "get_current_time", TELL_TIME, "UTC"
        return filesystem(self.workspace), "write_file", WRITE_FILE, "Successfully wrote"

    def first_session(self) -> list[Turn]:
        """Loads the skill, registers servers, acts, makes an output parser and saves a code action."""
        return [
            [tool("Skill", skill=f"{self.installed.plugin}:codeact")],
            self.registers_servers,
            self.lists_tools,
            self.reads_interfaces,
            self.acts,
            self.reads_how_to_parse,
            self.writes_parser,
            self.resets,
            self.chains_tools,
            self.reads_how_to_save,
            self.saves_code_action,
            self.checks,
            then("ok: 1 gentool, 1 parser", text("Saved.")),
        ]

    def second_session(self) -> list[Turn]:
        """Finds the saved code action and uses it."""
        return [
            [
                tool("execute_ipython_cell", code="from ipybox.codeact import tools\nprint(tools('commits'))"),
                tool("Bash", command="ls gentools/github"),
            ],
            self.reads_saved_interface,
            then("def run(username: str, top_n_repos: int = 3", tool("execute_ipython_cell", code=USE_GENTOOL)),
            self.reports,
        ]

    def registers_servers(self, request: Request) -> list[Block]:
        loaded = "\n".join(block["text"] for block in request.news if block["type"] == "text")
        assert f"Base directory for this skill: {self.skill}" in loaded
        assert "# Code actions" in loaded
        params = {"url": self.url, "headers": {"Authorization": "Bearer ${GITHUB_API_KEY}"}}
        other, *_ = self.other_server
        return [
            tool("register_mcp_server", server_name="github", server_params=params),
            tool("register_mcp_server", server_name="other", server_params=other),
        ]

    def lists_tools(self, request: Request) -> list[Block]:
        github, other = request.results
        assert (github.is_error, github.text.split()) == (False, ["search_repositories", "list_commits"]), github.text
        assert not other.is_error, other.text
        assert self.other_server[1] in other.text.split()
        return [
            tool("Bash", command="ls mcptools mcptools/github"),
            tool("Read", file_path=str(self.workspace / "mcptools" / "github" / "__init__.py")),
        ]

    def reads_interfaces(self, request: Request) -> list[Block]:
        listed, described = request.results
        assert {"github", "other", "search_repositories.py", "list_commits.py"} <= set(listed.text.split())
        assert "search_repositories: Searches the repositories" in described.text
        self.generated = self.tool_module.read_text()
        return [
            tool("Read", file_path=str(self.tool_module)),
            tool("Read", file_path=str(self.tool_module.with_name("list_commits.py"))),
        ]

    def acts(self, request: Request) -> list[Block]:
        for result in request.results:
            assert "class Params(Input):" in result.text
        return [
            tool("execute_ipython_cell", code=FIRST_ACTION),
            tool("execute_ipython_cell", code=self.other_server[2]),
        ]

    def reads_how_to_parse(self, request: Request) -> list[Block]:
        github, other = request.results
        (top,) = top_repositories(1)
        assert github.text.split() == [top.name, *(commit.sha for commit in top.commits[:3])]
        assert self.other_server[3] in other.text
        return [tool("Read", file_path=str(self.skill / "references" / "output-parsers.md"))]

    def writes_parser(self, request: Request) -> list[Block]:
        _, type_, parser, _ = python_blocks(request.result)
        end = "\n".join(self.generated.splitlines()[-2:])
        assert self.generated.count(end) == 1
        appended = {"old_string": end, "new_string": end + "\n" + type_}
        return [
            tool("Edit", file_path=str(self.tool_module), **appended),
            tool("Write", file_path=str(self.workspace / "mcpparse/github/search_repositories.py"), content=parser),
        ]

    def resets(self, request: Request) -> list[Block]:
        assert not any(result.is_error for result in request.results), request.results
        assert self.tool_module.read_text().startswith(self.generated)
        return [tool("reset")]

    def chains_tools(self, request: Request) -> list[Block]:
        assert not any(result.is_error for result in request.results), request.results
        return [tool("execute_ipython_cell", code="assert 'repo' not in globals()\nimport json\n" + CHAINED_ACTION)]

    def reads_how_to_save(self, request: Request) -> list[Block]:
        printed = [line.split() for line in request.result.splitlines() if line]
        assert printed == [[repository.name, "4"] for repository in top_repositories(2)]
        return [tool("Read", file_path=str(self.skill / "references" / "saving-codeacts.md"))]

    def saves_code_action(self, request: Request) -> list[Block]:
        api, impl, init, _ = python_blocks(request.result)
        files = {"api.py": api, "impl.py": impl, "__init__.py": init}
        return [tool("Write", file_path=str(self.gentool / name), content=content) for name, content in files.items()]

    def checks(self, request: Request) -> list[Block]:
        assert not any(result.is_error for result in request.results), request.results
        return [tool("execute_ipython_cell", code="from ipybox.codeact import check\nprint(check())")]

    def reads_saved_interface(self, request: Request) -> list[Block]:
        found, listed = request.results
        assert "commits_of_top_repos" in found.text
        assert listed.text.split() == ["commits_of_top_repos"]
        return [tool("Read", file_path=str(self.gentool / "api.py"))]

    def reports(self, request: Request) -> list[Block]:
        repositories = json.loads(request.result)
        assert [repository["name"] for repository in repositories] == [top.name for top in top_repositories(2)]
        for repository, top in zip(repositories, top_repositories(2), strict=True):
            assert repository["stars"] == top.stars
            messages = [commit.message.partition("\n")[0] for commit in top.commits[:3]]
            assert [commit["message"] for commit in repository["commits"]] == messages
        return [text("Here they are.")]


def then(expected: str, *blocks: Block) -> Callable[[Request], list[Block]]:
    """Returns a turn that looks for a text in the result of the only tool."""

    def turn(request: Request) -> list[Block]:
        assert expected in request.result, request.result
        return [*blocks]

    return turn


def python_blocks(read: str) -> list[str]:
    """Returns the Python of a page, of which the Read tool has numbered the lines."""
    page = re.sub(r"^ *\d+[→\t]", "", read, flags=re.MULTILINE)
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
