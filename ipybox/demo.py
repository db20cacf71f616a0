"""`ipybox demo`: one task with JSON tool calls and with code, an approval, a sandbox denial and a plot.

Uses the real git MCP server on a small repository that it creates; needs no API key and no model. Without the extra
`ipybox[demo]`, uv runs that server and installs matplotlib in the workspace. Without `srt`, it skips the sandbox step.
"""

import errno
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ipybox import (
    ApprovalRequest,
    CodeExecutionChunk,
    CodeExecutionError,
    CodeExecutionResult,
    CodeExecutor,
    generate_mcp_sources,
)
from ipybox.kernel_mgr.packages import PackageInstaller
from ipybox.mcp_client import MCPClient
from ipybox.support.errors import SandboxError
from ipybox.tool_exec.approval.policy import ApprovalPolicy

#: The invented git history.
COMMITS = 40
AUTHORS = ("Ada", "Grace", "Katherine", "Margaret")
FILES = ("lexer.py", "parser.py", "printer.py", "test_parser.py")

TASK = f"Who changed the most lines in the last {COMMITS} commits?"

RULES = """
rules:
  - {effect: allow, server: git, tool: [git_log, git_show]}
default: ask
"""

LOOK_UP = """\
from ipybox.codeact import tools

print(tools("git.git_log", "git.git_show"))
"""

COUNT = f"""\
from collections import Counter
from mcptools.git import git_log, git_show

log = git_log.run(git_log.Params(repo_path="repo", max_count={COMMITS}))
lines = Counter()
for commit in [line.split()[1] for line in log.splitlines() if line.startswith("Commit: ")]:
    shown = git_show.run(git_show.Params(repo_path="repo", revision=commit))
    header, _, patch = shown.partition("\\n@@ ")
    author = header.partition("Author: ")[2].partition(" <")[0]
    lines[author] += sum(line.startswith(("+", "-")) for line in patch.splitlines())

print(lines.most_common())
"""

BRANCH = """\
from mcptools.git import git_create_branch as branch

print(branch.run(branch.Params(repo_path="repo", branch_name="release")))
"""

WRITE = """\
from pathlib import Path

Path.home().joinpath(".bashrc").open("a")
"""

PLOT = """\
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 2.5), layout="tight")
axes.barh(*zip(*lines.most_common()[::-1]))
axes.set_xlabel("changed lines")
plt.show()
"""

#: Approximate bytes per token: 3 to 4 for English and code with current tokenizers.
BYTES_PER_TOKEN = 4


async def demo(directory: Path | None) -> int:
    """Runs the demo in `directory`, or in a new temporary one, and prints each step; returns the exit status."""
    console = _Console(highlight=False)
    if shutil.which("git") is None:
        console.print("The demo needs git.")
        return 1
    workspace = (directory or Path(tempfile.mkdtemp(prefix="ipybox-demo-"))).resolve()
    workspace.mkdir(parents=True, exist_ok=True)
    _create_repository(workspace / "repo")
    module = ["mcp_server_git"] if find_spec("mcp_server_git") else ["uv", "tool", "run", "mcp-server-git>=2026.10"]
    server = {"command": sys.executable, "args": ["-m", *module], "cwd": str(workspace)}
    options: dict[str, Any] = {"working_dir": workspace, "approval_policy": ApprovalPolicy(RULES, workspace)}

    console.print(f"[bold]{TASK}[/]")
    console.print("The answer comes from a real MCP server, mcp-server-git. A script plays the model.\n")
    console.rule("1. With JSON tool calls", align="left")
    by_tools = await _count_by_tools(console, server)
    console.rule("2. With code, and rules that allow read-only calls", align="left")
    await generate_mcp_sources("git", server, workspace / "mcptools")
    async with AsyncExitStack() as stack:
        problem = ""
        try:
            executor = await stack.enter_async_context(CodeExecutor(**options, sandbox=True))
        except SandboxError as exc:
            problem = str(exc)
            executor = await stack.enter_async_context(CodeExecutor(**options))
        by_code = await _count_by_code(console, executor)
        _compare(console, by_tools, by_code)
        console.rule("3. Any other call needs approval", align="left")
        await _run(console, executor, BRANCH)
        console.rule("4. The sandbox confines the code to the workspace", align="left")
        await _show_denial(console, executor, problem)
        console.rule("5. Variables persist, and plots are saved as files", align="left")
        if find_spec("matplotlib") is None:
            console.print(await PackageInstaller(workspace).install("matplotlib>=3.9,<4"), markup=False)
        result = await _run(console, executor, PLOT)
    console.print(f"plot            {result.images[0]}", soft_wrap=True, markup=False)
    console.print(f"generated code  {workspace / 'mcptools' / 'git'}", soft_wrap=True, markup=False)
    return 0


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Lets the demo stop its kernel; rich's SystemExit would end the event loop first."""
        raise BrokenPipeError(errno.EPIPE, "the reader of the output has gone")


def _create_repository(repository: Path) -> None:
    """Creates a git repository with an invented history, unless it exists."""
    if (repository / ".git").exists():
        return
    repository.mkdir(parents=True)
    git = ["git", "-C", str(repository), "-c", "core.hooksPath=/dev/null"]
    subprocess.run([*git, "init", "--quiet", "--initial-branch=main", "--template="], check=True)
    subprocess.run([*git, "fast-import", "--quiet"], check=True, input="".join(_history()).encode())
    subprocess.run([*git, "reset", "--quiet", "--hard"], check=True)


def _history() -> Iterator[str]:
    """Yields the history for `git fast-import`."""
    chance = random.Random(1)
    files = {name: [f"def {name[:-3]}_{n}(text):" for n in range(60)] for name in FILES}
    for number in range(COMMITS + 1):
        author = AUTHORS[min(chance.randrange(4), chance.randrange(4))]
        name = FILES[number % len(FILES)]
        start = chance.randrange(50)
        for line in range(start, start + chance.randrange(4, 10)):
            files[name][line % 60] = f"def {name[:-3]}_{line}(text, *, limit={chance.randrange(100)}, strict=True):"
        message, content = f"Revise {name}, part {number}", "\n".join(files[name]) + "\n"
        yield "commit refs/heads/main\n"
        yield f"committer {author} <{author.lower()}@example.org> {1767600000 + 86400 * number} +0000\n"
        yield f"data {len(message)}\n{message}\nM 100644 inline {name}\ndata {len(content)}\n{content}\n"


async def _count_by_tools(console: Console, server: dict[str, Any]) -> list[int]:
    """Makes the calls that a model would emit as JSON; returns the numbers of calls, bytes written and bytes read."""
    written: list[str] = []
    read: list[str] = []
    async with MCPClient(server, connect_timeout=120) as client:

        async def call(name: str, **arguments: Any) -> str:
            arguments = {"repo_path": "repo", **arguments}
            written.append(json.dumps({"name": name, "arguments": arguments}))
            read.append(str(await client.run(name, arguments)))
            return read[-1]

        log = await call("git_log", max_count=COMMITS)
        console.print(f"git_log(max_count={COMMITS}) → {len(log):,} bytes", markup=False)
        commits = [line.split()[1] for line in log.splitlines() if line.startswith("Commit: ")]
        for commit in commits:
            await call("git_show", revision=commit)
    console.print(
        f"git_show(revision={commits[-1][:7]!r}) → {len(read[-1]):,} bytes, and {COMMITS - 1} more of these\n",
        markup=False,
    )
    return [len(written), len("".join(written)), len("".join(read))]


async def _count_by_code(console: Console, executor: CodeExecutor) -> list[int]:
    """Runs the cells that a model would write; returns the numbers of cells, bytes written and bytes read."""
    looked_up = (await executor.execute(LOOK_UP)).text or ""
    console.print(f'tools("git.git_log", "git.git_show") → {len(looked_up):,} bytes of interfaces', markup=False)
    answer = (await _run(console, executor, COUNT)).text or ""
    return [2, len(LOOK_UP + COUNT), len(looked_up + answer)]


def _compare(console: Console, by_tools: list[int], by_code: list[int]) -> None:
    table = Table("tokens the model")
    for column in ("writes", "reads", "in total"):
        table.add_column(column, justify="right")
    for name, (number, *sizes) in (("JSON tool calls", by_tools), ("cells of code", by_code)):
        tokens = [size // BYTES_PER_TOKEN for size in (*sizes, sum(sizes))]
        table.add_row(f"{number} {name}", *(f"{count:,}" for count in tokens))
    console.print(table)
    console.print(f"Tokens are estimated at {BYTES_PER_TOKEN} bytes each. Tool definitions aren't counted.")
    console.print("For a single call with a short result, code can cost more:")
    console.print("https://github.com/gradion-ai/ipybox/blob/main/docs/benchmarks.md#tokens\n")


async def _show_denial(console: Console, executor: CodeExecutor, problem: str) -> None:
    if problem:
        console.print(f"Skipped: {problem}\n", markup=False)
        return
    try:
        await _run(console, executor, WRITE)
    except CodeExecutionError as exc:
        console.print(f"{exc.name}: {exc.value}", style="red", markup=False)
        console.print(*exc.notices, sep="\n", end="\n\n", style="yellow", markup=False)


async def _run(console: Console, executor: CodeExecutor, code: str) -> CodeExecutionResult:
    """Runs a cell; prints and accepts each approval request, and prints the output as it arrives."""
    console.print(Panel(Syntax(code.strip(), "python", background_color="default", word_wrap=True)))
    async for item in executor.stream(code, chunks=True):
        match item:
            case ApprovalRequest():
                console.print(Text("approval requested ", "yellow"), Text(str(item)), Text("→ accepted", "green"))
                await item.accept()
            case CodeExecutionChunk(text):
                console.print(text, end="", markup=False)
            case CodeExecutionResult():
                console.print()
                return item
    raise AssertionError("unreachable: a stream ends with its result")
