"""`ipybox tools` and `ipybox check`: the host reads what is in a workspace, and only a kernel runs it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ipybox import generate_mcp_sources
from ipybox.workspace.writable import WritablePlaces
from tests.conftest import Mode
from tests.servers import ROOT, scripted

GENERATED = ROOT / "docs" / "generated"

API = '''"""Something."""


def run() -> int:
    """Returns a number."""
    from . import impl

    return impl.run()
'''
INIT = 'from .api import run\n\n__all__ = ["run"]\n'


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for directory in ("gentools", "mcpparse", "mcptools"):
        shutil.copytree(GENERATED / directory, tmp_path / directory, ignore=shutil.ignore_patterns("*_orig.py"))
    return tmp_path


def save(workspace: Path, impl: str) -> None:
    """Saves a code action of which nothing is wrong but what its implementation does when it is imported."""
    gentool = workspace / "gentools" / "some" / "action"
    gentool.mkdir(parents=True)
    for name, text in (("__init__", INIT), ("api", API), ("impl", impl)):
        (gentool / f"{name}.py").write_text(text)


def ipybox(workspace: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ipybox", "--workspace", str(workspace), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_tools_are_listed_searched_and_shown(workspace: Path):
    save(workspace, "raise SystemExit('the host ran it')\n\n\ndef run() -> int:\n    return 1\n")

    listed = ipybox(workspace, "tools").stdout
    assert re.search(r"^some\.action +saved  Returns a number$", listed, re.MULTILINE)
    assert re.search(r"^github\.list_commits +MCP +Lists the history", listed, re.MULTILINE)
    assert ipybox(workspace, "tools", "commits", "by", "author").stdout.startswith("github.list_commits ")
    shown = ipybox(workspace, "tools", "github.list_commits").stdout
    assert "class Params(Input):" in shown
    assert "CLIENT" not in shown


def test_a_workspace_in_order_passes(workspace: Path, mode: Mode):
    done = ipybox(workspace, *mode.options, "check")

    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "ok: 1 saved code action and 1 output parser checked\n",
        "",
    )


def test_what_is_wrong_is_printed_and_fails(workspace: Path, mode: Mode):
    (workspace / "gentools" / "github" / "commits_of_top_repos" / "impl.py").unlink()

    done = ipybox(workspace, *mode.options, "check")

    assert done.returncode == 1
    assert done.stdout.startswith("gentools/github/commits_of_top_repos/impl.py:1: the file is missing; ")


def test_what_ends_the_kernel_when_it_is_imported_fails(workspace: Path, mode: Mode):
    save(workspace, "import os\n\nos._exit(0)\n\n\ndef run() -> int:\n    return 1\n")

    done = ipybox(workspace, *mode.options, "check")

    assert done.returncode == 1
    assert (done.stdout, done.stderr.startswith("ipybox: the check did not finish: ")) == ("", True)


async def test_a_tool_that_is_called_by_an_import_is_not_run(workspace: Path, mode: Mode, tmp_path: Path):
    log = tmp_path / "log"
    await generate_mcp_sources(
        "scripted", scripted("--log", str(log)), workspace / "mcptools", places=WritablePlaces(workspace)
    )
    started = log.read_text()
    call = "from mcptools.scripted import echo\n\necho.run(echo.Params(text='x'))\n"
    save(workspace, f"{call}\n\ndef run() -> int:\n    return 1\n")

    done = ipybox(workspace, *mode.options, "check")

    assert done.returncode == 1
    assert "gentools/some/action/impl.py:3: " in done.stdout
    assert "rejected" in done.stdout
    assert log.read_text() == started


def test_programs_read_json(workspace: Path, mode: Mode):
    (workspace / "mcpparse" / "github" / "gone.py").touch()

    tools = {tool["name"]: tool for tool in json.loads(ipybox(workspace, "tools", "--json").stdout)}
    assert tools["github.list_commits"]["kind"] == "mcptools"
    assert tools["github.commits_of_top_repos"]["signature"].endswith("last_n_commits=5) -> list[Repo]")

    checked = json.loads(ipybox(workspace, "check", "--json", *mode.options).stdout)
    assert checked["checked"] == {"saved code action": 1, "output parser": 2}
    assert [problem["path"] for problem in checked["problems"]] == ["mcpparse/github/gone.py"]


def test_a_report_that_saved_code_made_up_is_not_believed(workspace: Path, mode: Mode):
    save(
        workspace,
        "import atexit\n\natexit.register(print, '[]')\nraise ValueError\n\n\ndef run() -> int:\n    return 1\n",
    )

    done = ipybox(workspace, "check", *mode.options)

    assert done.returncode == 1
    assert "gentools/some/action/impl.py:" in done.stdout + done.stderr
