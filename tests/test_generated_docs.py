"""The example in `docs/generated/` is what ipybox generates, and all three kinds of it work against the stand-in."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mcp import Client
from mcp_types import TextContent

from docs import generate
from ipybox import CodeExecutionError, CodeExecutor, generate_mcp_sources
from ipybox.errors import MCPServerError
from tests.conftest import Mode
from tests.github_server import listed, make_server
from tests.servers import ROOT, WAIT

GENERATED = ROOT / "docs" / "generated"
PACKAGE = GENERATED / "mcptools" / "github"
STAND_IN = ROOT / "tests" / "github_server.py"
SERVER: dict[str, Any] = {"command": sys.executable, "args": [str(STAND_IN)]}

in_module_loop = pytest.mark.asyncio(loop_scope="module")


def cells(page: Path) -> list[tuple[str, str]]:
    """Returns the cells of a page, each with the output that is shown for it, if any."""
    pattern = r"^```python\n(.*?)^```$(?:\n+(?:[^`#\n][^\n]*\n\n)?^```text\n(.*?)^```$)?"
    return re.findall(pattern, page.read_text(), re.MULTILINE | re.DOTALL)


#: Those of the four prompts.
PLUGIN_CELLS = cells(ROOT / "docs" / "claude-code.md")


def appended_part() -> str:
    """What an agent has appended to the tool module."""
    original = (PACKAGE / "search_repositories_orig.py").read_text()
    return (PACKAGE / "search_repositories.py").read_text().removeprefix(original)


def texts(package: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in package.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    """The files of the package as ipybox generates them now."""
    return asyncio.run(generate.generate())


@pytest.fixture
def rebuild(generated: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The program that rebuilds the package, whose server is asked once for all tests."""

    async def once() -> dict[str, str]:
        return generated

    def run(*options: str) -> int:
        monkeypatch.setattr(sys, "argv", ["generate.py", *options])
        return generate.main()

    monkeypatch.setattr(generate, "generate", once)
    return run


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, to change it."""
    return shutil.copytree(PACKAGE, tmp_path / "github", ignore=shutil.ignore_patterns("__pycache__"))


async def ask(tool: str, **arguments: Any) -> Any:
    """What the stand-in says to a plain client, decoded."""
    async with asyncio.timeout(WAIT), Client(make_server(listed(None, None)), mode="legacy") as client:
        content = (await client.call_tool(tool, arguments)).content[0]
    assert isinstance(content, TextContent)
    return json.loads(content.text)


async def most_starred(user: str, number: int) -> list[dict[str, Any]]:
    """A user's repositories with the most stars; sorted here, not by the server."""
    found = await ask("search_repositories", query=f"user:{user}", perPage=100)
    assert len(found["items"]) == found["total_count"]
    return sorted(found["items"], key=lambda item: item["stargazers_count"], reverse=True)[:number]


async def whole_history(owner: str, name: str) -> list[dict[str, Any]]:
    """A repository's commits, newest first; sorted here, not by the server."""
    commits = await ask("list_commits", owner=owner, repo=name, perPage=100)
    assert len(commits) < 100
    return sorted(commits, key=lambda commit: commit["commit"]["author"]["date"], reverse=True)


@asynccontextmanager
async def http_stand_in(*options: str) -> AsyncGenerator[str]:
    """The stand-in behind a URL, which is yielded when it listens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(STAND_IN), "--http", *options, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WAIT):
            yield (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()


def test_example_is_up_to_date():
    command = [sys.executable, generate.__file__, "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert checked.returncode == 0, checked.stderr


def test_check_names_what_differs_and_the_mend_and_writes_nothing(
    package: Path, rebuild: Callable[..., int], capsys: pytest.CaptureFixture[str]
):
    with (package / ".ipybox.json").open("a") as manifest:
        manifest.write("\n")
    (package / "old_tool.py").write_text("")
    before = texts(package)

    assert rebuild("--check", "--package", str(package)) == 1
    assert "not up to date: .ipybox.json, old_tool.py. Run `make docs`" in capsys.readouterr().err
    assert texts(package) == before


def test_rebuilding_brings_what_was_generated_up_to_date_and_keeps_what_was_appended(
    package: Path, rebuild: Callable[..., int]
):
    for path in package.glob("*.py"):
        path.write_text(f"# from an older generator\n{path.read_text()}")

    assert rebuild("--package", str(package)) == 0
    assert texts(package) == texts(PACKAGE)


def test_module_that_is_extended_gets_its_original_beside_it(package: Path, rebuild: Callable[..., int]):
    (package / "search_repositories_orig.py").unlink()

    assert rebuild("--package", str(package)) == 0
    assert texts(package) == texts(PACKAGE)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("search_repositories", "append the parser to that text", id="original_differs"),
        pytest.param("lost_tool", "the server has no tool for lost_tool.py", id="tool_is_gone"),
    ],
)
def test_rebuilding_stops_where_it_would_lose_what_was_appended(
    name: str, message: str, package: Path, rebuild: Callable[..., int], capsys: pytest.CaptureFixture[str]
):
    (package / f"{name}_orig.py").write_text("# something else\n")
    before = texts(package)

    assert rebuild("--package", str(package)) == 1
    assert message in capsys.readouterr().err
    assert texts(package) == before


async def test_registering_the_server_gives_the_modules_that_are_shown(tmp_path: Path):
    await generate_mcp_sources("github", SERVER, tmp_path)
    registered = texts(tmp_path / "github")
    shown = texts(PACKAGE)
    shown["search_repositories.py"] = shown.pop("search_repositories_orig.py")

    assert registered.keys() == shown.keys()
    differing = {name for name in shown if registered[name] != shown[name]}
    assert differing == {"__init__.py", ".ipybox.json"}, "the parameters differ, and so does their hash"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def example(tmp_path_factory: pytest.TempPathFactory, mode: Mode, shared: None) -> AsyncIterator[CodeExecutor]:
    """An executor in a workspace that has the example, with the stand-in registered for real."""
    workspace = tmp_path_factory.mktemp(f"example_{mode}")
    for kind in ("mcpparse", "gentools"):
        shutil.copytree(GENERATED / kind, workspace / kind, ignore=shutil.ignore_patterns("__pycache__"))
    await generate_mcp_sources("github", SERVER, workspace / "mcptools")
    with (workspace / "mcptools" / "github" / "search_repositories.py").open("a") as module:
        module.write(appended_part())
    async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox) as executor:
        yield executor


async def printed(executor: CodeExecutor, code: str) -> Any:
    """What code prints as JSON."""
    return json.loads((await executor.execute(f"import json\n{code}", timeout=WAIT)).text or "")


@in_module_loop
async def test_tools_of_the_example_return_json_that_can_be_chained(example: CodeExecutor):
    code = """
from mcptools.github import list_commits, search_repositories as search
found = json.loads(search.run(search.Params(query="user:torvalds", sort=search.Sort.stars, perPage=1)))
repo = found["items"][0]["name"]
commits = json.loads(list_commits.run(list_commits.Params(owner="torvalds", repo=repo, perPage=2, page=2)))
print(json.dumps([found["items"][0], commits]))
"""
    (linux,) = await most_starred("torvalds", 1)
    commits = await ask("list_commits", owner="torvalds", repo="linux", perPage=4)

    assert await printed(example, code) == [linux, commits[2:]]
    assert linux["name"] == "linux"


@in_module_loop
async def test_run_parsed_of_the_example_returns_the_repositories_as_objects(example: CodeExecutor):
    code = """
from mcptools.github.search_repositories import Order, Params, Sort, run_parsed
result = run_parsed(Params(query="user:octocat", sort=Sort.stars, order=Order.desc))
print(json.dumps([result.total, [[r.name, r.stargazers_count, r.url, r.language] for r in result.repositories]]))
"""
    expected = [
        [item["name"], item["stargazers_count"], item["html_url"], item.get("language", "")]
        for item in await most_starred("octocat", 30)
    ]

    assert await printed(example, code) == [41, expected]
    assert any(language == "" for *_, language in expected), "one has none, which the parser has to cope with"


@in_module_loop
async def test_saved_code_action_of_the_example_returns_the_latest_commits_of_the_top_repositories(
    example: CodeExecutor,
):
    code = """
from gentools.github.commits_of_top_repos import run
print(json.dumps([[repo.model_dump() for repo in run("torvalds")], len(run("octocat", 12, last_n_commits=1))]))
"""
    expected: list[Any] = []
    for item in await most_starred("torvalds", 3):
        history = await whole_history("torvalds", item["name"])
        commits = [
            {
                "message": commit["commit"]["message"].splitlines()[0],
                "sha": commit["sha"],
                "url": commit["html_url"],
                "author": commit["commit"]["author"]["name"],
                "date": commit["commit"]["author"]["date"],
            }
            for commit in history[:5]
        ]
        stars = item["stargazers_count"]
        expected.append({"name": item["name"], "stars": stars, "url": item["html_url"], "commits": commits})

    assert await printed(example, code) == [expected, 12]


@in_module_loop
async def test_cells_that_chain_the_tools_print_stars_and_commits(example: CodeExecutor):
    """With the names of GitHub's own fields, both from the text and from the parsed result."""
    search = """
import json
from mcptools.github import list_commits, search_repositories

params = search_repositories.Params(
    query="user:torvalds",
    sort=search_repositories.Sort.stars,
    order=search_repositories.Order.desc,
    perPage=10,
    minimal_output=False,
)
found = json.loads(search_repositories.run(params))
top = found["items"][:3]
for repo in top:
    print(f"{repo['name']}: {repo['stargazers_count']}")
"""
    chain = """
for repo in search_repositories.run_parsed(params).repositories[:3]:
    print(f"{repo.name}: {repo.stargazers_count}")
    commits = json.loads(list_commits.run(list_commits.Params(owner="torvalds", repo=repo.name, perPage=5)))
    for commit in commits[:5]:
        print(commit["sha"][:7], commit["commit"]["message"].split("\\n")[0], commit["html_url"])
"""
    top = [f"{item['name']}: {item['stargazers_count']}" for item in await most_starred("torvalds", 3)]

    assert (await example.execute(search, timeout=WAIT)).text == "\n".join(top)
    lines = ((await example.execute(chain, timeout=WAIT)).text or "").splitlines()
    assert lines[::6] == top
    (newest, *_) = await whole_history("torvalds", top[0].partition(":")[0])
    assert lines[1].split()[0] == newest["sha"][:7]
    assert lines[1].endswith(newest["html_url"])


@in_module_loop
@pytest.mark.parametrize(("cell", "shown"), PLUGIN_CELLS)
async def test_cell_of_the_plugins_page_prints_what_is_shown(cell: str, shown: str, example: CodeExecutor):
    text = (await example.execute(cell, timeout=WAIT)).text or ""

    assert text
    assert shown in ("", text + "\n")


@in_module_loop
async def test_example_is_listed_and_passes_the_check_of_a_workspace(example: CodeExecutor):
    code = "from ipybox.codeact import check, tools; print(json.dumps([check(), tools()]))"

    verdict, listing = await printed(example, code)

    assert verdict == "ok: 1 gentool, 1 parser"
    assert "github.commits_of_top_repos(username, top_n_repos=3, last_n_commits=5)" in listing
    assert "github.search_repositories(query, sort?, order?, minimal_output?, page?, perPage?) [run_parsed]" in listing


@in_module_loop
async def test_user_who_does_not_exist_is_an_error_of_every_kind(example: CodeExecutor):
    for code in (
        "from mcptools.github.search_repositories import Params, run; run(Params(query='user:nobody'))",
        "from mcptools.github.search_repositories import Params, run_parsed; run_parsed(Params(query='user:nobody'))",
        "from gentools.github.commits_of_top_repos import run; run('nobody')",
    ):
        with pytest.raises(CodeExecutionError, match="there is no user nobody"):
            await example.execute(code, timeout=WAIT)


@in_module_loop
@pytest.mark.parametrize(
    "result", ["", "Sorry!", "[]", "null", '{"items": [3], "total_count": 1}', '{"items": [{"name": "a"}]}']
)
async def test_parser_of_the_example_shows_what_it_can_not_understand(result: str, example: CodeExecutor):
    code = f"from mcpparse.github.search_repositories import parse; parse({result!r})"

    with pytest.raises(CodeExecutionError) as caught:
        await example.execute(code, timeout=WAIT)

    last = str(caught.value).strip().splitlines()[-1]
    assert last.startswith("ValueError: no result of search_repositories")
    assert last.endswith(repr(result))


async def test_stand_in_behind_a_url_is_for_those_who_know_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GITHUB_API_KEY", "right")
    headers = {"Authorization": "Bearer ${GITHUB_API_KEY}"}

    async with http_stand_in("--token", "right") as url:
        modules = await generate_mcp_sources("github", {"url": url, "headers": headers}, tmp_path)
        with pytest.raises(MCPServerError, match="401"):
            await generate_mcp_sources("github", {"url": url}, tmp_path)

    assert url.endswith("/mcp/")
    assert modules == ["search_repositories", "list_commits"]


@pytest.mark.parametrize("number", [3, 10, 500])
def test_stand_in_lists_the_tools_of_a_file_as_often_as_needed(number: int, tmp_path: Path):
    given = ["a", "b", "list_commits", "c", "search_repositories"]
    tools = [{"name": name, "description": f"Of {name}.", "inputSchema": {"type": "object"}} for name in given]
    (tmp_path / "tools.json").write_text(json.dumps(tools))

    names = [tool.name for tool in listed(tmp_path / "tools.json", number)]

    assert len(set(names)) == len(names) == number
    assert names[:3] == ["list_commits", "search_repositories", "a"]
