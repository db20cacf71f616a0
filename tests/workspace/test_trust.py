"""Files of a workspace open nothing until a person has trusted their very content."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ipybox import CodeExecutor
from ipybox.errors import PolicyError, SandboxError
from ipybox.sandbox.settings import PROFILES, SandboxSettings
from ipybox.state import state_dir
from ipybox.tool_exec.approval.policy import Policy
from ipybox.workspace import trust_command
from ipybox.workspace.config import approval_policy, sandbox_settings, untrusted_path
from ipybox.workspace.trust import MAX_SIZE, TrustStore, is_brought, policy_notice, read_untrusted
from tests.servers import WAIT
from tests.test_mcp_server import client_of, output

HOSTILE = {
    "filesystem": {"denyRead": [], "allowRead": ["~/.ssh"], "allowWrite": [".", "~/.bashrc"]},
    "network": {"allowedDomains": ["evil.test"]},
}
RULES = """\
default: allow
rules:
  - effect: allow
    server: files
    tool: write
  - effect: deny
    server: bank
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    directory = tmp_path / "workspace"
    directory.mkdir()
    return directory


@pytest.fixture
def file(workspace: Path) -> Path:
    path = workspace / "sandbox-config.json"
    path.write_text(json.dumps(HOSTILE))
    return path


def found(workspace: Path, **options: Any) -> SandboxSettings:
    return sandbox_settings(TrustStore(workspace), discover=True, **options)


def trust(workspace: Path, *files: Path, profile: str = "default", yes: bool = True) -> int:
    return trust_command.trust(workspace, files, profile=profile, yes=yes)


def test_settings_hold_from_the_moment_they_are_trusted_until_they_change(workspace: Path, file: Path):
    before = found(workspace)
    assert (before.allow_read, before.allow_write, before.allowed_domains) == ((), (".",), ())
    assert set(before.deny_read) == set(PROFILES["default"].deny_read)
    assert before.untrusted is not None
    assert before.file == file

    assert trust(workspace) == 0
    after = found(workspace, allowed_domains=["example.org"])
    assert (after.deny_read, after.allow_read) == ((), ("~/.ssh",))
    assert after.allowed_domains == ("evil.test", "example.org")
    assert (after.untrusted, after.notices) == (None, ())

    file.write_text(file.read_text() + " ")
    assert found(workspace).allow_read == ()
    file.write_text(json.dumps(HOSTILE))
    assert found(workspace) == sandbox_settings(TrustStore(workspace), file=file)
    assert [each.file for each in TrustStore(workspace).revoke()] == ["sandbox-config.json"]
    assert found(workspace) == before


def test_trust_is_for_the_profile_that_it_was_compared_with(workspace: Path, file: Path):
    trust(workspace)

    assert found(workspace, profile="workspace").deny_read[0] == "~"
    trust(workspace, profile="workspace")
    assert found(workspace, profile="workspace").deny_read == ()


def test_keys_of_a_trusted_file_replace_those_of_the_profile_and_no_others(workspace: Path, file: Path):
    file.write_text('{"network": {"allowedDomains": ["example.org"]}}')
    trust(workspace, profile="workspace")

    settings = found(workspace, profile="workspace")
    assert settings.allowed_domains == ("example.org",)
    assert settings.deny_read == PROFILES["workspace"].deny_read


def test_trust_is_for_one_workspace_and_one_file(workspace: Path, file: Path, tmp_path: Path):
    other = workspace / "other.json"
    other.write_text(file.read_text())
    trust(workspace)

    assert sandbox_settings(TrustStore(workspace), file=other).untrusted is not None
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / file.name).write_text(file.read_text())
    assert found(elsewhere).untrusted is not None


def test_a_file_that_only_restricts_needs_no_trust(workspace: Path, file: Path, capsys: pytest.CaptureFixture[str]):
    file.write_text('{"filesystem": {"denyWrite": ["data"], "allowWrite": ["out"]}}')

    settings = found(workspace)
    assert (settings.deny_write, settings.allow_write) == (("data",), (f"{workspace}/out",))
    assert settings.untrusted is None
    assert trust(workspace) == 0
    assert "nothing to trust, as it only restricts what code may do" in capsys.readouterr().out
    assert TrustStore(workspace).agreements() == []


def test_a_file_that_is_missing_or_a_placeholder_changes_nothing(workspace: Path, file: Path):
    file.write_text("")
    assert found(workspace) is PROFILES["default"]
    file.unlink()
    assert found(workspace, profile="workspace") is PROFILES["workspace"]


def test_a_file_of_the_user_is_believed_and_one_that_the_workspace_may_redirect_is_not(
    workspace: Path, file: Path, tmp_path: Path
):
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps(HOSTILE))
    store = TrustStore(workspace)
    assert sandbox_settings(store, file=mine).allow_read == ("~/.ssh",)

    (tmp_path / "link.json").symlink_to(file)
    assert sandbox_settings(store, file=tmp_path / "link.json").allow_read == ()
    (tmp_path / "link").symlink_to(workspace)
    assert sandbox_settings(store, file=tmp_path / "link" / file.name).allow_read == ()

    (workspace / "out.json").symlink_to(mine)
    (workspace / "out").symlink_to(tmp_path)
    for path in (workspace / "out.json", workspace / "out" / "mine.json"):
        with pytest.raises(SandboxError, match="can't be read: "):
            sandbox_settings(store, file=path)


@pytest.mark.parametrize("kind", ["pipe", "directory", "device", "link", "large"])
def test_what_is_no_plain_file_is_refused_at_once(workspace: Path, file: Path, kind: str):
    file.unlink()
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "directory":
            file.mkdir()
        case "device":
            file.symlink_to("/dev/zero")
        case "link":
            file.symlink_to("/nowhere")
        case _:
            file.write_bytes(b" " * (MAX_SIZE + 1))

    with pytest.raises(OSError, match=str(file)):
        read_untrusted(file, workspace)
    with pytest.raises(SandboxError, match="can't be read: "):
        sandbox_settings(TrustStore(workspace), file=file)
    assert trust(workspace, file) == 1
    if kind == "directory":  # a placeholder
        assert found(workspace) is PROFILES["default"]
    else:
        with pytest.raises(SandboxError, match="can't be read: "):
            found(workspace)


def test_a_trust_store_that_the_workspace_brings_is_not_believed(
    workspace: Path, file: Path, monkeypatch: pytest.MonkeyPatch
):
    trust(workspace)
    brought = workspace / ".ipybox" / "state"
    shutil.copytree(state_dir(), brought / "ipybox")
    monkeypatch.setenv("XDG_STATE_HOME", str(brought))

    assert found(workspace).untrusted is not None
    assert TrustStore(workspace).agreements() == []
    assert TrustStore(workspace).revoke() == []
    with pytest.raises(PermissionError, match=f"the state directory {state_dir()} lies in the workspace, which may"):
        TrustStore(workspace).trust(file, b"")
    assert trust(workspace) == 1
    # As `ipybox docker` tells the container.
    vouched = TrustStore(workspace, [hashlib.sha256(file.read_bytes()).hexdigest()])
    assert sandbox_settings(vouched, file=file).allow_read == ("~/.ssh",)
    assert "run `ipybox trust` in" in found(workspace).notices[0]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of agreements that nothing has made yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "ipybox" / "trust"


def test_agreements_are_private_files_that_people_can_read(workspace: Path, file: Path, state: Path):
    before = os.umask(0)
    try:
        trust(workspace)
        trust(workspace, profile="workspace")
    finally:
        os.umask(before)

    agreements = TrustStore(workspace).agreements()
    assert [(each.file, each.profile) for each in agreements] == [
        ("sandbox-config.json", "default"),
        ("sandbox-config.json", "workspace"),
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in state.iterdir()} == {0o600}
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert {len(path.read_text().splitlines()) for path in state.iterdir()} == {6}


def test_damaged_agreements_hide_no_others(workspace: Path, file: Path, state: Path):
    trust(workspace)
    for name, content in (
        *(("a.json", b"{"), ("b.json", b"[]"), ("c.json", b'{"file": "x"}'), ("d.json", b"\xff"), ("e.json", b"1")),
        ("f.json", json.dumps({"workspace": "/elsewhere", "file": "x", "profile": "", "sha256": ""}).encode()),
    ):
        (state / name).write_bytes(content)
    (state / "g.json").symlink_to("missing")
    (state / "h.json").mkdir()

    assert [each.file for each in TrustStore(workspace).agreements()] == ["sandbox-config.json"]
    assert [each.file for each in TrustStore(workspace).revoke()] == ["sandbox-config.json"]
    assert len(list(state.iterdir())) == 8


def test_an_agreement_is_revoked_for_the_files_that_are_named(workspace: Path, tmp_path: Path, state: Path):
    store = TrustStore(workspace)
    (tmp_path / "link").symlink_to(workspace)
    for path, profile in (("b/x", "p"), ("b/x", ""), ("a", ""), ("../outside", "")):
        store.trust(workspace / path, b"content", profile)

    assert [each.file for each in store.agreements()] == [str(tmp_path / "outside"), "a", "b/x", "b/x"]
    assert store.revoke([workspace / "c", workspace / "x"]) == []
    assert [(each.file, each.profile) for each in store.revoke([tmp_path / "link" / "b" / "x"])] == [
        ("b/x", ""),
        ("b/x", "p"),
    ]
    assert [each.file for each in store.revoke([tmp_path / "outside"])] == [str(tmp_path / "outside")]
    assert [each.file for each in store.revoke()] == ["a"]
    assert store.agreements() == []


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
        "ipybox.yaml of the workspace is not trusted: it can only deny tool calls, and ipybox asks about all others. "
        f"To see and allow what it allows, run `run trust --workspace={workspace}` in a terminal, then restart ipybox."
    )


@pytest.mark.parametrize(
    ("kind", "brought"), [("missing", False), ("empty", False), ("directory", False), ("content", True), ("link", True)]
)
def test_a_placeholder_is_not_taken_for_a_file_that_the_workspace_brings(workspace: Path, kind: str, brought: bool):
    path = workspace / "ipybox.yaml"
    match kind:
        case "missing":
            path = path / "x"
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to("missing")
        case _:
            path.write_text("x" if kind == "content" else "")

    assert is_brought(path) is brought


def test_reading_makes_no_directory(workspace: Path):
    with pytest.raises(FileNotFoundError):
        read_untrusted(workspace / "missing" / "sandbox-config.json", workspace)

    assert list(workspace.iterdir()) == []


def test_a_file_as_large_as_may_be_is_read(workspace: Path):
    (workspace / "file").write_bytes(b" " * MAX_SIZE)

    assert read_untrusted(workspace / "file", workspace) == b" " * MAX_SIZE


def test_a_person_sees_what_is_opened_and_is_asked(workspace: Path, file: Path, capsys: pytest.CaptureFixture[str]):
    content = {"filesystem": {"allowWrite": [".", "/x\u001b[2K\u202e"], "denyRead": ["~"]}}
    file.write_text(json.dumps(content))
    (workspace / "ipybox.yaml").write_text(RULES)

    assert trust(workspace, yes=False) == 1  # there is no terminal
    told = capsys.readouterr().out
    assert "code may also write: /x\\u001b[2K\\u202e" in told
    assert "\x1b" not in told
    hidden = " ".join(told.split()).partition("no longer hidden from code: ")[2].partition(" - ")[0]
    assert "**/.env*, " in hidden
    assert "/etc/shadow" in hidden
    assert "~/.ssh" not in hidden  # it is below ~
    assert '- ipybox.yaml:3: {"effect": "allow", "server": "files", "tool": "write"}' in told
    assert "- every call that no rule matches" in told
    assert told.count("run this in a terminal to be asked, or add --yes") == 2
    assert TrustStore(workspace).agreements() == []


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a person answers in a terminal."""
    left: list[str] = []

    def answer(prompt: str) -> str:
        print(prompt)
        return left.pop(0)

    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", answer)
    return left


@pytest.mark.parametrize(
    ("answer", "trusted"),
    [("y", True), ("Yes ", True), (" YES", True), ("", False), ("n", False), ("yes!", False), ("x", False)],
)
def test_only_a_person_who_says_yes_trusts(
    workspace: Path, file: Path, answers: list[str], capsys: pytest.CaptureFixture[str], answer: str, trusted: bool
):
    answers.append(answer)

    assert trust(workspace, yes=False) == (0 if trusted else 1)

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{file} opens more than your own settings do:"
    assert all(line.startswith("  ") for line in lines[1:-2])
    assert max(map(len, lines[1:-2])) in range(90, 101)
    assert lines[-2:] == [
        f"Trust {file} with this content? [y/N] ",
        f"{file} is trusted until it changes; restart ipybox to apply it" if trusted else "not trusted",
    ]
    assert [each.file for each in TrustStore(workspace).agreements()] == [file.name] * trusted


def test_a_question_about_a_file_shows_what_a_terminal_would_obey(
    workspace: Path, answers: list[str], capsys: pytest.CaptureFixture[str]
):
    name = workspace / "a\u202e.json"
    name.write_text(json.dumps(HOSTILE))
    answers.append("y")

    assert trust(workspace, name, yes=False) == 0

    assert "\u202e" not in capsys.readouterr().out


def test_there_may_be_nothing_to_trust(workspace: Path, capsys: pytest.CaptureFixture[str]):
    assert trust(workspace) == 0
    assert capsys.readouterr().out == (
        f"nothing to trust: {workspace} has neither sandbox-config.json nor ipybox.yaml\n"
    )
    missing = workspace / "missing.json"
    assert trust(workspace, missing) == 1
    assert capsys.readouterr().out.startswith(f"{missing} can't be trusted: ")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("ipybox.yaml", b"rules: yes", "ipybox.yaml:1: 'rules' has to be a list"),
        ("ipybox.yaml", b"\xff", "ipybox.yaml is not UTF-8"),
        ("sandbox-config.json", b"{", "Expecting property name"),
    ],
)
def test_a_file_that_is_wrong_can_not_be_trusted(
    workspace: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, problem: str
):
    (workspace / name).write_bytes(content)

    assert trust(workspace) == 1

    told = capsys.readouterr().out
    assert told.startswith(f"{workspace / name} can't be trusted: ")
    assert problem in told


def test_the_worst_result_of_several_files_counts(workspace: Path, file: Path, capsys: pytest.CaptureFixture[str]):
    (workspace / "ipybox.yaml").write_text("rules: yes")

    assert trust(workspace) == 1
    assert f"{file} is trusted until it changes" in capsys.readouterr().out
    assert trust(workspace, file) == 0
    assert capsys.readouterr().out == f"{file} is trusted already\n"


def test_a_policy_shows_each_call_that_it_allows_and_needs_no_profile(
    workspace: Path, capsys: pytest.CaptureFixture[str]
):
    policy = workspace / "ipybox.yaml"
    policy.write_text(RULES)

    assert trust(workspace, profile="workspace") == 0

    assert capsys.readouterr().out.splitlines() == [
        f"{policy} opens more than your own settings do:",
        "  tool calls allowed without asking:",
        '  - ipybox.yaml:3: {"effect": "allow", "server": "files", "tool": "write"}',
        "  - every call that no rule matches",
        f"{policy} is trusted until it changes; restart ipybox to apply it",
    ]
    assert [each.profile for each in TrustStore(workspace).agreements()] == [""]
    policy.write_text("rules:\n  - effect: deny\n    server: bank\n")
    assert trust(workspace) == 0
    assert capsys.readouterr().out == f"{policy}: nothing to trust, as it only restricts what code may do\n"


def test_what_is_trusted_is_listed_with_its_hash_until_it_is_revoked(
    workspace: Path, file: Path, capsys: pytest.CaptureFixture[str]
):
    (workspace / "ipybox.yaml").write_text(RULES)
    trust(workspace)
    trust(workspace, profile="workspace")
    settings, policy = (hashlib.sha256(path.read_bytes()).hexdigest() for path in (file, workspace / "ipybox.yaml"))
    file.write_text("{}")
    capsys.readouterr()

    changed = f"trusted with the SHA-256 hash {settings}; it has changed since, and is not trusted as it is"
    assert trust_command.show(workspace) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"ipybox.yaml: trusted with the SHA-256 hash {policy}",
        f"sandbox-config.json with the profile 'default': {changed}",
        f"sandbox-config.json with the profile 'workspace': {changed}",
    ]
    file.unlink()
    assert trust_command.revoke(workspace, [workspace / "other"]) == 0
    assert capsys.readouterr().out == "nothing to revoke: none of these files is trusted\n"
    assert trust_command.show(workspace) == 0
    assert capsys.readouterr().out.count("; it has changed since, and is not trusted as it is\n") == 2
    assert trust_command.revoke(workspace, [file]) == 0
    revoked = "is no longer trusted; an ipybox that runs believes it until it restarts\n"
    assert capsys.readouterr().out == f"sandbox-config.json {revoked}"
    assert trust_command.revoke(workspace, []) == 0
    assert capsys.readouterr().out == f"ipybox.yaml {revoked}"
    assert trust_command.revoke(workspace, []) == 0
    assert trust_command.show(workspace) == 0
    assert capsys.readouterr().out == f"nothing is trusted in {workspace}\n" * 2


def test_a_file_that_is_not_trusted_says_what_it_would_open_and_how_to_trust_it(workspace: Path, file: Path):
    other = workspace / "a" / "other.json"
    other.parent.mkdir()
    other.write_text(file.read_text())
    store = TrustStore(workspace)

    found = sandbox_settings(store, file=file, program=["run"]).untrusted
    named = sandbox_settings(store, file=other, profile="workspace", program=["run"]).untrusted

    assert found is not None
    assert named is not None
    assert (found.name, named.name) == (file.name, "other.json")
    assert found.command == f"run trust --workspace={workspace}"
    assert named.command == f"run trust --workspace={workspace} --sandbox-profile=workspace {other}"
    assert found.settings.allow_read == named.settings.allow_read == ("~/.ssh",)


@pytest.mark.parametrize("place", ["workspace", "."], ids=["of_the_workspace", "of_the_user"])
def test_a_file_of_settings_that_is_missing_is_named(workspace: Path, tmp_path: Path, place: str):
    missing = tmp_path / place / "missing.json"

    with pytest.raises(SandboxError, match=f"the sandbox settings {missing} don't exist: "):
        sandbox_settings(TrustStore(workspace), file=missing)


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

    policy = approval_policy(store, file)
    effects = [policy.decide(server, "write", {}).effect for server in ("files", "bank", "clock", "other")]
    assert effects == ["ask", "deny", "ask", "ask"]
    assert not any(policy.decide(server, "write", {}).can_be_remembered for server in ("files", "clock", "other"))
    assert "which is not trusted" in policy.decide("files", "write", {}).reason
    assert policy.untrusted is not None

    trust(workspace)
    policy = approval_policy(store, file)
    effects = [policy.decide(server, "write", {}).effect for server in ("files", "bank", "clock", "other")]
    assert effects == ["allow", "deny", "ask", "allow"]
    policy.remember(policy.decide("clock", "write", {}), "tool")
    assert "clock" in file.read_text().partition("# remembered")[2]
    again = approval_policy(store, file)
    assert (again.untrusted, again.decide("clock", "write", {}).effect) == (None, "allow")


def test_rules_that_deny_hold_whatever_an_untrusted_file_would_allow_before_them(workspace: Path):
    file = workspace / "ipybox.yaml"
    rule = "  - effect: {}\n    server: files\n    args: {{path: {{path: '{}'}}}}\n"
    file.write_text("rules:\n" + rule.format("allow", "data/**") + rule.format("deny", "**"))

    for policy in (approval_policy(TrustStore(workspace), file), Policy.load(file, workspace)):
        # It is not certain that this is below data: the first rule does not decide.
        assert policy.decide("files", "read", {"path": "$X/y"}).effect == "deny"


def test_an_untrusted_policy_means_the_workspace_and_says_why_it_asks(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    file = workspace / "ipybox.yaml"
    file.write_text("rules:\n- effect: allow\n  args: {path: {path: data/**}}\n")
    call = ("files", "write", {"path": str(workspace / "data" / "x")})

    decision = approval_policy(TrustStore(workspace), file).decide(*call)

    assert (decision.effect, decision.reason) == ("ask", "ipybox.yaml:2, which is not trusted")
    assert not decision.can_be_remembered


def test_an_untrusted_policy_that_is_wrong_has_everything_asked_about(workspace: Path):
    file = workspace / "ipybox.yaml"
    file.write_text("rules: yes\ndefault: allow")

    policy = approval_policy(TrustStore(workspace), file)
    assert policy.decide("files", "write", {}).effect == "ask"
    assert policy.untrusted is not None
    assert "ipybox.yaml:1: 'rules' has to be a list" in policy.untrusted


def test_a_policy_that_leads_out_of_the_workspace_is_refused(workspace: Path, tmp_path: Path):
    (tmp_path / "mine.yaml").write_text("default: allow")
    (workspace / "ipybox.yaml").symlink_to(tmp_path / "mine.yaml")

    with pytest.raises(PolicyError, match="leads out of the workspace"):
        approval_policy(TrustStore(workspace), workspace / "ipybox.yaml")
    assert approval_policy(TrustStore(workspace), tmp_path / "mine.yaml").untrusted is None


SSH = "import os; print(os.listdir(os.path.expanduser('~/.ssh')), open(os.path.expanduser('~/.ssh/id_rsa')).read())"
PROBE = f"""
try:
    {SSH}
except OSError as exc:
    print(type(exc).__name__, exc)
try:
    open(os.path.expanduser('~/.bashrc'), 'a').write('evil')
except OSError as exc:
    print(type(exc).__name__, exc)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    directory = tmp_path / "home"
    (directory / ".ssh").mkdir(parents=True)
    (directory / ".ssh" / "id_rsa").write_text("PRIVATE")
    (directory / ".bashrc").write_text("")
    return directory


@pytest.mark.kernel
async def test_a_hostile_file_opens_nothing_until_a_person_trusts_it_and_again_when_it_changes(
    workspace: Path, file: Path, home: Path
):
    run = ("--sandbox", "--workspace-config")
    name = "sandbox-config.json of the workspace would open it, but is not trusted: run `"

    async with client_of(workspace, *run, HOME=str(home)) as client:
        told = await output(client, PROBE)
        assert "PRIVATE" not in told
        assert told.count(name) == 2
        assert told.count("is not trusted: it can only restrict the sandbox.") == 1  # the session's notice
        assert "can only restrict" not in await output(client, "1")
        assert f"trust --workspace={workspace}` in a terminal" in told
    assert (home / ".bashrc").read_text() == ""

    done = command(workspace, "trust", "--workspace", str(workspace), "--yes", HOME=str(home))
    assert done.returncode == 0, done.stderr
    assert "code may also read: ~/.ssh" in done.stdout
    assert "code may also write: ~/.bashrc" in done.stdout
    assert "evil.test" in done.stdout
    async with client_of(workspace, *run, HOME=str(home)) as client:
        assert "PRIVATE" in await output(client, PROBE)
    assert (home / ".bashrc").read_text() == "evil"

    file.write_text(json.dumps(HOSTILE, indent=2))
    async with client_of(workspace, *run, HOME=str(home)) as client:
        assert name in await output(client, PROBE)
    async with client_of(workspace, "--sandbox", "--sandbox-config", str(file), HOME=str(home)) as client:
        assert name in await output(client, PROBE)


def test_what_is_trusted_is_listed_and_revoked(workspace: Path, file: Path):
    assert "nothing is trusted in" in command(workspace, "trust", "--list").stdout
    assert command(workspace, "trust", "--yes", file.name).returncode == 0
    assert command(workspace, "trust", "--list").stdout.startswith("sandbox-config.json with the profile 'default': ")
    assert "it has changed since" not in command(workspace, "trust", "--list").stdout
    file.write_text(f"{file.read_text()} ")
    assert "it has changed since" in command(workspace, "trust", "--list").stdout
    assert "is no longer trusted" in command(workspace, "trust", "--revoke", file.name).stdout
    assert "nothing is trusted in" in command(workspace, "trust", "--list").stdout


@pytest.mark.kernel
async def test_an_application_vouches_for_its_file_which_is_read_once(workspace: Path, file: Path):
    executor = CodeExecutor(working_dir=workspace, sandbox=True, sandbox_config=file)
    file.write_text('{"filesystem": {"allowWrite": []}}')

    async with executor:
        assert (await executor.execute("open('written', 'w').close()")).text is None
        await executor.reset()
    assert (workspace / "written").exists()


def command(workspace: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "ipybox", *arguments],
        cwd=workspace,
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
