"""Runs a saved code action that chains two tools of GitHub's server: `python run.py [LOGIN] [WORKSPACE]`.

The action and its output parser are those of `docs/generated`, as an agent saved them. With GITHUB_API_KEY it asks
GitHub, otherwise the stand-in of the tests, which knows `octocat` and `torvalds`.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from ipybox import CodeExecutor, generate_mcp_sources

ROOT = Path(__file__).resolve().parents[2]
SAVED = ROOT / "docs" / "generated"

CODE = """
from gentools.github.commits_of_top_repos import run

for repo in run(login, top_n_repos=2, last_n_commits=3):
    print(f"{repo.name} ({repo.stars} stars)")
    for commit in repo.commits:
        print(f"  {commit.sha[:7]} {commit.author}: {commit.message}")
"""


def github() -> dict[str, Any]:
    """Returns the parameters of GitHub's server, or of the stand-in if there is no key."""
    if "GITHUB_API_KEY" in os.environ:
        headers = {"Authorization": "Bearer ${GITHUB_API_KEY}"}
        return {"url": "https://api.githubcopilot.com/mcp/", "headers": headers}
    return {"command": sys.executable, "args": [str(ROOT / "tests" / "github_server.py")]}


async def main(login: str, workspace: Path) -> None:
    """Prints the latest commits of the most starred repositories."""
    for kind in ("mcpparse", "gentools"):
        shutil.copytree(SAVED / kind, workspace / kind, dirs_exist_ok=True)
    await generate_mcp_sources("github", github(), workspace / "mcptools")
    extend(workspace / "mcptools" / "github" / "search_repositories.py")
    async with CodeExecutor(working_dir=workspace) as executor:
        print((await executor.execute(CODE, variables={"login": login})).text)


def extend(module: Path) -> None:
    """Appends the agent's `run_parsed` to a generated module, unless an earlier run has done so."""
    saved = SAVED / "mcptools" / "github"
    original = (saved / "search_repositories_orig.py").read_text()
    appended = (saved / "search_repositories.py").read_text().removeprefix(original)
    if not module.read_text().endswith(appended):
        with module.open("a") as file:
            file.write(appended)


if __name__ == "__main__":
    LOGIN = sys.argv[1] if len(sys.argv) > 1 else "octocat"
    asyncio.run(main(LOGIN, Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp(prefix="github-commits-"))))
