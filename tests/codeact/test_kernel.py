"""`tools` and `check` where agents use them: in a cell."""

import os
from pathlib import Path

import pytest

from ipybox import CodeExecutor
from tests.codeact.conftest import API, COMMITS, make_workspace

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMEOUT = 30


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_workspace(tmp_path_factory.mktemp("workspace"))


async def printed(executor: CodeExecutor, expression: str) -> str:
    code = f"from ipybox.codeact import tools, check\nprint({expression})"
    return (await executor.execute(code, timeout=TIMEOUT)).text or ""


async def test_a_cell_lists_tools(executor: CodeExecutor):
    answer = await printed(executor, "tools()")

    assert "github.commits_of_top_repos(username" in answer
    assert "github.search_repositories(query, page?, perPage?) [run_parsed]" in answer
    assert "def run_parsed" in await printed(executor, 'tools("search_repositories")')


async def test_a_cell_checks_what_was_saved(executor: CodeExecutor):
    assert await printed(executor, "check()") == "ok: 2 gentools, 2 parsers"


async def test_a_cell_checks_and_imports_what_it_has_just_changed(executor: CodeExecutor, workspace: Path):
    use = f"from {COMMITS.replace('/', '.')} import run\nprint(run.__doc__.splitlines()[0])"
    await executor.execute(use, timeout=TIMEOUT)
    api = workspace / COMMITS / "api.py"
    newest = API.replace('"""The latest commits of a user', '"""The newest commits of a user')
    api.write_text(newest.replace("username: str", "username"))
    faulty = await printed(executor, "check()")
    api.write_text(newest)
    sound = await printed(executor, "check()")
    result = await executor.execute(use, timeout=TIMEOUT)
    api.write_text(API)

    assert faulty.startswith(f"{COMMITS}/api.py:")
    assert sound == "ok: 2 gentools, 2 parsers"
    assert result.text == "The newest commits of a user's repositories with most stars."


async def test_planted_files_neither_stop_nor_crash_a_cell(executor: CodeExecutor, workspace: Path):
    planted = [workspace / f"mcptools/github/{name}.py" for name in ("pipe", "deep", "bytes", "circle")]
    os.mkfifo(planted[0])
    planted[1].write_text("-" * 100_000 + "1")
    planted[2].write_bytes(b"\xff")
    planted[3].symlink_to(planted[3].name)
    try:
        listed, checked = await printed(executor, "tools()"), await printed(executor, "check()")
    finally:
        for path in planted:
            path.unlink()

    assert "github.list_commits(" in listed
    assert "and 1 more: check() lists them" in listed
    for path, reason in zip(planted, ("regular file", "nested", "UTF-8", "opened"), strict=True):
        (line,) = [each for each in checked.splitlines() if path.name in each]
        assert reason in line
