"""The guard: protected names of a workspace stay taken as long as any sandbox runs in it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ipybox import CodeExecutor
from ipybox.sandbox import placeholders
from ipybox.support.names import PLACEHOLDERS, STATE_DIR
from tests.code_exec.cells import process_of
from tests.code_exec.test_lifecycle import command_of
from tests.sandbox.repositories import git
from tests.servers import WAIT, is_alive, parent

NAMES = set(PLACEHOLDERS)
FILES = {name for name, content in PLACEHOLDERS.items() if content is not None}
ARGUMENTS = [f"{name}/" if content is None else f"{name}={content}" for name, content in PLACEHOLDERS.items()]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    directory = tmp_path / "workspace"
    (directory / STATE_DIR).mkdir(parents=True)
    return directory


def command(workspace: Path, *arguments: str, home: Path | None = None) -> list[str]:
    private = (home or workspace.parent) / "private"
    private.mkdir(parents=True, exist_ok=True)
    (private / "file").touch()
    state = workspace.parent / "state" if home is None else home / home.name
    state.mkdir(exist_ok=True)
    directories = map(str, (workspace, state, private))
    return [sys.executable, "-I", "-S", placeholders.__file__, *directories, *ARGUMENTS, "--", *arguments]


@contextmanager
def guarded(workspace: Path, *launcher: str, home: Path | None = None) -> Generator[subprocess.Popen[str]]:
    """Runs a guard, started by a launcher if any, around a command that lives until its stdin is closed."""
    with subprocess.Popen(
        [*launcher, *command(workspace, "sh", "-c", "echo ready; exec cat", home=home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
            process.communicate(timeout=WAIT)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def entries(workspace: Path) -> set[str]:
    return {path.name for path in workspace.iterdir()} - {STATE_DIR}


def test_protected_names_are_taken_while_the_command_runs_and_free_afterwards(workspace: Path):
    with guarded(workspace):
        assert entries(workspace) == NAMES
        assert {path.name for path in workspace.iterdir() if path.is_file()} == FILES
        assert all(name.startswith(".") for name in NAMES), "`ls` shows nothing"
        assert json.loads((workspace / ".mcp.json").read_text()) == {"mcpServers": {}}
        assert (workspace.parent / "private").exists()

    assert entries(workspace) == set()
    assert not (workspace.parent / "private").exists()


def test_what_the_user_has_stays_as_it_is(workspace: Path):
    (workspace / ".mcp.json").write_text("{}")
    (workspace / ".env").touch()
    (workspace / ".git").mkdir()

    with guarded(workspace):
        assert (workspace / ".mcp.json").read_text() == "{}"

    assert entries(workspace) == {".mcp.json", ".env", ".git"}


def test_what_the_user_put_in_the_place_of_a_directory_is_kept(workspace: Path):
    with guarded(workspace):
        (workspace / ".gitconfig").rmdir()
        (workspace / ".gitconfig").touch()

    assert entries(workspace) == {".gitconfig"}


def test_a_placeholder_that_the_user_has_filled_meanwhile_is_kept(workspace: Path):
    with guarded(workspace):
        (workspace / ".env").write_text("TOKEN=1")
        (workspace / ".vscode" / "settings.json").write_text("{}")

    assert entries(workspace) == {".env", ".vscode"}


def test_the_last_of_several_sandboxes_frees_the_names(workspace: Path):
    with guarded(workspace):
        with guarded(workspace):
            pass
        assert entries(workspace) == NAMES

    assert entries(workspace) == set()


def test_placeholders_of_a_killed_guard_are_removed_by_the_next(workspace: Path):
    with guarded(workspace) as killed:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait(WAIT)
    assert entries(workspace) == NAMES

    with guarded(workspace):
        pass

    assert entries(workspace) == set()


@pytest.mark.sandbox
@pytest.mark.kernel
@pytest.mark.asyncio
@pytest.mark.parametrize("also_bubblewrap", [False, True], ids=["guard", "guard_and_bubblewrap"])
async def test_what_a_killed_guard_leaves_is_removed_with_the_executor(workspace: Path, also_bubblewrap: bool):
    # Only the sandbox has a guard.
    git(workspace, "init", "-q")
    exclude = workspace / ".git" / "info" / "exclude"
    before = exclude.read_bytes()
    async with CodeExecutor(working_dir=workspace, sandbox=True) as executor:
        await executor.execute("1", timeout=WAIT)
        assert entries(workspace) == NAMES
        gateway = await process_of(executor, "gateway")
        victims = [
            pid for pid in parents(gateway) if is_guard(pid) or (also_bubblewrap and "bwrap " in command_of(pid))
        ]
        for pid in victims[::-1]:
            os.kill(pid, signal.SIGKILL)

    assert entries(workspace) == {".git"}
    assert exclude.read_bytes() == before
    assert not is_alive(gateway)


def parents(pid: int) -> list[int]:
    """Returns the processes of the sandbox around a process, from within."""
    found = [pid]
    while not is_guard(found[-1]):
        found.append(parent(found[-1]))
    return found


def is_guard(pid: int) -> bool:
    return "sandbox/placeholders.py " in command_of(pid)


#: Starts a program as a shell starts a background job, which ignores these signals.
IGNORING = ("sh", "-c", 'trap "" INT TERM; exec "$@"', "sh")


@pytest.mark.parametrize("launcher", [(), IGNORING], ids=["directly", "by_a_process_that_ignores_it"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_reaches_the_command_and_names_are_freed(
    workspace: Path, number: signal.Signals, launcher: tuple[str, ...]
):
    with guarded(workspace, *launcher) as process:
        process.send_signal(number)
        assert process.wait(WAIT) == 128 + number

    assert entries(workspace) == set()


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_the_exit_status_is_that_of_the_command(workspace: Path, script: str, status: int):
    assert subprocess.run(command(workspace, "sh", "-c", script), timeout=WAIT).returncode == status


@pytest.mark.parametrize("how", ["", "setsid "], ids=["same_session", "daemon"])
def test_nothing_of_a_command_that_is_killed_runs_when_its_names_are_free(workspace: Path, how: str):
    script = f"{how}sh -c 'echo $$; exec sleep 1000' & read line; kill -9 $$"
    with subprocess.Popen(
        command(workspace, "sh", "-c", script), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        left = int(process.stdout.readline())
        try:
            process.communicate("\n", timeout=WAIT)
            assert not is_alive(left)
        finally:
            if is_alive(left):
                os.kill(left, signal.SIGKILL)

    assert process.returncode == 128 + signal.SIGKILL
    assert entries(workspace) == set()


def test_a_command_that_is_not_there_fails_and_leaves_nothing(workspace: Path):
    result = subprocess.run(command(workspace, "no-such-program"), timeout=WAIT, capture_output=True, text=True)

    assert result.returncode != 0
    assert "no-such-program" in result.stderr
    assert entries(workspace) == set()


def test_the_command_has_the_standard_streams(workspace: Path):
    result = subprocess.run(command(workspace, "cat"), input="hello", timeout=WAIT, capture_output=True, text=True)

    assert (result.stdout, result.stderr) == ("hello", "")


def test_only_protected_names_are_ever_removed(workspace: Path):
    (workspace / "mine").touch()
    (workspace.parent / "state").mkdir()
    (workspace.parent / "state" / "placeholders.lock").write_text(json.dumps(["mine"]) + "\nmine\n.mcp.json\n../x")
    (workspace / ".mcp.json").touch()

    with guarded(workspace):
        pass

    assert entries(workspace) == {"mine"}
