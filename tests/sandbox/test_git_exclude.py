"""Git sees nothing of a sandbox: placeholders are listed in the `info/exclude` of the workspace's repository."""

import os
import signal
import stat
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from ipybox import CodeExecutor
from ipybox.sandbox import git_exclude
from ipybox.support.names import PLACEHOLDERS, STATE_DIR
from tests.conftest import Mode
from tests.sandbox.repositories import git
from tests.sandbox.test_placeholders import entries, guarded
from tests.servers import WAIT


def repository(directory: Path) -> Path:
    directory.mkdir(parents=True)
    git(directory, "init", "-q")
    (directory / "file").write_text("content\n")
    git(directory, "add", "file")
    git(directory, "commit", "-qm", "first")
    return directory


def worktree(directory: Path) -> Path:
    git(repository(directory / "main"), "worktree", "add", "-q", str(directory / "tree"))
    return directory / "tree"


def submodule(directory: Path) -> Path:
    top = repository(directory / "top")
    git(top, "submodule", "add", "-q", str(repository(directory / "library")), "sub")
    git(top, "commit", "-qm", "submodule")
    return top / "sub"


def subdirectory(directory: Path) -> Path:
    sub = repository(directory / "top") / "a dir [x]!" / "sub"
    sub.mkdir(parents=True)
    (sub / "tracked").touch()
    git(sub, "add", ".")
    git(sub, "commit", "-qm", "second")
    return sub


LAYOUTS = [repository, worktree, submodule, subdirectory]


def exclude_of(workspace: Path) -> Path:
    return workspace / git(workspace, "rev-parse", "--git-path", "info/exclude").strip()


def prepared(workspace: Path) -> Path:
    """Makes the directory that the host makes before a sandbox starts."""
    (workspace / STATE_DIR).mkdir()
    (workspace / STATE_DIR / ".gitignore").write_text("*\n")
    return workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return prepared(repository(tmp_path / "workspace"))


@pytest.mark.kernel
@pytest.mark.asyncio
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_git_sees_nothing_of_ipybox(layout: Callable[[Path], Path], tmp_path: Path, mode: Mode):
    workspace = layout(tmp_path / "layout")
    if layout is subdirectory and mode.sandbox:  # whose path the sandbox could not name
        workspace = workspace.rename(tmp_path / "layout" / "top" / "sub")
        git(workspace, "add", "-A", "..")
        git(workspace, "commit", "-qm", "moved")
    superproject = workspace.parent if layout is submodule else workspace
    before = exclude_of(workspace).read_bytes() if exclude_of(workspace).exists() else None
    async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox, audit="full") as executor:
        assert (await executor.execute("from IPython.display import HTML; HTML('<b>kept</b>')")).files
        await executor.execute("from ipybox.guest.tools import content; content.save(b'data', 'tool', '.txt')")
        for module in ("own.py", "mcptools/server/tool.py", "gentools/action/api.py"):
            (workspace / module).parent.mkdir(parents=True, exist_ok=True)
            (workspace / module).write_text("value = 1\n")
        git(workspace, "add", "-A")
        git(workspace, "commit", "-qm", "modules")
        git(superproject, "commit", "-qam", "modules", "--allow-empty")
        await executor.execute("import own, mcptools.server.tool, gentools.action.api")
        assert len([*workspace.rglob("__pycache__/*.pyc")]) == 3
        result = await executor.execute("!git status --porcelain")
        assert result.text is None
        for place in (workspace, superproject):
            assert git(place, "status", "--porcelain") == ""
            git(place, "add", "-A")
            assert git(place, "status", "--porcelain") == ""
        await executor.reset()
        assert git(superproject, "status", "--porcelain") == ""
    assert git(superproject, "status", "--porcelain") == ""
    assert (exclude_of(workspace).read_bytes() if exclude_of(workspace).exists() else None) == before


@pytest.mark.parametrize("layout", LAYOUTS)
def test_git_commands_that_remove_untracked_files_leave_names_taken(layout: Callable[[Path], Path], tmp_path: Path):
    workspace = prepared(layout(tmp_path / "layout"))
    with guarded(workspace):
        taken = entries(workspace)
        assert taken >= PLACEHOLDERS.keys()
        (workspace / "untracked").touch()
        git(workspace, "stash", "-u")
        git(workspace, "clean", "-fdq")
        assert entries(workspace) == taken
        assert git(workspace, "status", "--porcelain") == ""


@pytest.mark.parametrize("content", [None, b"", b"mine", b"mine\n", b"# a\n\n*.o\r\n\xff", b"mine\n\n\n"], ids=repr)
def test_lines_of_the_user_stay_byte_for_byte(content: bytes | None, workspace: Path):
    exclude = exclude_of(workspace)
    if content is None:
        exclude.unlink()
        exclude.parent.rmdir()
    else:
        exclude.write_bytes(content)
        exclude.chmod(0o640)

    with guarded(workspace):
        during = exclude.read_bytes()
        assert during.startswith(content or b"")
        assert content is None or stat.S_IMODE(exclude.stat().st_mode) == 0o640

    assert (exclude.read_bytes() if exclude.exists() else b"") == (content or b"")
    assert content != b"mine" or stat.S_IMODE(exclude.stat().st_mode) == 0o640


@pytest.mark.parametrize("before", [b"", b"first", b"first\n"])
def test_lines_that_the_user_writes_while_a_sandbox_runs_stay(before: bytes, workspace: Path):
    exclude = exclude_of(workspace)
    exclude.write_bytes(before)
    with guarded(workspace):
        lines = exclude.read_bytes().split(b"\n")
        lines.insert(-3, b"/among")
        exclude.write_bytes(b"\n".join([*lines[:-1], b"last", b""]))

    assert exclude.read_bytes().split() == [*before.split(), b"/among", b"last"]


def test_the_last_of_several_sandboxes_removes_the_lines(workspace: Path):
    exclude = exclude_of(workspace)
    before = exclude.read_bytes()
    with guarded(workspace):
        during = exclude.read_bytes()
        with guarded(workspace):
            assert exclude.read_bytes() == during
        assert exclude.read_bytes() == during
    assert exclude.read_bytes() == before


def test_workspaces_of_one_repository_have_lines_of_their_own(workspace: Path):
    exclude = exclude_of(workspace)
    before = exclude.read_bytes()
    subs = [workspace / name for name in ("one", "two")]
    for sub in subs:
        sub.mkdir()
        prepared(sub)
    with ExitStack() as first:
        first.enter_context(guarded(workspace))
        for sub in subs:
            first.enter_context(guarded(sub, home=workspace.parent / sub.name))
        assert git(workspace, "status", "--porcelain") == ""
        assert b"/two/.env\n" in exclude.read_bytes()
    assert exclude.read_bytes() == before


def test_the_next_sandbox_cleans_up_after_one_that_was_killed(workspace: Path):
    exclude = exclude_of(workspace)
    before = exclude.read_bytes()
    with guarded(workspace) as killed:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait(WAIT)
    assert exclude.read_bytes() != before
    assert git(workspace, "status", "--porcelain") == ""
    (workspace / ".env").write_text("TOKEN=1")  # the user's from now on

    with guarded(workspace):
        assert git(workspace, "status", "--porcelain") == "?? .env\n"

    assert exclude.read_bytes() == before
    assert entries(workspace) == {".git", "file", ".env"}


def test_what_the_user_has_is_shown_as_ever(workspace: Path):
    (workspace / ".env").touch()
    (workspace / ".vscode").mkdir()
    (workspace / ".vscode" / "settings.json").touch()
    with guarded(workspace):
        assert git(workspace, "status", "--porcelain") == "?? .env\n?? .vscode/\n"


def empty(directory: Path) -> Path:
    directory.mkdir()
    return directory


def subdirectory_without_wildcards(directory: Path) -> Path:
    sub = repository(directory) / "sub"
    sub.mkdir()
    return sub


@pytest.mark.parametrize("layout", [empty, subdirectory_without_wildcards])
@pytest.mark.parametrize("sandboxes", [1, 2])
def test_a_repository_that_people_create_meanwhile_contains_no_placeholder(
    layout: Callable[[Path], Path], sandboxes: int, tmp_path: Path
):
    workspace = prepared(layout(tmp_path / "layout"))
    (workspace / "file").write_text("content\n")
    with ExitStack() as stack:
        stack.enter_context(guarded(workspace))
        git(workspace, "init", "-q")
        for _ in range(sandboxes - 1):
            stack.enter_context(guarded(workspace))
        git(workspace, "add", "-A")
        assert git(workspace, "status", "--porcelain") == "A  file\n"
        git(workspace, "commit", "-qm", "first")
        git(workspace, "submodule", "add", "-q", str(repository(tmp_path / "library")), "sub")
        git(workspace, "commit", "-qm", "second")
        assert git(workspace, "status", "--porcelain") == ""

    assert git(workspace, "ls-files").split() == [".gitmodules", "file", "sub"]
    assert entries(workspace) == {".git", ".gitmodules", "file", "sub"}
    assert not exclude_of(workspace).exists()


def test_what_is_left_of_a_repository_that_never_was_one_is_removed_by_the_next_sandbox(tmp_path: Path):
    workspace = prepared(empty(tmp_path / "workspace"))
    with guarded(workspace) as killed:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait(WAIT)
    assert (workspace / ".git" / "info" / "exclude").exists()

    with guarded(workspace):
        assert entries(workspace) == PLACEHOLDERS.keys()
    assert entries(workspace) == set()


@pytest.mark.parametrize("own", [None, b"mine\n"], ids=["empty", "with_a_list"])
def test_a_directory_of_the_user_that_is_no_repository_stays_as_it_is(own: bytes | None, tmp_path: Path):
    workspace = prepared(empty(tmp_path / "workspace"))
    (workspace / ".git").mkdir()
    if own is not None:
        (workspace / ".git" / "info").mkdir()
        (workspace / ".git" / "info" / "exclude").write_bytes(own)
    before = {path: path.is_file() and path.read_bytes() for path in (workspace / ".git").rglob("*")}
    with guarded(workspace):
        pass
    assert {path: path.is_file() and path.read_bytes() for path in (workspace / ".git").rglob("*")} == before
    assert entries(workspace) == {".git"}


def test_without_a_repository_names_are_taken(tmp_path: Path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    prepared(workspace)
    with guarded(workspace):
        assert entries(workspace) == PLACEHOLDERS.keys()


def test_a_list_that_is_too_large_is_left_alone(workspace: Path):
    exclude = exclude_of(workspace)
    exclude.write_bytes(content := b"# x\n" * (1 << 18) + b"#")

    with guarded(workspace):
        assert (workspace / ".env").is_file()
    assert exclude.read_bytes() == content


def plant_file(workspace: Path, target: Path) -> None:
    (workspace / ".git").write_text(f"gitdir: {target}\n")


def plant_link(workspace: Path, target: Path) -> None:
    (workspace / ".git").symlink_to(target)


def plant_worktree(workspace: Path, target: Path) -> None:
    """Makes what looks like a worktree of another repository, which does not know it."""
    made = workspace / "made" / "worktrees" / "x"
    made.mkdir(parents=True)
    (made / "commondir").write_text(str(target))
    (made / "gitdir").write_text(str(workspace / ".git"))
    (workspace / ".git").write_text(f"gitdir: {made}\n")


def plant_info_link(workspace: Path, target: Path) -> None:
    git(workspace, "init", "-q")
    info = workspace / ".git" / "info"
    (info / "exclude").unlink(missing_ok=True)
    info.rmdir()
    info.symlink_to(target / "info")


def plant_exclude_link(workspace: Path, target: Path) -> None:
    git(workspace, "init", "-q")
    (workspace / ".git" / "info" / "exclude").unlink()
    (workspace / ".git" / "info" / "exclude").symlink_to(target / "info" / "exclude")


def plant_hard_link(workspace: Path, target: Path) -> None:
    git(workspace, "init", "-q")
    (workspace / ".git" / "info" / "exclude").unlink()
    os.link(target / "info" / "exclude", workspace / ".git" / "info" / "exclude")


def plant_pipe(workspace: Path, target: Path) -> None:
    git(workspace, "init", "-q")
    (workspace / ".git" / "info" / "exclude").unlink()
    os.mkfifo(workspace / ".git" / "info" / "exclude")


PLANTED = [plant_file, plant_link, plant_worktree, plant_info_link, plant_exclude_link, plant_hard_link, plant_pipe]


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_repository_leads_nowhere_else(plant: Callable[[Path, Path], None], tmp_path: Path):
    target = repository(tmp_path / "other") / ".git"
    exclude = target / "info" / "exclude"
    before = exclude.read_bytes()
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    prepared(workspace)
    plant(workspace, target)

    with guarded(workspace):
        assert exclude.read_bytes() == before
        assert (workspace / ".env").is_file()

    assert exclude.read_bytes() == before
    assert not (workspace / ".env").exists()


def test_what_code_has_prepared_is_read_in_linear_time(workspace: Path, tmp_path: Path):
    made = workspace / "made"
    for name in ("objects", "refs", "info"):
        (made / name).mkdir(parents=True)
    (made / "HEAD").touch()
    (made / "config").write_text(f"a = x{' ' * 900_000}x\nworktree = ../inner\n")
    (made / "info" / "exclude").write_text("# ipybox : names that a running sandbox keeps taken\n" * 20_000)
    inner = workspace / "inner"
    inner.mkdir()
    (inner / ".git").write_text("gitdir: ../made\n")

    start = time.process_time()
    with open(tmp_path / "lock", "w") as lock:
        git_exclude.update(str(inner), {".env"}, {".env"}, "", lock.fileno())

    assert time.process_time() - start < 2  # of what takes milliseconds, and took a minute
