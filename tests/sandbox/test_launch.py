"""What srt is told: the user's settings, and on top of them what no setting can open."""

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jupyter_core.paths import jupyter_runtime_dir

import ipybox
from ipybox.errors import SandboxError
from ipybox.kernel_mgr import gateway_launch
from ipybox.kernel_mgr.gateway_launch import GatewayConfig
from ipybox.sandbox.launch import Sandbox
from ipybox.sandbox.settings import PROFILES, SandboxSettings
from ipybox.support.state import scratch_root, state_dir
from tests.servers import NODE_MODULES, WAIT

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


@pytest.mark.sandbox
@pytest.mark.skipif(sys.platform != "linux", reason="macOS has one namespace of processes")
@pytest.mark.parametrize(
    ("user", "landlock", "weaker", "one_namespace"),
    [(0, True, False, True), (0, False, False, False), (0, True, True, False), (1000, True, False, False)],
    ids=["root", "root_without_landlock", "root_in_a_container", "ordinary_user"],
)
async def test_srt_omits_its_helper_for_root_only_and_only_where_landlock_replaces_it(
    user: int, landlock: bool, weaker: bool, one_namespace: bool, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gateway_launch, "is_available", lambda: landlock)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    settings = replace(DEFAULT, weaker_nested_sandbox=weaker)
    launch = await GatewayConfig(working_dir=workspace, sandbox=settings).prepare(None)
    try:
        network = json.loads((launch.scratch.path / "srt.json").read_text())["network"]
    finally:
        launch.scratch.remove()

    assert network.get("allowAllUnixSockets", False) == one_namespace
    assert ("--landlock" in launch.command) == one_namespace
    assert "--confine" in launch.command


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has no Landlock")
def test_a_gateway_that_depends_on_landlock_ends_without_it():
    code = """
import os, sys
from ipybox.guest import gateway, landlock
landlock.CREATE_RULESET = 1023  # as in a Linux without Landlock
gateway.CORE_PATTERN = "/missing"  # else root needs Landlock in any case
os.environ["IPYBOX_RUNTIME_DIR"] = ""
gateway.read_environment = lambda _: sys.exit("it goes on")
sys.argv[1:] = ["--confine", *sys.argv[1:]]
gateway.main()
"""
    for option, said in (["--landlock"], "needs Landlock"), ([], "it goes on"):
        ended = subprocess.run(
            [sys.executable, "-c", code, *option], capture_output=True, text=True, timeout=WAIT, check=False
        )
        assert (said in ended.stderr, ended.returncode) == (True, 1), ended.stderr


def test_keys_and_tokens_can_be_neither_read_nor_written(workspace: Path):
    filesystem = told(workspace)["filesystem"]

    for secret in (str(state_dir()), jupyter_runtime_dir()):
        assert secret in filesystem["denyRead"]
        assert secret in filesystem["denyWrite"]


def test_the_users_lists_are_kept(workspace: Path):
    (workspace / ".env").touch()
    settings = replace(DEFAULT, deny_read=("x", "~/y"), allowed_domains=("a.example",), denied_domains=("b",))
    content = told(workspace, settings)

    assert {str(workspace / "x"), "~/y"} <= set(content["filesystem"]["denyRead"])
    assert str(workspace / ".env") not in content["filesystem"]["denyRead"]
    assert content["network"]["allowedDomains"] == ["a.example"]
    assert content["network"]["deniedDomains"] == ["b"]


def test_what_the_host_runs_or_believes_is_not_writable(workspace: Path):
    settings = workspace / "settings.json"

    deny_write = told(workspace, replace(DEFAULT, file=settings))["filesystem"]["denyWrite"]

    names = (".ipybox", ".env", ".claude", ".git", ".mcp.json", ".gitmodules")
    assert {*(str(workspace / name) for name in names), str(settings)} <= set(deny_write)
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


def test_of_srt_only_what_it_starts_inside_is_opened(workspace: Path):
    package = NODE_MODULES / "@anthropic-ai" / "sandbox-runtime"

    assert str(package.resolve() / "vendor") in told(workspace)["filesystem"]["allowRead"]


def test_an_srt_that_npm_did_not_install_opens_nothing(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    before = told(workspace)["filesystem"]["allowRead"]
    (workspace.parent / "srt.json").unlink()
    program = workspace.parent / "bin" / "srt"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 0.0.78\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")

    opened = told(workspace)["filesystem"]["allowRead"]

    assert set(opened) < set(before)
    assert str(workspace.parent) not in opened


def test_a_repository_can_be_opened_but_for_its_hooks_and_configuration(workspace: Path):
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / ".git" / "config").touch()

    deny_write = told(workspace, replace(DEFAULT, allow_write=(".", ".git")))["filesystem"]["denyWrite"]

    assert str(workspace / ".git") not in deny_write
    assert {str(workspace / ".git" / "hooks"), str(workspace / ".git" / "config")} <= set(deny_write)


def test_a_repository_that_is_opened_opens_no_other(workspace: Path):
    for repository in (workspace, workspace / "module", workspace / "other"):
        (repository / ".git" / "hooks").mkdir(parents=True)
        (repository / ".git" / "config").touch()

    deny_write = told(workspace, replace(DEFAULT, allow_write=(".", ".git", "other/.git")))["filesystem"]["denyWrite"]

    assert str(workspace / "module/.git") in deny_write
    assert str(workspace / "other/.git") not in deny_write
    assert str(workspace / "other/.git/hooks") in deny_write


def test_variables_of_the_host_name_credentials(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBECONFIG", "/kube/first:/kube/[second]")
    monkeypatch.setenv("CARGO_HOME", "/cargo")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/xdg")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("NETRC", raising=False)

    deny_read = told(workspace)["filesystem"]["denyRead"]

    # A path with wildcards is given as a pattern, as srt has no other way.
    assert {"/kube/first", "/kube/?second?", "/cargo/credentials.toml", "/xdg/gh", "~/.config/gh"} <= set(deny_read)
    assert os.devnull not in deny_read
    assert not any("$" in entry for entry in deny_read)


def test_secrets_and_repositories_are_found_however_deep_they_are(workspace: Path):
    deep = workspace / "a" / "b" / "c" / "d" / "e"
    (deep / ".git" / "hooks").mkdir(parents=True)
    (deep / ".env.local").touch()
    (workspace / "node_modules" / "x" / ".git").mkdir(parents=True)
    (workspace / "link").symlink_to(workspace)

    filesystem = told(workspace)["filesystem"]

    assert str(deep / ".env.local") in filesystem["denyRead"]
    assert str(deep / ".git") in filesystem["denyWrite"]
    assert str(workspace / ".env") in filesystem["denyRead"]  # where a placeholder is going to be
    assert not any("link" in path or "node_modules" in path for path in filesystem["denyRead"])


def test_a_workspace_whose_name_is_a_pattern_is_refused(tmp_path: Path):
    workspace = tmp_path / "a[b]"
    workspace.mkdir()

    with pytest.raises(SandboxError, match=r"srt would read the path .*a\[b\] as a pattern: rename it"):
        told(workspace)


@pytest.mark.parametrize(
    "entry",
    [
        *("{key}", "{directory}", "{directory}/../ipybox/seal.key", "{link}"),
        *("{directory}/*", "{directory}/../*", "/**", "~/../**/seal.key", "{directory}*"),
    ],
)
def test_no_setting_opens_the_key(workspace: Path, entry: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(state_dir().parent))
    (workspace / "link").symlink_to(state_dir())
    opened = entry.format(key=state_dir() / "seal.key", directory=state_dir(), link=workspace / "link")

    with pytest.raises(SandboxError, match=r"'filesystem.allowRead' can't include .*: .* contains keys and tokens"):
        told(workspace, replace(DEFAULT, allow_read=(opened,)))


@pytest.mark.parametrize("entry", ["{directory}", "{directory}/oauth", "{scratch}", "{scratch}/x", "{link}"])
def test_no_setting_lets_code_write_what_is_hidden(workspace: Path, entry: str):
    (workspace / "link").symlink_to(state_dir())
    opened = entry.format(directory=state_dir(), scratch=scratch_root(), link=workspace / "link")

    with pytest.raises(SandboxError, match=r"'filesystem.allowWrite' can't include .*: .* contains keys and tokens"):
        told(workspace, replace(DEFAULT, allow_write=(".", opened)))


def test_what_the_host_keeps_for_a_while_is_hidden(workspace: Path):
    assert str(scratch_root()) in told(workspace)["filesystem"]["denyRead"]


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
