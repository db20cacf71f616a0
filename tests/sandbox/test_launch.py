"""What srt is told: the user's settings, and on top of them what no setting can open."""

import json
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jupyter_core.paths import jupyter_runtime_dir

import ipybox
from ipybox.errors import SandboxError
from ipybox.sandbox.launch import Sandbox
from ipybox.sandbox.settings import PROFILES, SandboxSettings
from ipybox.tool_exec.seal import key_path

DEFAULT = PROFILES["default"]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    directory = tmp_path / "workspace"
    directory.mkdir()
    return directory


def told(workspace: Path, settings: SandboxSettings = DEFAULT) -> dict[str, Any]:
    """Returns the settings that srt gets."""
    Sandbox(settings, workspace).kernel_command(["true"], workspace.parent, workspace.parent / "guest")
    return json.loads((workspace.parent / "srt.json").read_text())


def test_keys_and_tokens_can_be_neither_read_nor_written(workspace: Path):
    filesystem = told(workspace)["filesystem"]

    for secret in (str(key_path().parent), jupyter_runtime_dir()):
        assert secret in filesystem["denyRead"]
        assert secret in filesystem["denyWrite"]


def test_the_users_lists_are_kept(workspace: Path):
    content = told(workspace, replace(DEFAULT, deny_read=("x",), allowed_domains=("a.example",), denied_domains=("b",)))

    assert "x" in content["filesystem"]["denyRead"]
    assert ".env*" not in content["filesystem"]["denyRead"]
    assert content["network"]["allowedDomains"] == ["a.example"]
    assert content["network"]["deniedDomains"] == ["b"]


def test_what_the_host_runs_or_believes_is_not_writable(workspace: Path):
    settings = workspace / "sandbox-config.json"

    deny_write = told(workspace, replace(DEFAULT, file=settings))["filesystem"]["denyWrite"]

    assert {".ipybox", ".env", ".claude", str(settings)} <= set(deny_write)
    assert {sys.prefix, str(Path(ipybox.__file__).parent)} <= set(deny_write)


def test_programs_below_the_workspace_are_not_writable(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    programs = workspace / "node_modules" / ".bin"
    programs.mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")

    assert str(programs) in told(workspace)["filesystem"]["denyWrite"]


def test_a_workspace_on_the_path_stays_writable(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", f"{workspace}{os.pathsep}{workspace.parent}{os.pathsep}{os.environ['PATH']}")

    deny_write = told(workspace)["filesystem"]["denyWrite"]

    assert not any(workspace.is_relative_to(path) for path in deny_write)


def test_a_repository_can_be_worked_with_and_none_can_be_made(workspace: Path):
    assert ".git" in told(workspace)["filesystem"]["denyWrite"]

    (workspace.parent / "srt.json").unlink()
    (workspace / ".git").mkdir()
    (workspace / ".git" / "HEAD").touch()
    assert ".git" not in told(workspace)["filesystem"]["denyWrite"]


@pytest.mark.parametrize(
    "entry",
    [
        *("{key}", "{directory}", "{directory}/../ipybox/seal.key", "{link}"),
        *("{directory}/*", "{directory}/../*", "/**", "~/../**/seal.key", "{directory}*"),
    ],
)
def test_no_setting_opens_the_key(workspace: Path, entry: str):
    (workspace / "link").symlink_to(key_path().parent)
    opened = entry.format(key=key_path(), directory=key_path().parent, link=workspace / "link")

    with pytest.raises(SandboxError, match=r"'filesystem.allowRead' can't open .*: .* holds keys and tokens"):
        told(workspace, replace(DEFAULT, allow_read=(opened,)))


def test_settings_are_readable_for_the_user_alone(workspace: Path):
    told(workspace)

    assert stat.S_IMODE((workspace.parent / "srt.json").stat().st_mode) == 0o600


def test_the_state_directory_is_made_and_kept_out_of_repositories(workspace: Path):
    told(workspace)

    assert (workspace / ".ipybox" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_state_directory_that_is_none_is_refused(workspace: Path, kind: str):
    if kind == "link":
        (workspace / ".ipybox").symlink_to(workspace.parent, target_is_directory=True)
    else:
        (workspace / ".ipybox").touch()

    with pytest.raises(SandboxError, match=r"\.ipybox"):
        told(workspace)
