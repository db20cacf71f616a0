"""Follows the README and the pages that need no more than its install line, in a fresh virtual environment.

The install line runs once, then each block of each page, in its order and in every mode.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Mode
from tests.servers import ROOT

README = (ROOT / "README.md").read_text()

#: What a new user reads, in this order.
PAGES = (
    README,
    *(
        (ROOT / "docs" / f"{name}.md").read_text()
        for name in ("sdk", "outputs", "claude-code", "mcp-server", "uninstall")
    ),
)

#: Seconds to install, and to run one block.
INSTALL_TIMEOUT = 600
BLOCK_TIMEOUT = 120

#: The calls whose `sandbox=` makes the mode, where the README itself doesn't say it.
KERNELS = re.compile(r"\b((?:Code)?Executor|KernelGateway)\((?!.*sandbox=)")

#: Runs a block that is a cell.
CELL = """
import asyncio
from ipybox import CodeExecutor


async def main():
    async with CodeExecutor() as executor:
        print((await executor.execute({code!r})).text)


asyncio.run(main())
"""


def blocks(language: str) -> list[str]:
    """Returns the blocks of all pages in a language."""
    return [block for page in PAGES for block in blocks_of(page, language)]


def blocks_of(page: str, language: str) -> list[str]:
    """Returns the blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def in_mode(script: str, mode: Mode) -> str:
    """Returns a script that runs its kernels in this mode, unless it says itself how."""
    return script if "sandbox=" in script else KERNELS.sub(rf"\1(sandbox={mode.sandbox}, ", script)


def path_with(programs: Path) -> str:
    """Returns the PATH of a shell in which a virtual environment is active."""
    return os.pathsep.join([str(programs), os.environ["PATH"]])


def run(command: list[str], cwd: Path, env: dict[str, str]) -> str:
    """Returns what a command that succeeds has written."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=BLOCK_TIMEOUT, check=False)
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a virtual environment in which the README's install line has run, and nothing else."""
    (line,) = (block for block in blocks_of(README, "bash") if block.startswith("pip install"))
    environment = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=INSTALL_TIMEOUT)
    pins = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        ["sh", "-ec", line],
        cwd=ROOT,
        env={**os.environ, **pins, "PATH": path_with(environment / "bin")},
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return environment / "bin"


def test_each_python_block_works_after_the_install_line(programs: Path, tmp_path: Path, mode: Mode):
    directory = tmp_path / "directory"
    env = {"PATH": path_with(programs), "HOME": str(tmp_path)}
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    run(["git", "init", "-q", str(directory)], tmp_path, env)
    run(["git", *identity, "commit", "-qm", "first", "--allow-empty"], directory, env)

    outputs: list[str] = []
    # What says itself that it runs a sandbox runs once, with the others that do.
    for block in (block for block in blocks("python") if mode.sandbox or "sandbox=" not in block):
        script = block if "asyncio.run" in block or KERNELS.search(block) else CELL.format(code=block)
        outputs.append(run(["python", "-c", in_mode(script, mode)], directory, env))

    (*_, shown) = blocks_of(README, "text")
    assert outputs[0] == shown
    assert "first" in outputs[2], "the cell shows the commits of the directory"


def test_each_command_for_saved_code_works_after_the_install_line(programs: Path, tmp_path: Path):
    workspace = shutil.copytree(ROOT / "docs" / "generated", tmp_path / "workspace")
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("ipybox ") and not line.startswith("ipybox clean")]
    assert len(commands) >= 4
    outputs = [
        run(["sh", "-ec", command], workspace, {"PATH": path_with(programs), "HOME": str(tmp_path)})
        for command in commands
    ]
    assert "commits_of_top_repos" in outputs[0]
