"""What an agent reads in order to choose a tool."""

import ast
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ipybox.codeact
from ipybox.codeact import tools
from ipybox.codeact.listing import HITS, HOW
from ipybox.mcp_apigen.generator import write_package
from ipybox.mcp_apigen.package import ToolSpec, render_package
from tests.codeact.conftest import COMMITS
from tests.mcp_apigen.test_package import github_tools

#: Seconds that an overview of a large server may take.
OVERVIEW_TIME = 0.15
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

    assert lines[0] == "gentools (2), to be preferred:"
    assert lines[1] == COMMITS_LINE
    assert lines[2].startswith("await labels.count(labels, /, *names, at_least=None, **more) -> dict[str, int]: How")
    assert lines[3] == "mcptools (4), run_parsed before run:"
    assert lines[4:6] == [LIST_LINE, SEARCH_LINE]
    assert lines[-1] == HOW


def test_an_overview_of_many_tools_is_short_and_prompt(large: Path):
    times: list[float] = []
    answer = ""
    for _ in range(3):
        started = time.perf_counter()
        answer = tools(workspace=large)
        times.append(time.perf_counter() - started)

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

# from mcptools.github.search_repositories import Params, run_parsed
# result = run_parsed(Params(query=…))'''
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
    assert "# result = await run_parsed_async(Params(query=…" in tools("tracker.search_tickets", workspace=good)


def test_a_tool_without_a_parser_tells_its_async_form(good: Path):
    assert tools("tracker.ping", workspace=good).endswith(
        "# result = run(Params()); run_async(params) is the same, awaited"
    )


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


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("commits by author", "github.list_commits: "),
        ("Repository search", "github.search_repositories [run_parsed]: "),
        ("popular stars", "github.commits_of_top_repos("),
        ("AUTHOR", "github.list_commits: "),
        ("per page", "github.search_repositories [run_parsed]: "),
        ("ticket", "tracker.search_tickets [run_parsed]: "),
        ("is the tracker up?", "tracker.ping: "),
        ("labels", "await labels.count("),
    ],
)
def test_words_find_the_tool_that_they_are_about(good: Path, query: str, first: str):
    assert tools(query, workspace=good).startswith(first)


def test_names_count_more_than_parameters_and_these_more_than_texts(tmp_path: Path):
    specs = [
        ToolSpec("a", "Says zebra.", {}),
        ToolSpec("b", None, {"properties": {"zebra": {"type": "string"}}}),
        ToolSpec("zebra", None, {}),
        ToolSpec("zebrafish", None, {}),
        ToolSpec("e", None, {"properties": {"x": {"type": "string", "description": "A zebra."}}}),
        ToolSpec("f", None, {}),
    ]
    write_package(tmp_path / "mcptools" / "zoo", render_package("zoo", {"command": "x"}, specs, "seal"))

    hits, _, best = tools("zebras, please", workspace=tmp_path).partition("\n\n")

    names = [re.split("[: ]", line)[0] for line in hits.splitlines()]
    assert names == ["zoo.zebra", "zoo.zebrafish", "zoo.b", "zoo.a", "zoo.e"]
    assert best.startswith("# mcptools/zoo/zebra.py\n")


@pytest.mark.parametrize("others", [[], [f"by_the_number_of_{number}" for number in range(8)]], ids=["few", "many"])
def test_values_of_parameters_are_searched(tmp_path: Path, others: list[str]):
    order = {"properties": {"order": {"type": "string", "enum": ["oldest", "newest", *others]}}}
    specs = [ToolSpec("a", None, {}), ToolSpec("b", None, order)]
    write_package(tmp_path / "mcptools" / "zoo", render_package("zoo", {"command": "x"}, specs, "seal"))

    assert tools("newest", workspace=tmp_path).startswith("zoo.b\n\n# mcptools/zoo/b.py\n")


def test_a_search_has_few_hits(large: Path):
    hits, _, best = tools("get the things of it", workspace=large).partition("\n\n")

    assert len(hits.splitlines()) == HITS + 1
    assert best.startswith("# mcptools/github/")


def test_an_interface_that_is_long_is_not_shown_unasked(tmp_path: Path):
    long = {"properties": {f"field_{number}": {"type": "string", "description": "x" * 60} for number in range(50)}}
    write_package(
        tmp_path / "mcptools" / "zoo", render_package("zoo", {"command": "x"}, [ToolSpec("zebra", "Zebras.", long)], "")
    )

    assert tools("zebras", workspace=tmp_path) == "zoo.zebra: Zebras"


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
    assert len(names) == 117


def test_exported_names_are_these():
    assert ipybox.codeact.__all__ == ["check", "tools"]
    assert set(ipybox.codeact.__all__) <= set(dir(ipybox.codeact))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(ipybox.codeact, "nothing")  # noqa: B009  pyright knows that the attribute is missing


@pytest.mark.parametrize(("name", "more"), [("tools", ["pydantic"]), ("check", [])])
def test_importing_loads_nothing_heavy(tmp_path: Path, name: str, more: list[str]):
    script = f"from ipybox.codeact import {name}\nimport sys\nprint(*sys.modules)"
    run = [sys.executable, "-W", "error", "-c", script]
    loaded = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True).stdout.split()

    heavy = {"mcp", "mcp_types", "aiohttp", "asyncio", "starlette", "ipybox.mcp_apigen", "tornado", *more}
    assert heavy.isdisjoint(loaded)
    assert f"ipybox.codeact.{'listing' if name == 'tools' else 'verdict'}" in loaded
