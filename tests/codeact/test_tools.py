"""What an agent reads in order to choose a tool."""

import ast
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ipybox.codeact
from ipybox.codeact import tools
from ipybox.codeact.listing import HOW, OTHERS
from ipybox.mcp_apigen.package.files import ToolSpec, render_package
from tests.codeact.conftest import COMMITS
from tests.mcp_apigen.test_package import github_tools
from tests.written_packages import write_package

#: Seconds of the processor that an overview of a large server may take.
OVERVIEW_TIME = 0.3
#: Characters that an overview may have, however many tools there are.
OVERVIEW_SIZE = 2500

COMMITS_LINE = (
    "github.commits_of_top_repos(username, top_n_repos=3, last_n_commits=5) -> list[Repo]: "
    "The latest commits of a user's repositories with most stars"
)
SEARCH_LINE = "github.search_repositories(query, page?, perPage?) [run_parsed]: Finds repositories"
LIST_LINE = "github.list_commits(owner, repo, author?, page?, perPage?): Lists the commits of a branch"


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A workspace with the tools of GitHub's server, or as many others."""
    tools = github_tools() or [ToolSpec(f"do_something_long_{n}", f"Does {n}.", {}) for n in range(117)]
    write_package(tmp_path / "mcptools" / "github", render_package("github", {"command": "x"}, tools, "seal"))
    return tmp_path


def test_the_overview_has_a_line_for_each_tool_and_gentools_first(good: Path):
    lines = tools(workspace=good).splitlines()

    assert lines[0] == "gentools (2), prefer these:"
    assert lines[1] == COMMITS_LINE
    assert lines[2].startswith("await labels.count(labels, /, *names, at_least=None, **more) -> dict[str, int]: How")
    assert lines[3] == "mcptools (4), run_parsed before run:"
    assert lines[4:6] == [LIST_LINE, SEARCH_LINE]
    assert lines[-1] == HOW


def test_an_overview_of_many_tools_is_short_and_prompt(large: Path):
    times: list[float] = []
    answer = ""
    for _ in range(3):
        started = time.process_time()
        answer = tools(workspace=large)
        times.append(time.process_time() - started)

    assert min(times) < OVERVIEW_TIME
    assert "mcptools.github 117" in answer
    assert len(answer) < OVERVIEW_SIZE


@pytest.mark.parametrize("count", [30, 100, 500])
def test_an_overview_does_not_grow_with_the_tools(good: Path, count: int):
    api = (good / COMMITS / "api.py").read_text()
    for number in range(count):
        saved = good / f"gentools/category{number % 7}/action_{number}"
        saved.mkdir(parents=True)
        (saved / "api.py").write_text(api)
        (good / f"mcptools/tracker/tool_{number}.py").write_text((good / "mcptools/tracker/ping.py").read_text())

    answer = tools(workspace=good)

    assert len(answer) < OVERVIEW_SIZE
    assert f"gentools ({count + 2})" in answer
    assert f"mcptools ({count + 4})" in answer
    assert HOW in answer


def test_an_overview_of_nothing_says_what_to_do(tmp_path: Path):
    assert tools(workspace=tmp_path).startswith("No tools yet: register an MCP server")
    assert tools("anything", workspace=tmp_path) == tools(workspace=tmp_path)


def test_a_tool_without_its_parameters_is_listed_all_the_same(good: Path):
    path = good / "mcptools/tracker/ping.py"
    path.write_text(path.read_text().replace("class Params", "class Others"))

    assert "tracker.ping(): Tells whether the tracker is up" in tools(workspace=good).splitlines()


def test_a_category_lists_its_gentools_before_the_servers_tools(good: Path):
    assert tools("github", workspace=good).splitlines() == [COMMITS_LINE, LIST_LINE, SEARCH_LINE]
    assert tools("gentools.github", workspace=good).splitlines() == [COMMITS_LINE]
    assert tools("mcptools/github", workspace=good).splitlines() == [LIST_LINE, SEARCH_LINE]
    assert len(tools("mcptools", workspace=good).splitlines()) == 4


def test_a_large_category_has_short_lines(large: Path):
    lines = tools("github", workspace=large).splitlines()

    assert len(lines) == 117
    assert max(map(len, lines)) <= 90


@pytest.mark.parametrize(
    "query",
    [
        "github.search_repositories",
        "search_repositories",
        "mcptools.github.search_repositories",
        "mcptools/github/search_repositories.py",
    ],
)
def test_a_name_shows_the_interface_of_a_servers_tool(good: Path, query: str):
    answer = tools(query, workspace=good)

    assert (
        answer
        == '''\
# mcptools/github/search_repositories.py
"""Finds repositories. Best matches first."""

class Params(Input):
    query: str
    page: int = UNSET
    perPage: int = UNSET  # Most results on a page.

def run(params: Params) -> str: ...

class Repository(BaseModel):
    name: str
    stars: int

class ParseResult(BaseModel):
    repositories: list[Repository]

def run_parsed(params: Params) -> ParseResult:
    """The repositories that were found."""

# from mcptools.github import search_repositories
# search_repositories.run_parsed(search_repositories.Params(query=…)) -> ParseResult'''
    )


def test_a_name_shows_the_interface_of_a_saved_code_action_and_not_how_it_works(good: Path):
    answer = tools("commits_of_top_repos", workspace=good)

    assert "class Commit(BaseModel):\n    sha: str\n" in answer
    assert "def run(username: str, top_n_repos: int = 3, last_n_commits: int = 5) -> list[Repo]:\n" in answer
    assert answer.endswith("# from gentools.github.commits_of_top_repos import run\n# result = run(username=…)")
    assert "impl" not in answer
    assert "_is_named" not in answer


def test_an_interface_of_an_async_action_is_called_with_await(good: Path):
    assert tools("labels.count", workspace=good).endswith("import run\n# result = await run(…)")
    assert "# await search_tickets.run_parsed_async(search_tickets.Params(query=…" in tools(
        "tracker.search_tickets", workspace=good
    )


def test_an_interface_names_properties_and_what_is_passed_by_name_only(good: Path):
    api = good / "gentools/labels/count/api.py"
    api.write_text(
        "import functools\n\nfrom pydantic import BaseModel\n\n\nclass Span(BaseModel):\n"
        "    @functools.cached_property\n    def length(self) -> int:\n        return 1\n\n    start: int\n\n\n"
        'async def run(*, first: int, last: int = 9) -> Span:\n    """Counts."""\n'
    )

    assert "count(*, first, last=9)" in tools("labels", workspace=good)
    assert "class Span(BaseModel):\n    @property\n    def length(self) -> int: ...\n    start: int" in tools(
        "labels.count", workspace=good
    )


def test_an_overview_of_saved_code_actions_alone_names_no_servers(good: Path):
    shutil.rmtree(good / "mcptools")

    overview = tools(workspace=good)

    assert overview.startswith("gentools (2), prefer these:")
    assert "mcptools" not in overview


def test_an_interface_names_what_run_returns(good: Path):
    assert tools("tracker.ping", workspace=good).endswith("# ping.run(ping.Params()) -> str")


def test_a_name_of_several_tools_lists_them(good: Path):
    (good / "mcptools/tracker/list_commits.py").write_text((good / "mcptools/github/list_commits.py").read_text())

    lines = tools("list_commits", workspace=good).splitlines()

    assert lines == ["Several tools are called list_commits:", LIST_LINE, LIST_LINE.replace("github", "tracker")]


def test_a_code_action_hides_no_tool_of_its_name(good: Path):
    (good / "gentools/github/list_commits").mkdir()
    (good / "gentools/github/list_commits/api.py").write_text((good / COMMITS / "api.py").read_text())

    answer = tools("github.list_commits", workspace=good)

    assert answer.startswith("# gentools/github/list_commits/api.py")
    assert answer.endswith('Also: tools("mcptools.github.list_commits")')
    assert tools("mcptools.github.list_commits", workspace=good).startswith("# mcptools/github/list_commits.py")


def is_best(module: str, answer: str) -> bool:
    """Whether the answer of a search shows the interface of this module."""
    package, _, tool = module.rpartition(".")
    imported = f"from {module} import run" if module.startswith("gentools") else f"from {package} import {tool}"
    return re.match(rf"{re.escape(imported)}(  #|\n)", answer) is not None


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("commits by author", "mcptools.github.list_commits"),
        ("Repository search", "mcptools.github.search_repositories"),
        ("find repos", "mcptools.github.search_repositories"),
        ("popular stars", "gentools.github.commits_of_top_repos"),
        ("AUTHOR", "mcptools.github.list_commits"),
        ("per page", "mcptools.github.search_repositories"),
        ("ticket", "mcptools.tracker.search_tickets"),
        ("is the tracker up?", "mcptools.tracker.ping"),
        ("how often labels are used", "gentools.labels.count"),
    ],
)
def test_words_find_the_tool_that_they_are_about(good: Path, query: str, best: str):
    assert is_best(best, tools(query, workspace=good))


def test_a_search_shows_a_short_interface_and_names_other_hits(good: Path):
    assert (
        tools("find repositories", workspace=good)
        == """\
from mcptools.github import search_repositories  # Finds repositories
class Params(Input):
    query: str
    page: int = UNSET
    perPage: int = UNSET  # Most results on a page.
class Repository(BaseModel):
    name: str
    stars: int
class ParseResult(BaseModel):
    repositories: list[Repository]
# search_repositories.run_parsed(search_repositories.Params(query=…)) -> ParseResult
# also: tracker.search_tickets [run_parsed], gentools.github.commits_of_top_repos, github.list_commits"""
    )


def test_a_short_interface_of_a_saved_code_action_says_what_run_does(good: Path):
    shown = tools("latest commits of popular repositories", workspace=good)

    assert is_best("gentools.github.commits_of_top_repos", shown)
    assert "import run\nclass Commit(BaseModel):\n    sha: str" in shown
    assert '"""The latest commits of a user\'s repositories with most stars.' in shown
    assert "\n# result = run(username=…)" in shown
    assert "_is_named" not in shown


def test_several_queries_are_answered_at_once_and_nothing_is_shown_twice(good: Path):
    repositories, commits = tools("find repos", workspace=good), tools("list commits", workspace=good)

    assert tools("find repos", "list commits", workspace=good) == f"{repositories}\n\n{commits}"
    assert tools("find repos", "find repos", workspace=good) == repositories


@pytest.mark.parametrize("query", ["list commits", "list the commits", "commit list"])
def test_a_listing_is_found_before_what_only_shares_its_noun(tmp_path: Path, query: str):
    commit = ToolSpec("git_commit", "Records changes to the repository. Lists nothing.", {})
    listing = ToolSpec("list_commits", "Get list of commits of a branch.", {})
    others = [ToolSpec(f"list_{noun}", f"Lists {noun}.", {}) for noun in ("tags", "branches", "releases")]
    for server, specs in (("git", [commit]), ("github", [listing, *others])):
        write_package(tmp_path / "mcptools" / server, render_package(server, {"command": "x"}, specs, "seal"))

    assert is_best("mcptools.github.list_commits", tools(query, workspace=tmp_path))


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("raise a ticket", "create_issue"),
        ("tickets", "list_issues"),
        ("show all bugs", "list_issues"),
        ("erase a ticket", "delete_issue"),
        ("unfavorite", "unstar"),
        ("mark as favorite", "star"),
        ("merge requests", "list_pull_requests"),
    ],
)
def test_what_is_done_tells_tools_for_the_same_thing_apart(tmp_path: Path, query: str, best: str):
    names = ("create_issue", "delete_issue", "get_issue", "list_issues", "star", "unstar", "list_pull_requests")
    specs = [ToolSpec(name, None, {}) for name in names]
    write_package(tmp_path / "mcptools" / "forge", render_package("forge", {"command": "x"}, specs, "seal"))

    assert is_best(f"mcptools.forge.{best}", tools(query, workspace=tmp_path))


@pytest.mark.parametrize(
    ("query", "nearest"),
    [
        ("tracker.list_commits", "github.list_commits, "),
        ("github.listcommits", "github.list_commits"),
        ("mcptools.github.get_commits", "github.list_commits"),
        ("mcptools/github/search_repos.py", "github.search_repositories"),
        ("github.top_repos", "github.commits_of_top_repos, "),
    ],
)
def test_a_name_that_no_tool_has_shows_no_interface_but_names_the_nearest(good: Path, query: str, nearest: str):
    name = query.removeprefix("mcptools").strip("./").replace("/", ".").removesuffix(".py")

    answer = tools(query, workspace=good)

    assert answer.startswith(f"No tool {name}; nearest: {nearest}")
    assert len(answer.splitlines()) == 1


def test_a_name_that_resembles_nothing_says_what_there_is(good: Path):
    assert tools("qwertz.asdf", workspace=good).startswith("No tool qwertz.asdf among: gentools.github 1, ")


def test_names_count_more_than_summaries_these_more_than_parameters_and_these_more_than_texts(tmp_path: Path):
    specs = [
        ToolSpec("a", "Says zebra.", {}),
        ToolSpec("b", None, {"properties": {"zebra": {"type": "string"}}}),
        ToolSpec("zebra", None, {}),
        ToolSpec("zebrafish", None, {}),
        ToolSpec("e", None, {"properties": {"x": {"type": "string", "description": "A zebra."}}}),
        ToolSpec("f", None, {}),
    ]
    write_package(tmp_path / "mcptools" / "zoo", render_package("zoo", {"command": "x"}, specs, "seal"))

    answer = tools("zebras, please", workspace=tmp_path)

    assert is_best("mcptools.zoo.zebra", answer)
    assert answer.endswith("\n# also: zoo.zebrafish, zoo.a, zoo.b, zoo.e")


def test_a_search_names_few_other_hits(large: Path):
    *interface, others = tools("get or do something", workspace=large).splitlines()

    assert interface[0].startswith("from mcptools.github import ")
    assert others.startswith("# also: ")
    assert others.count(",") == OTHERS - 1


def test_what_a_search_says_of_a_field_is_short(tmp_path: Path):
    said = {"type": "string", "description": "word " * 100}
    schema = {"properties": {"needed": said, "optional": said}, "required": ["needed"]}
    write_package(
        tmp_path / "mcptools" / "zoo", render_package("zoo", {"command": "x"}, [ToolSpec("zebra", None, schema)], "")
    )

    _, _, needed, optional, *_ = tools("zebras", workspace=tmp_path).splitlines()

    assert needed.startswith("    needed: str  # word word")
    assert needed.endswith("…")
    assert 60 < len(optional) < 100 < len(needed) < 150
    assert len(tools("zoo.zebra", workspace=tmp_path)) > 1000


def test_what_a_search_says_of_choices_and_optional_fields_is_what_a_caller_needs(tmp_path: Path):
    properties = {
        "plain": {"type": "string", "enum": ["asc", "desc"]},
        "dashed": {"type": "string", "enum": ["help-wanted", "stars"]},
        "spaced": {"type": "string", "enum": ["best match", "stars"]},
        "explained": {"type": "string", "description": f"What to keep. {'word ' * 20}"},
    }
    spec = ToolSpec("zebra", None, {"properties": properties})
    write_package(tmp_path / "mcptools" / "zoo", render_package("zoo", {"command": "x"}, [spec], ""))

    lines = tools("zebras", workspace=tmp_path).splitlines()

    assert lines[1:4] == [
        'Plain = Choice("asc desc")',
        'Dashed = Choice("help-wanted stars")',
        'Spaced = Choice(["best match", "stars"])',
    ]
    assert "    explained: str = UNSET  # What to keep" in lines


def test_an_interface_that_is_long_is_not_shown_unasked(tmp_path: Path):
    long = {"properties": {f"field_{number}": {"type": "string", "description": "x" * 60} for number in range(50)}}
    write_package(
        tmp_path / "mcptools" / "zoo", render_package("zoo", {"command": "x"}, [ToolSpec("zebra", "Zebras.", long)], "")
    )

    line, how = tools("zebras", workspace=tmp_path).splitlines()

    assert line.startswith("# zoo.zebra(field_0?, field_1?,")
    assert how == '# tools("mcptools.zoo.zebra") shows its interface'


def test_a_search_without_hits_says_what_there_is(good: Path):
    answer = tools("qwertz", workspace=good)

    assert answer.startswith("No tool for 'qwertz' among: gentools.github 1, gentools.labels 1, mcptools.github 2")
    assert HOW in answer


def test_no_answer_reads_how_tools_work(good: Path):
    words = ["", "secret implementation", "secret", "github", "search_repositories", "commits_of_top_repos"]

    assert not any("a secret of" in tools(word, workspace=good) for word in words)


def test_nothing_of_the_workspace_is_imported(good: Path):
    for path in good.rglob("*.py"):
        path.write_text(path.read_text() + "\nraise SystemExit('imported')\n")

    assert COMMITS_LINE in tools(workspace=good)
    assert tools("labels.count", workspace=good)


def test_everything_shown_of_real_tools_is_python(large: Path):
    names = [path.stem for path in (large / "mcptools/github").glob("*.py") if path.stem != "__init__"]
    for name in sorted(names)[::10]:
        ast.parse(tools(f"mcptools.github.{name}", workspace=large))
        ast.parse(tools(name.replace("_", " "), workspace=large))
    assert len(names) == 117


def test_exported_names_are_these():
    assert ipybox.codeact.__all__ == ["check", "suggest_parser", "tools"]
    assert set(ipybox.codeact.__all__) <= set(dir(ipybox.codeact))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(ipybox.codeact, "nothing")  # noqa: B009  pyright knows that the attribute is missing


@pytest.mark.parametrize(
    ("name", "module", "more"),
    [("tools", "listing", ["pydantic"]), ("check", "checker", []), ("suggest_parser", "suggestion", [])],
)
def test_importing_loads_nothing_heavy(tmp_path: Path, name: str, module: str, more: list[str]):
    script = f"from ipybox.codeact import {name}\nimport sys\nprint(*sys.modules)"
    run = [sys.executable, "-W", "error", "-c", script]
    loaded = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True).stdout.split()

    heavy = {"mcp", "mcp_types", "aiohttp", "asyncio", "starlette", "ipybox.mcp_apigen", "tornado", *more}
    assert heavy.isdisjoint(loaded)
    assert f"ipybox.codeact.{module}" in loaded
