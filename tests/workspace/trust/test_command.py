"""The command that shows files to a person and asks."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from ipybox.workspace.trust import TrustStore
from tests.workspace.trust.files import HOSTILE, RULES, trust


def test_a_person_sees_what_is_opened_and_is_asked(workspace: Path, file: Path, capsys: pytest.CaptureFixture[str]):
    content = {
        "filesystem": {"allowWrite": [".", "/x\u001b[2K\u202e"], "denyRead": ["~"]},
        "enableWeakerNestedSandbox": True,
    }
    file.write_text(json.dumps(content))
    (workspace / "ipybox.yaml").write_text(RULES)

    assert trust(workspace, yes=False) == 1  # there is no terminal
    told = capsys.readouterr().out
    assert "code may also write: /x\\u001b[2K\\u202e" in told
    assert "  the sandbox becomes weaker: enableWeakerNestedSandbox\n" in told
    assert "\x1b" not in told
    hidden = " ".join(told.split()).partition("no longer hidden from code: ")[2].partition(" - ")[0]
    assert "**/.env*, " in hidden
    assert "/etc/shadow" in hidden
    assert "~/.ssh" in hidden  # although it is below ~
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
    workspace: Path,
    file: Path,
    answers: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    trusted: bool,
):
    answers.append(answer)
    monkeypatch.setenv("COLUMNS", "100")

    assert trust(workspace, yes=False) == (0 if trusted else 1)

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{file} allows more than your own settings:"
    assert all(line.startswith(("  ", "| ")) for line in lines[1:-2])
    assert max(map(len, lines[1:-2])) in range(90, 101)
    assert lines[-2:] == [
        f"Code in a session may have created {file}. Trust it with this content? [y/N] ",
        f"{file} is trusted until it changes; restart ipybox to apply it, in Claude Code with /mcp"
        if trusted
        else "not trusted",
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
    assert capsys.readouterr().out == (
        f"can't trust {missing}: it does not exist, and no MCP server named missing.json is registered\n"
    )


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("ipybox.yaml", b"rules: yes", "ipybox.yaml:1: 'rules' must be a list"),
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
    assert told.startswith(f"can't trust {workspace / name}: ")
    assert problem in told


def test_the_worst_result_of_several_files_counts(workspace: Path, file: Path, capsys: pytest.CaptureFixture[str]):
    (workspace / "ipybox.yaml").write_text("rules: yes")

    assert trust(workspace) == 1
    assert f"{file} is trusted until it changes" in capsys.readouterr().out
    assert trust(workspace, file) == 0
    assert capsys.readouterr().out == f"{file} is already trusted\n"


def test_a_policy_shows_each_call_that_it_allows_and_needs_no_profile(
    workspace: Path, capsys: pytest.CaptureFixture[str]
):
    policy = workspace / "ipybox.yaml"
    policy.write_text(RULES)

    assert trust(workspace, profile="workspace") == 0

    assert capsys.readouterr().out.splitlines() == [
        f"{policy} allows more than your own settings:",
        "  tool calls allowed without asking:",
        '  - ipybox.yaml:3: {"effect": "allow", "server": "files", "tool": "write"}',
        "  - every call that no rule matches",
        f"{policy} is trusted until it changes; restart ipybox to apply it, in Claude Code with /mcp",
    ]
    assert [each.profile for each in TrustStore(workspace).agreements()] == [""]
    policy.write_text("rules:\n  - effect: deny\n    server: bank\n")
    assert trust(workspace) == 0
    assert capsys.readouterr().out == f"{policy}: nothing to trust, because it only restricts what code may do\n"


def test_what_is_trusted_is_listed_with_its_hash_until_it_is_revoked(
    workspace: Path, file: Path, capsys: pytest.CaptureFixture[str]
):
    (workspace / "ipybox.yaml").write_text(RULES)
    trust(workspace)
    trust(workspace, profile="workspace")
    settings, policy = (hashlib.sha256(path.read_bytes()).hexdigest() for path in (file, workspace / "ipybox.yaml"))
    file.write_text("{}")
    capsys.readouterr()

    changed = f"trusted with the SHA-256 hash {settings}; the file has changed since and is no longer trusted"
    assert trust(workspace, listed=True) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"ipybox.yaml: trusted with the SHA-256 hash {policy}",
        f"sandbox-config.json with the profile 'default': {changed}",
        f"sandbox-config.json with the profile 'workspace': {changed}",
    ]
    file.unlink()
    assert trust(workspace, workspace / "other", revoked=True) == 0
    assert capsys.readouterr().out == "nothing to revoke: none of these files is trusted\n"
    assert trust(workspace, listed=True) == 0
    assert capsys.readouterr().out.count("; the file has changed since and is no longer trusted\n") == 2
    assert trust(workspace, file, revoked=True) == 0
    revoked = "is no longer trusted; restart ipybox to apply this, in Claude Code with /mcp\n"
    assert capsys.readouterr().out == f"sandbox-config.json {revoked}"
    assert trust(workspace, revoked=True) == 0
    assert capsys.readouterr().out == f"ipybox.yaml {revoked}"
    assert trust(workspace, revoked=True) == 0
    assert trust(workspace, listed=True) == 0
    assert capsys.readouterr().out == f"nothing is trusted in {workspace}\n" * 2
