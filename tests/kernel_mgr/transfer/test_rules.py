"""Names that are not written, and secrets that are not read."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer
from ipybox.kernel_mgr.transfer.paths import TransferRules
from ipybox.sandbox.policy import DEEPEST_PATH, LONGEST_PATH
from ipybox.sandbox.settings import PROFILES, SandboxSettings
from ipybox.support.state import state_dir
from tests.kernel_mgr.transfer.contents import members, tar
from tests.servers import ROOT
from tests.support.test_safe_directory import names

#: What programs of the host believe or execute.
PROTECTED = (
    *(".env", ".env.local", "a/.ENV", ".ipybox", ".ipybox/packages/x", ".git/hooks/pre-commit", "sub/.git/config"),
    *(".mcp.json", ".claude/settings.json", ".vscode/tasks.json", "sandbox-config.json", "ipybox.yaml"),
    *(".bashrc", "sub/.gitconfig"),
)
SECRET = (
    *(".env", ".env.local", "a/.Env", ".ipybox/seal", ".envrc", ".npmrc", "a/.mcp.json"),
    ".claude/settings.local.json",
)


@pytest.mark.parametrize("path", PROTECTED)
def test_protected_names_are_not_written(path: str, workspace: FileTransfer, root: Path, tmp_path: Path):
    (tmp_path / "source").write_text("new")

    for act in (
        lambda: workspace.upload(path, b"new"),
        lambda: workspace.upload(path, tar(("x", b"")), "tar"),
        lambda: workspace.copy_in(tmp_path / "source", path),
    ):
        with pytest.raises(PermissionError, match=r"can't be uploaded: it (is protected|may contain secrets)"):
            act()
    done = workspace.upload("", tar((path, b"new"), ("other", b"")), "tar")
    assert len(done.omitted) == 1
    assert names(root) == ["other"]


def test_protected_names_are_so_in_any_case_and_in_each_allowed_directory(root: Path, outside: Path):
    for path in (".GIT/config", "sub/.VScode/tasks.json", "claude.MD"):
        with pytest.raises(PermissionError, match="can't be uploaded: it is protected"):
            FileTransfer(root, [outside]).upload(outside / path, b"new")
    assert names(outside) == ["file"]


@pytest.mark.parametrize("path", SECRET)
def test_secrets_are_not_read(path: str, workspace: FileTransfer, root: Path, tmp_path: Path):
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_text("secret")
    (root / "link").symlink_to(path)

    for name in (path, "link"):
        with pytest.raises(PermissionError, match="can't be downloaded: it may contain secrets"):
            workspace.download(name)
        with pytest.raises(PermissionError, match="can't be downloaded: it may contain secrets"):
            workspace.copy_out(name, tmp_path / "copy")
    downloaded = workspace.download(".")
    assert b"secret" not in downloaded.data
    assert any("may contain secrets" in line for line in downloaded.omitted)


def test_paths_are_transferred_up_to_a_length(root: Path):
    rules = TransferRules(root, [root])
    room = LONGEST_PATH - len(str(root)) - 1
    assert rules.download_denial(root / ("x" * room)) is None
    for path in (root / ("x" * (room + 1)), root.joinpath(*["x"] * DEEPEST_PATH)):
        assert rules.upload_denial(path) == "its path is too long"


def test_configuration_that_is_no_secret_is_read(workspace: FileTransfer, root: Path):
    (root / ".git").mkdir()
    (root / ".git/config").write_text("[core]")

    assert workspace.download(".git/config").data == b"[core]"


def test_configuration_of_git_with_credentials_is_not_read(workspace: FileTransfer, root: Path):
    (root / ".git").mkdir()
    (root / ".git/config").write_text('[remote "origin"]\n\turl = https://me:secret@example.org/x\n')

    with pytest.raises(PermissionError, match="it may contain secrets"):
        workspace.download(".git/config")
    assert b"secret" not in workspace.download(".").data


def test_names_above_the_workspace_do_not_count(tmp_path: Path):
    root = tmp_path / ".claude/worktrees/.env.d"
    root.mkdir(parents=True)

    assert FileTransfer(root).upload("file", b"x").path == root / "file"
    assert FileTransfer(root).download("file").data == b"x"
    with pytest.raises(PermissionError, match="may contain secrets"):
        FileTransfer(root, [tmp_path]).download(tmp_path / ".claude/.env")


def test_keys_and_programs_of_ipybox_are_out_of_reach_in_directories_that_are_allowed():
    home = state_dir().parent
    rules = TransferRules(home, [home, ROOT])

    assert rules.download_denial(state_dir() / "seal.key")
    assert rules.upload_denial(ROOT / "ipybox" / "errors.py")
    assert rules.upload_denial(Path(os.path.realpath(sys.prefix)) / "lib" / "x.py")
    assert rules.upload_denial(ROOT / "file") is None


def with_settings(root: Path, allowed: Path | str = ".", **changed: object) -> FileTransfer:
    settings = replace(SandboxSettings(source="test"), **changed)  # pyright: ignore[reportArgumentType]  a test's own
    return FileTransfer(root, [allowed], settings=lambda: settings)


def test_what_the_sandbox_hides_from_code_is_not_to_be_had_by_a_transfer(root: Path):
    for name in ("hidden", "fixed", "open"):
        (root / name).mkdir()
        (root / name / "file").write_text(name)
    (root / "settings.json").touch()
    workspace = with_settings(root, deny_read=("hidden",), deny_write=("fixed",), file=root / "settings.json")

    with pytest.raises(PermissionError, match="the sandbox hides it"):
        workspace.download("hidden/file")
    assert list(members(workspace.download(".").data)) == ["fixed", "fixed/file", "open", "open/file", "settings.json"]
    for path in ("hidden/file", "fixed/file", "settings.json"):
        with pytest.raises(PermissionError, match="can't be uploaded"):
            workspace.upload(path, b"")
    assert workspace.upload("open/file", b"").files == 1


def test_allowed_directory_counts_as_named_in_the_settings(
    root: Path, outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    (outside / ".ssh").mkdir()
    workspace = FileTransfer(root, [outside], settings=lambda: PROFILES["workspace"])

    assert workspace.download(outside / "file").data == b"outside"
    assert workspace.upload(outside / "new", b"").path == outside / "new"
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/id").touch()
    with pytest.raises(PermissionError, match="the sandbox hides it"):
        FileTransfer(root, [tmp_path], settings=lambda: PROFILES["default"]).download(tmp_path / ".ssh/id")
