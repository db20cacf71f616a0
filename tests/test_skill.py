"""The codeact skill: it stays short, names what exists, and what it shows runs as it stands."""

import re
import sys
from pathlib import Path

import pytest

from ipybox import CodeExecutor, generate_mcp_sources
from ipybox.workspace.writable import WritablePlaces
from tests.conftest import Mode
from tests.servers import ROOT

SKILL = ROOT / "skills" / "codeact"
PAGES = [SKILL / "SKILL.md", *sorted((SKILL / "references").glob("*.md"))]

#: The body of a skill stays in the context for the rest of a session.
BODY_TOKENS = 1500
#: Bytes of a token of English with code, at the least.
TOKEN_BYTES = 3

MCP_TOOLS = {"execute_ipython_cell", "install_package", "register_mcp_server", "reset"}

GITHUB = {"command": sys.executable, "args": [str(ROOT / "tests" / "github_server.py")]}


def blocks(page: str) -> list[str]:
    """Returns the Python of a page of the skill."""
    return re.findall(r"^```python\n(.*?)^```$", (SKILL / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_body_is_short_and_the_front_matter_says_when_it_is_for():
    _, front_matter, body = (SKILL / "SKILL.md").read_text().split("---\n", 2)
    described = dict(line.split(": ", 1) for line in front_matter.splitlines())

    assert described.keys() == {"name", "description", "license", "compatibility", "allowed-tools"}
    assert described["allowed-tools"] == "Read(/${CLAUDE_SKILL_DIR}/**)", "without a person, no other file is read"
    assert described["name"] == "codeact"
    assert described["description"].startswith("Write, run and save Python that calls MCP tools.")
    for occasion in ("use the codeact skill", "output parser", "saving a code action", "MCP server"):
        assert occasion in described["description"]
    assert len(body.encode()) <= BODY_TOKENS * TOKEN_BYTES


def test_links_lead_to_files_and_every_reference_is_linked():
    links = set(re.findall(r"\]\(([^)]+)\)", (SKILL / "SKILL.md").read_text()))

    assert {SKILL / link for link in links} == set(PAGES[1:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tools_of_ipybox_are_named_by_their_last_part(page: Path):
    text = page.read_text().rpartition("\n---\n")[2]  # without the front matter

    assert "mcp__" not in text
    assert "plugin" not in text
    assert set(re.findall(r"`((?:execute|install|register|reset)\w*)(?:\(.*?\))?`", text)) <= MCP_TOOLS


async def test_what_the_skill_shows_runs_as_it_stands(tmp_path: Path, mode: Mode):
    find, act, check = blocks("SKILL.md")
    suggest, type_, parser, prove_parser = blocks("references/output-parsers.md")
    api, impl, init, prove_tool = blocks("references/saving-codeacts.md")
    await generate_mcp_sources("github", GITHUB, tmp_path / "mcptools", places=WritablePlaces(tmp_path))
    gentool = tmp_path / "gentools" / "github" / "commits_of_top_repos"
    gentool.mkdir(parents=True)
    tool, parsing = (tmp_path / root / "github" / "search_repositories.py" for root in ("mcptools", "mcpparse"))
    generated = tool.read_text()

    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:

        async def run(cell: str) -> str:
            return (await executor.execute(cell)).text or ""

        suggested = await run(suggest)
        assert suggested.startswith("wrote mcpparse/github/search_repositories.py, and to the end of mcptools/github/")
        assert "    stargazers_count: int\n" in suggested
        assert (await run(check)) == "ok: 0 gentools, 1 parser"

        # What an agent makes of it.
        tool.write_text(generated + type_)
        parsing.write_text(parser)
        proven = await run(prove_parser)
        assert proven.startswith("ok")
        assert "total=41 repositories=[Repository(name=" in proven
        assert "total=0 repositories=[]" in proven

        for name, text in (("api", api), ("impl", impl), ("__init__", init)):
            (gentool / f"{name}.py").write_text(text)
        proven = await run(prove_tool)
        assert proven.startswith("ok")
        assert proven.count("Commit(message=") == 2

        assert (await run(check)).startswith("ok")
        found = await run(find)
        assert "github.commits_of_top_repos(username, top_n_repos=3, last_n_commits=5) -> list[Repo]" in found
        assert "from mcptools.github import list_commits  # " in found
        assert len((await run(act)).splitlines()) == 3

        await run("pairs = [('octocat', repo.name) for repo in found.repositories]")
        (line,) = re.findall(r"`(results = .*?)`", (SKILL / "SKILL.md").read_text(), re.DOTALL)
        assert await run(f"{line}\nprint(len(results))") == "3"
