"""Policies of approvals that are not trusted only deny."""

from pathlib import Path

import pytest

from ipybox.errors import PolicyError
from ipybox.sandbox.settings import SandboxSettings, untrusted_path
from ipybox.tool_exec.approval.policy import ApprovalPolicy
from ipybox.workspace.trust import TrustStore
from tests.workspace.trust.files import RULES, trust


def test_a_file_is_untrusted_where_the_settings_let_code_write(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    own = SandboxSettings(source="own", allow_write=(".", "~/shared"))
    for name in ("shared", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "link").symlink_to(workspace / "file")
    (tmp_path / "link").symlink_to("shared")
    for path, untrusted in (
        ("~/shared/x", tmp_path / "shared" / "x"),
        ("~/link/x", tmp_path / "shared" / "x"),
        ("~/mine/x", None),
        ("~/mine/link", workspace / "file"),
        ("~/mine/../workspace/a/b", workspace / "a" / "b"),
    ):
        assert untrusted_path(Path(path), own, workspace) == untrusted


def test_an_untrusted_policy_only_denies_and_a_trusted_one_learns(workspace: Path):
    file = workspace / "ipybox.yaml"
    file.write_text(f"{RULES}  - effect: ask\n    server: clock\n")
    store = TrustStore(workspace)

    policy = ApprovalPolicy.load(file, workspace, store)
    effects = [policy.decide(server, "write", {}).effect for server in ("files", "bank", "clock", "other")]
    assert effects == ["ask", "deny", "ask", "ask"]
    assert not any(policy.decide(server, "write", {}).can_be_remembered for server in ("files", "clock", "other"))
    assert "which is not trusted" in policy.decide("files", "write", {}).reason
    assert policy.untrusted is not None

    trust(workspace)
    policy = ApprovalPolicy.load(file, workspace, store)
    effects = [policy.decide(server, "write", {}).effect for server in ("files", "bank", "clock", "other")]
    assert effects == ["allow", "deny", "ask", "allow"]
    policy.remember(policy.decide("clock", "write", {}), "tool")
    assert "clock" in file.read_text().partition("# remembered")[2]
    again = ApprovalPolicy.load(file, workspace, store)
    assert (again.untrusted, again.decide("clock", "write", {}).effect) == (None, "allow")


def test_rules_that_deny_hold_whatever_an_untrusted_file_would_allow_before_them(workspace: Path):
    file = workspace / "ipybox.yaml"
    rule = "  - effect: {}\n    server: files\n    args: {{path: {{path: '{}'}}}}\n"
    file.write_text("rules:\n" + rule.format("allow", "data/**") + rule.format("deny", "**"))

    for policy in (ApprovalPolicy.load(file, workspace, TrustStore(workspace)), ApprovalPolicy.load(file, workspace)):
        # It is not certain that this is below data: the first rule does not decide.
        assert policy.decide("files", "read", {"path": "$X/y"}).effect == "deny"


def test_an_untrusted_policy_means_the_workspace_and_says_why_it_asks(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    file = workspace / "ipybox.yaml"
    file.write_text("rules:\n- effect: allow\n  args: {path: {path: data/**}}\n")
    call = ("files", "write", {"path": str(workspace / "data" / "x")})

    decision = ApprovalPolicy.load(file, workspace, TrustStore(workspace)).decide(*call)

    assert (decision.effect, decision.reason) == ("ask", "ipybox.yaml:2, which is not trusted")
    assert not decision.can_be_remembered


def test_an_untrusted_policy_that_is_wrong_has_everything_asked_about(workspace: Path):
    file = workspace / "ipybox.yaml"
    file.write_text("rules: yes\ndefault: allow")

    policy = ApprovalPolicy.load(file, workspace, TrustStore(workspace))
    assert policy.decide("files", "write", {}).effect == "ask"
    assert policy.untrusted is not None
    assert "ipybox.yaml:1: 'rules' must be a list" in policy.untrusted


def test_a_policy_that_leads_out_of_the_workspace_is_refused(workspace: Path, tmp_path: Path):
    (tmp_path / "mine.yaml").write_text("default: allow")
    (workspace / "ipybox.yaml").symlink_to(tmp_path / "mine.yaml")

    with pytest.raises(PolicyError, match="is a link out of the workspace"):
        ApprovalPolicy.load(workspace / "ipybox.yaml", workspace, TrustStore(workspace))
    assert ApprovalPolicy.load(tmp_path / "mine.yaml", workspace, TrustStore(workspace)).untrusted is None
