"""`ipybox clean` removes what ipybox keeps, and nothing that people have made or a running session needs."""

import asyncio
import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ipybox import CodeExecutor
from ipybox.support.state import environment_locks, scratch_root, state_dir
from tests.conftest import Mode
from tests.sandbox.test_git_exclude import git, repository
from tests.servers import WAIT


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, as what is removed would be that of other tests, too."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(home / "runtime"))
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = repository(tmp_path / "workspace")
    for name in ("mcptools", "gentools"):
        (workspace / name).mkdir()
        (workspace / name / "mine.py").write_text("x = 1")
    return workspace


def clean(workspace: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "ipybox", "clean", "--workspace", str(workspace), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=4 * WAIT, check=False, stdin=subprocess.DEVNULL
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def files(*directories: Path) -> set[str]:
    return {str(path) for directory in directories for path in directory.rglob("*") if ".git/" not in str(path)}


@pytest.mark.kernel
@pytest.mark.asyncio
async def test_all_that_a_session_has_left_is_removed_and_nothing_else(workspace: Path, home: Path, mode: Mode):
    before = files(workspace, home)
    async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox, audit="full") as executor:
        await executor.execute("1")
        status, text = clean(workspace, "--yes")
        assert status == 1
        assert re.search(rf"^in use +{re.escape(str(workspace))}/.ipybox ", text, re.MULTILINE)
        assert "ipybox is running" in text
        assert (await executor.execute("2")).text == "2"
    assert (workspace / ".ipybox" / "audit.jsonl").exists()

    status, text = clean(workspace)
    assert status == 1
    assert re.search(rf" {re.escape(str(state_dir()))}  keys", text)
    assert "add --yes" in text
    assert (workspace / ".ipybox" / "audit.jsonl").exists()

    (home / "runtime").mkdir(exist_ok=True)
    (home / "runtime" / "ipybox-tool-server-1.json").touch()
    assert clean(workspace, "--yes")[0] == 0
    left = {path for path in files(workspace, home) - before if os.path.isfile(path)}
    assert left == set()
    assert not (workspace / ".ipybox").exists()
    assert not state_dir().exists()
    assert clean(workspace, "--yes") == (0, "nothing to remove\n")


def test_programs_read_json_and_remove_only_by_yes(workspace: Path):
    (workspace / ".ipybox").mkdir()
    (workspace / ".ipybox" / "file").write_text("x" * 100)
    for options, state in (([], "found"), (["--yes"], "removed")):
        status, text = clean(workspace, "--json", *options)
        place, *others = json.loads(text)
        assert others == []
        assert (status, place["path"], place["state"]) == (0, str(workspace / ".ipybox"), state)
        assert place["bytes"] >= 100
    assert not (workspace / ".ipybox").exists()


def test_links_that_code_has_made_lead_nowhere(workspace: Path, tmp_path: Path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (workspace / ".ipybox").mkdir()
    (workspace / ".ipybox" / "packages").symlink_to(kept)
    assert clean(workspace, "--yes")[0] == 0
    assert (kept / "file").exists()
    assert not (workspace / ".ipybox").exists()


@pytest.mark.parametrize("lock_name", ["build", "0123456789abcdef"], ids=["builder", "server"])
def test_environments_of_plugins_are_removed_unless_a_process_uses_them(lock_name: str, workspace: Path, home: Path):
    environments = home / ".local/share/ipybox/environments"
    for name in ("used", "unused"):
        (environments / name).mkdir(parents=True)
        (environments / name / "file").write_text("x" * 2048)
    locks = environment_locks("used")
    locks.mkdir(parents=True)
    with open(locks / lock_name, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        status, text = clean(workspace, "--yes")
    assert status == 1
    assert re.search(rf"^in use +{re.escape(str(environments))}/used ", text, re.MULTILINE)
    assert re.search(rf"^in use +{re.escape(str(state_dir()))} ", text, re.MULTILINE)
    assert (environments / "used" / "file").exists()
    assert not (environments / "unused").exists()
    assert clean(workspace, "--yes")[0] == 0
    assert not (environments / "used").exists()


@pytest.mark.kernel
@pytest.mark.sandbox
def test_what_a_killed_sandbox_has_left_in_the_workspace_is_removed(workspace: Path):
    code = """
import asyncio, os, signal
from contextlib import suppress
from pathlib import Path
from ipybox import CodeExecutor
from tests.servers import descendants
async def main():
    async with CodeExecutor(working_dir=Path.cwd(), sandbox=True):
        for pid in [*descendants(), os.getpid()]:
            with suppress(ProcessLookupError):  # the end of another one has ended it
                os.kill(pid, signal.SIGKILL)
asyncio.run(main())
"""
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", code], cwd=workspace, env=env, timeout=4 * WAIT, check=False)
    assert (workspace / ".mcp.json").exists()
    exclude = workspace / ".git" / "info" / "exclude"
    assert "ipybox" in exclude.read_text()

    assert clean(workspace, "--yes")[0] == 0

    assert not (workspace / ".mcp.json").exists()
    assert "ipybox" not in exclude.read_text()
    assert git(workspace, "status", "--porcelain") == "?? gentools/\n?? mcptools/\n"


@pytest.mark.kernel
@pytest.mark.asyncio
async def test_a_session_that_starts_while_a_person_is_asked_loses_nothing(workspace: Path, home: Path, mode: Mode):
    async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox, audit="full") as executor:
        await executor.execute("1")
    kept = [workspace / ".ipybox", *([state_dir()] if mode.sandbox else [])]
    command = [sys.executable, "-m", "ipybox", "clean", "--workspace", str(workspace)]
    ours, theirs = os.openpty()
    with os.fdopen(ours, "wb", buffering=0) as terminal, os.fdopen(theirs, "rb") as stdin:
        asking = await asyncio.create_subprocess_exec(*command, stdin=stdin, stdout=asyncio.subprocess.PIPE)
        assert asking.stdout is not None
        asked = await asyncio.wait_for(asking.stdout.readuntil(b"[y/N]"), WAIT)
        assert all(str(place) in asked.decode() for place in kept)
        async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox) as executor:
            await executor.execute("x = 1")
            before = files(state_dir(), scratch_root(), workspace)
            terminal.write(b"y\n")
            said, _ = await asyncio.wait_for(asking.communicate(), 4 * WAIT)
            assert asking.returncode == 1
            for place in kept:
                assert f"kept {place}, because ipybox was started after you were asked" in said.decode()
            assert files(state_dir(), scratch_root(), workspace) == before
            assert (await executor.execute("x")).text == "1"
    assert clean(workspace, "--yes")[0] == 0
    assert not (workspace / ".ipybox").exists()


@pytest.mark.parametrize(("answer", "status"), [("y", 0), ("no", 1)])
def test_people_are_asked(answer: str, status: int, workspace: Path):
    (workspace / ".ipybox").mkdir()
    ours, theirs = os.openpty()
    with os.fdopen(ours, "wb", buffering=0) as terminal, os.fdopen(theirs, "rb") as stdin:
        terminal.write(f"{answer}\n".encode())
        command = [sys.executable, "-m", "ipybox", "clean", "--workspace", str(workspace)]
        done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, timeout=4 * WAIT, check=False)

    assert done.returncode == status, done.stderr
    assert "Remove all of this? [y/N]" in done.stdout
    assert (workspace / ".ipybox").exists() == (status == 1)
    assert (workspace / "mcptools").exists()
    assert ("nothing was removed" in done.stdout) == (status == 1)
