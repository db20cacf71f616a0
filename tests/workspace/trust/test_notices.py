"""Tests what untrusted files are reported to do, and the command that trusts them."""

import sys
from pathlib import Path
from typing import Any

import pytest

from ipybox.errors import SandboxError
from ipybox.sandbox.settings import sandbox_settings
from ipybox.workspace.trust import TrustStore, policy_notice


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ({}, "run trust --workspace={workspace}"),
        ({"profile": "default"}, "run trust --workspace={workspace}"),
        ({"profile": "workspace"}, "run trust --workspace={workspace} --sandbox-profile=workspace"),
        ({"file": Path("/a b/x")}, "run trust --workspace={workspace} '/a b/x'"),
        ({"file": Path("/x\u202e")}, "run trust --workspace={workspace} '/x\\u202e'"),
    ],
    ids=["by_itself", "default", "profile", "file", "unprintable"],
)
def test_the_command_that_trusts_names_what_is_needed(
    workspace: Path, state: Path, options: dict[str, Any], command: str
):
    assert TrustStore(workspace).command(program=["run"], **options) == command.format(workspace=workspace)


def test_the_command_of_a_container_names_no_place_of_it(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(workspace))
    store = TrustStore(workspace)

    assert not store.can_remember
    assert store.command(program=["run"]) == "ipybox trust"
    assert store.command("workspace", workspace / "a" / "b.json") == "ipybox trust --sandbox-profile=workspace b.json"


@pytest.mark.parametrize("installed", ["here", "linked", "elsewhere", "without_script"])
def test_the_command_that_trusts_starts_this_ipybox(
    workspace: Path, tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch, installed: str
):
    environment, path = tmp_path / "environment", tmp_path / "bin"
    for directory in (environment, path):
        directory.mkdir()
    if installed != "without_script":
        (environment / "ipybox").touch(0o755)
    if installed == "linked":
        (path / "ipybox").symlink_to(environment / "ipybox")
    if installed == "elsewhere":
        (path / "ipybox").touch(0o755)
    monkeypatch.setattr(sys, "executable", str(environment / "python"))
    monkeypatch.setenv("PATH", str(environment if installed == "here" else path))

    expected = {
        **dict.fromkeys(("here", "linked"), "ipybox"),
        "elsewhere": f"{environment}/ipybox",
        "without_script": f"{environment}/python -I -m ipybox",
    }
    assert TrustStore(workspace).command() == f"{expected[installed]} trust --workspace={workspace}"


def test_the_notice_of_a_policy_says_what_holds_and_how_to_trust_it(workspace: Path, state: Path):
    notice = policy_notice(workspace / "a" / "ipybox.yaml", TrustStore(workspace), ["run"])

    assert notice == (
        "The workspace's ipybox.yaml is not trusted: it can only deny tool calls, and ipybox asks about all others. "
        f"To review and apply all its rules, run `run trust --workspace={workspace}` in a terminal, then start a new "
        "executor."
    )


def test_a_file_that_is_not_trusted_says_how_to_trust_it(workspace: Path, file: Path):
    other = workspace / "a" / "other.json"
    other.parent.mkdir()
    other.write_text(file.read_text())
    store = TrustStore(workspace)

    found = sandbox_settings(store, file=file, program=["run"])
    named = sandbox_settings(store, file=other, profile="workspace", program=["run"])

    assert found.trust == f"run trust --workspace={workspace}"
    assert named.trust == f"run trust --workspace={workspace} --sandbox-profile=workspace {other}"
    assert named.notices == (
        f"The workspace's other.json is not trusted: ipybox ignores it. To see and apply it, run `{named.trust}` "
        "in a terminal, then start a new executor.",
    )
    file.unlink()
    missing = sandbox_settings(store, discover=True, program=["run"])
    assert (missing.trust, missing.notices) == (found.trust, ()), "a file that the user makes needs it"


@pytest.mark.parametrize("place", ["workspace", "."], ids=["of_the_workspace", "of_the_user"])
def test_a_file_of_settings_that_is_missing_is_named(workspace: Path, tmp_path: Path, place: str):
    missing = tmp_path / place / "missing.json"

    with pytest.raises(SandboxError, match=f"the sandbox settings {missing} don't exist: "):
        sandbox_settings(TrustStore(workspace), file=missing)
