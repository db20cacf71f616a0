"""`ipybox demo`: the main job from end to end, on real MCP servers, without a key, a model or a network.

It needs the extra `ipybox[demo]` and git. Of npm's servers it uses the filesystem server if that is installed, or
npx can install it.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text
from rich.tree import Tree

from ipybox import ApprovalRequest, CodeExecutionChunk, CodeExecutionResult, CodeExecutor, generate_mcp_sources
from ipybox.support.errors import MCPServerError
from ipybox.support.printable import printable

COMMITS = [
    ("2026-01-05", "Add the parser", {"parser.py": 40}),
    ("2026-01-19", "Parse nested lists", {"parser.py": 75, "test_parser.py": 30}),
    ("2026-02-02", "Document the grammar", {"README.md": 25}),
    ("2026-02-20", "Speed up tokenizing", {"parser.py": 90, "bench.py": 20}),
    ("2026-03-11", "Report errors with line numbers", {"parser.py": 120, "test_parser.py": 65}),
]

CHAIN_WITH_FILES = """\
from mcptools.filesystem import read_text_file, write_file
from mcptools.git import git_log

log = git_log.run(git_log.Params(repo_path="repo", max_count=10))
subjects = [line.split(": ", 1)[1].strip("'") for line in log.splitlines() if line.startswith("Message: ")]

report = "\\n".join(f"{n}. {subject}" for n, subject in enumerate(reversed(subjects), 1))
write_file.run(write_file.Params(path="report.txt", content=report))
print(read_text_file.run(read_text_file.Params(path="report.txt", head=3)).content)
"""

CHAIN = """\
from mcptools.git import git_log, git_show

log = git_log.run(git_log.Params(repo_path="repo", max_count=10))
subjects = [line.split(": ", 1)[1].strip("'") for line in log.splitlines() if line.startswith("Message: ")]
print(git_show.run(git_show.Params(repo_path="repo", revision="HEAD"))[:200])
"""

PLOT = """\
import matplotlib.pyplot as plt

print(f"{len(subjects)} subjects are still here from the cell before")

figure, axes = plt.subplots(figsize=(7, 3))
axes.barh(subjects, [len(subject) for subject in subjects], color="#3b7ddd")
axes.set_xlabel("characters")
axes.set_title("Commit subjects, newest at the bottom")
figure.tight_layout()
plt.show()
"""


async def demo(directory: Path | None, options: dict[str, Any]) -> None:
    """Runs the demo in `directory`, or in a new temporary one, and prints what happens.

    Args:
        directory: Where to make the demo's workspace.
        options: Options of `CodeExecutor`.
    """
    console = Console(highlight=False)
    missing = _missing()
    if missing:
        console.print(f"The demo needs {' and '.join(missing)}.", markup=False)
        raise SystemExit(1)
    workspace = (directory or Path(tempfile.mkdtemp(prefix="ipybox-demo-"))).resolve()
    workspace.mkdir(parents=True, exist_ok=True)
    _make_repository(workspace / "repo")

    console.rule("1. Generate Python from the tools of MCP servers")
    packages = await _generate(console, workspace)
    _show_packages(console, workspace, packages)

    async with CodeExecutor(working_dir=workspace, **options) as executor:
        console.rule("2. One code action, several tools, each call approved")
        await _run(console, executor, CHAIN_WITH_FILES if "filesystem" in packages else CHAIN)
        console.rule("3. State persists, plots come back")
        result = await _run(console, executor, PLOT)

    console.rule("Where things are")
    console.print(f"workspace       {workspace}", soft_wrap=True)
    console.print(f"generated code  {workspace / 'mcptools'}", soft_wrap=True)
    for image in result.images:
        console.print(f"plot            {image}", soft_wrap=True)


def _missing() -> list[str]:
    modules = {"matplotlib": "matplotlib", "mcp_server_git": "mcp-server-git"}
    missing = [package for module, package in modules.items() if find_spec(module) is None]
    wanted = [f"{' and '.join(missing)} (pip install 'ipybox[demo]')"] if missing else []
    return wanted if shutil.which("git") else [*wanted, "git"]


async def _generate(console: Console, workspace: Path) -> dict[str, list[str]]:
    """Generates the packages of all servers and returns the names of their modules."""
    servers = _servers(workspace)
    with console.status("Starting the servers …"):
        outcomes = await asyncio.gather(
            *(generate_mcp_sources(name, params, workspace / "mcptools") for name, params in servers.items()),
            return_exceptions=True,
        )
    packages: dict[str, list[str]] = {}
    for name, outcome in zip(servers, outcomes, strict=True):
        if isinstance(outcome, list):
            packages[name] = outcome
        elif isinstance(outcome, MCPServerError) and name != "git":
            console.print(f"The demo goes on without this one: {outcome}", markup=False)
        else:
            raise outcome
    return packages


def _servers(workspace: Path) -> dict[str, dict[str, Any]]:
    servers: dict[str, dict[str, Any]] = {
        "git": {"command": sys.executable, "args": ["-m", "mcp_server_git"], "cwd": str(workspace)}
    }
    installed, npx = shutil.which("mcp-server-filesystem"), shutil.which("npx")
    if installed:
        script = os.path.realpath(installed)
        servers["filesystem"] = {"command": "node", "args": [script, "."], "cwd": str(workspace)}
    elif npx:
        package = "@modelcontextprotocol/server-filesystem"
        servers["filesystem"] = {"command": npx, "args": ["-y", package, "."], "cwd": str(workspace)}
    return servers


def _make_repository(repository: Path) -> None:
    """Makes a small git repository, or leaves the one that an earlier demo has made."""
    if (repository / ".git").exists():
        return

    def git(*arguments: str, date: str = "2026-01-01") -> None:
        # Neither the user's configuration nor hooks have a part in this.
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in _person(date).items()},
        }
        subprocess.run(["git", "-C", str(repository), *arguments], check=True, capture_output=True, env=environment)

    repository.mkdir(parents=True)
    git("init", "--quiet", "--initial-branch=main")
    for date, subject, files in COMMITS:
        for name, lines in files.items():
            (repository / name).write_text("".join(f"line {n}\n" for n in range(lines)))
        git("add", ".")
        git("commit", "--quiet", "-m", subject, date=date)


def _person(date: str) -> dict[str, str]:
    return {"NAME": "Ada Example", "EMAIL": "ada@example.org", "DATE": f"{date}T12:00:00Z"}


def _show_packages(console: Console, workspace: Path, packages: dict[str, list[str]]) -> None:
    tree = Tree("mcptools")
    for server, names in packages.items():
        branch = tree.add(server)
        for name in names[:4]:
            branch.add(f"{name}.py")
        if len(names) > 4:
            branch.add(f"… {len(names) - 4} more")
    console.print(tree)
    module = workspace / "mcptools" / "git" / "git_show.py"
    title = str(module.relative_to(workspace))
    text = printable(module.read_text(), lines=True)
    console.print(Panel(Syntax(text, "python", background_color="default", word_wrap=True), title=title))


async def _run(console: Console, executor: CodeExecutor, code: str) -> CodeExecutionResult:
    """Executes code, accepts and prints each tool call, and prints the output as it comes."""
    console.print(Panel(Syntax(code, "python", background_color="default", word_wrap=True), title="code action"))
    async for item in executor.stream(code, chunks=True):
        match item:
            case ApprovalRequest():
                call = str(item)
                console.print(Text("approve", "yellow"), Text(call if len(call) < 110 else f"{call[:107]}..."))
                await item.accept()
            case CodeExecutionChunk(text):
                console.print(text, end="", markup=False)
            case CodeExecutionResult():
                for notice in item.notices:
                    console.print(f"[ipybox] {notice}", markup=False)
                return item
    raise AssertionError("unreachable: a stream ends with its result")
