"""Follow the quickstart, the README and the pages that only need its install line, as a new user.

The quickstart's installation, which contains the README's install line, runs once in a fresh virtual environment. Then
each block of each page runs there, in its order.
`tests/claude/test_quickstart.py` follows the quickstart's part about Claude Code.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.claude.cli import Home, publish
from tests.servers import ROOT
from tests.test_docs import SCRIPT
from tests.warm import warm_python

README = (ROOT / "README.md").read_text()
QUICKSTART = (ROOT / "docs" / "quickstart.md").read_text()
SDK = (ROOT / "docs" / "sdk.md").read_text()

#: Whose Python a new user runs, in this order, and whose commands for saved code.
PROGRAMS = (README, SDK)
COMMANDS = (README, (ROOT / "docs" / "claude-code.md").read_text())

#: Seconds to install, and to run one block. The quickstart promises that all of it takes ten minutes.
INSTALL_TIMEOUT = 600
BLOCK_TIMEOUT = 120

#: What a block has that is a program, not a cell.
PROGRAM = re.compile(r"asyncio\.run|\b(Executor|KernelGateway)\(")

#: Generates the package for the README's first cell, with the stand-in for GitHub's server.
GITHUB = """
import asyncio, sys
from pathlib import Path
from ipybox import generate_mcp_sources

server = {"command": sys.executable, "args": [sys.argv[1]]}
asyncio.run(generate_mcp_sources("github", server, Path("mcptools")))
"""

#: Runs a block that is a cell.
CELL = """
import asyncio
from ipybox import CodeExecutor


async def main():
    async with CodeExecutor() as executor:
        print((await executor.execute({code!r})).text)


asyncio.run(main())
"""


def blocks_of(page: str, language: str) -> list[str]:
    """Returns the blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def part_of(page: str, title: str) -> str:
    """Returns the text below a heading of a page."""
    return re.split(r"^## ", page.partition(f"\n## {title}\n")[2], flags=re.MULTILINE)[0]


def saved_and_run(text: str) -> str:
    """Returns commands that save the program of a part in the file that it names, and run it as it says."""
    name, command = re.findall(
        r"[Ss]ave (?:this|the program) as `(\w+\.py)`,? and run it with `([^`]+)`", _in_one_line(text)
    )[0]
    (program,) = blocks_of(text, "python")
    return f"cat > {name} <<'END OF PROGRAM'\n{program}END OF PROGRAM\n{command}\n"


def _in_one_line(text: str) -> str:
    return re.sub(r"\s*\n", " ", text)


def path_with(programs: Path) -> str:
    """Returns the PATH of a shell in which a virtual environment is active."""
    return os.pathsep.join([str(programs), os.environ["PATH"]])


def run(command: list[str], cwd: Path, env: dict[str, str], timeout: float = BLOCK_TIMEOUT) -> str:
    """Return what a command that succeeds has written."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The home of a new user, with only what the quickstart installs."""
    directory = tmp_path_factory.mktemp("newcomer")
    home = Home(directory, publish(directory), compiles=False)
    (install,) = blocks_of(part_of(QUICKSTART, "Python"), "bash")
    # uv installs the same in a tenth of pip's processor time.
    install = install.replace("\npip install ", "\nuv pip install ")
    assert "\nuv pip install " in install
    run(["/bin/bash", "-ec", install], home.path, home.env, INSTALL_TIMEOUT)
    return home


@pytest.fixture(scope="module")
def programs(newcomer: Home) -> Path:
    """The programs of the environment in which the README's install line, which is the quickstart's, has run."""
    (line,) = (block for block in blocks_of(README, "bash") if block.startswith("pip install"))
    assert line in blocks_of(part_of(QUICKSTART, "Python"), "bash")[0].splitlines(keepends=True)
    return newcomer.path / ".venv" / "bin"


def test_the_quickstart_leads_to_approved_tool_calls_in_a_program_and_in_an_mcp_client(newcomer: Home):
    sdk, client = part_of(QUICKSTART, "Python"), part_of(QUICKSTART, "Any MCP client")
    ((approved,), (asked,)) = blocks_of(sdk, "text"), blocks_of(client, "text")
    old = """\
                    print("approve?", item)
                    await item.accept()  # or: await item.reject("why")
"""
    new = f"                    {re.findall(r'`(await .item.accept.*?)`', _in_one_line(sdk))[0]}\n"
    (program,) = blocks_of(sdk, "python")
    assert old in program
    changed = f"cat > asks.py <<'END OF PROGRAM'\n{program.replace(old, new)}END OF PROGRAM\nyes y | python asks.py\n"
    begin = "cd my-project && . ../.venv/bin/activate && echo begins"
    script = "\n".join([begin, saved_and_run(sdk), saved_and_run(client), changed])

    _, _, printed = run(["/bin/bash", "-ec", script], newcomer.path, newcomer.env, INSTALL_TIMEOUT).partition(
        "begins\n"
    )

    assert printed.startswith(approved + asked)
    assert printed.removeprefix(approved + asked).endswith("? Asia/Tokyo +9.0h\nAfrica/Nairobi +3.0h\n")


@pytest.mark.kernel
@pytest.mark.sandbox  # which some of them run, by their own words
def test_each_python_block_works_after_the_install_line(programs: Path, tmp_path: Path):
    directory = tmp_path / "directory"
    env = {"PATH": path_with(programs), "HOME": str(tmp_path)}
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    run(["git", "init", "-q", str(directory)], tmp_path, env)
    run(["git", *identity, "commit", "-qm", "first", "--allow-empty"], directory, env)

    run(["python", "-c", GITHUB, str(ROOT / "tests" / "github_server.py")], directory, env)
    (shown,) = blocks_of(README, "text")

    printed: dict[str, str] = {}
    with warm_python(str(programs / "python"), env) as python:
        for block in [block for page in PROGRAMS for block in blocks_of(page, "python")]:
            script = block if PROGRAM.search(block) else CELL.format(code=block)
            typed = "y\n" * shown.count("? y\n") if "input(" in block else ""
            done = python.run(script, directory, env, BLOCK_TIMEOUT, typed)
            assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
            printed[block] = done.stdout

    outputs = [*printed.values()]
    assert "lazy-editor\n" in outputs[0], "the loop over the repositories prints names"
    assert outputs[1] == shown.replace("? y\n", "? ")
    assert "first" in outputs[3], "the cell shows the commits of the directory"
    assert [script for script, text in SCRIPT.findall(SDK) if text and printed[script] != text] == []


def test_each_command_for_saved_code_works_after_the_install_line(programs: Path, tmp_path: Path):
    workspace = shutil.copytree(ROOT / "docs" / "generated", tmp_path / "workspace")
    lines = [line for page in COMMANDS for block in blocks_of(page, "bash") for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("ipybox ") and not line.startswith("ipybox clean")]
    assert len(commands) >= 4
    outputs = [
        run(["sh", "-ec", command], workspace, {"PATH": path_with(programs), "HOME": str(tmp_path)})
        for command in commands
    ]
    assert "commits_of_top_repos" in outputs[0]
