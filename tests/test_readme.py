"""Executes the README's Python in every mode, each block as a script of its own in one directory."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ipybox import CodeExecutor
from tests.conftest import Mode

REPOSITORY = Path(__file__).resolve().parents[1]
#: The calls whose `sandbox=` makes the mode, where the README itself doesn't say it.
KERNELS = re.compile(r"\b(CodeExecutor|KernelGateway)\((?!.*sandbox=)")
#: As in an activated environment.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
BLOCKS = re.findall(r"^```python\n(.*?)^```$", (REPOSITORY / "README.md").read_text(), re.MULTILINE | re.DOTALL)
SCRIPTS = [block for block in BLOCKS if "asyncio.run" in block]
CELLS = [block for block in BLOCKS if "asyncio.run" not in block]


def in_mode(script: str, mode: Mode) -> str:
    """Returns a script that runs its kernels in this mode, unless it says itself how."""
    return script if "sandbox=" in script else KERNELS.sub(rf"\1(sandbox={mode.sandbox}, ", script)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, mode: Mode) -> Path:
    return tmp_path_factory.mktemp(f"readme_{mode}")


@pytest.mark.parametrize("number", range(len(SCRIPTS)))
def test_script_of_the_readme_runs(number: int, directory: Path, mode: Mode):
    done = subprocess.run(
        [sys.executable, "-c", in_mode(SCRIPTS[number], mode)],
        cwd=directory,
        # The cells below call the tools that are registered here, so the key is the same.
        env={"PATH": PATH, "HOME": str(directory), "PAGER": "cat", "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if number == 0:
        assert done.stdout.count("calls clock.get_current_time(timezone=") == 2
        assert "Asia/Tokyo" in done.stdout


@pytest.mark.parametrize("number", range(len(CELLS)))
async def test_cell_of_the_readme_runs(number: int, directory: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PAGER", "cat")
    monkeypatch.setenv("PATH", PATH)
    assert (directory / "mcptools" / "git").is_dir(), "the README generates the package before it uses it"
    repository = directory / "repository"
    if not repository.exists():
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(repository)]
        await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(repository)], check=True)
        await asyncio.to_thread(subprocess.run, [*git, "commit", "-qm", "first", "--allow-empty"], check=True)
    code = CELLS[number].replace('repo_path="."', f"repo_path={str(repository)!r}")
    async with CodeExecutor(working_dir=directory, sandbox=mode.sandbox) as executor:
        result = await executor.execute(code)
    assert "first" in (result.text or "")
