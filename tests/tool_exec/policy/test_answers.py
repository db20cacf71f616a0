"""What becomes of answers that are to be remembered."""

import fcntl
import itertools
import logging
import random
import stat
from pathlib import Path
from typing import Any

import pytest

from ipybox.tool_exec.approval.policy import ApprovalPolicy
from tests.tool_exec.policy.rules import EFFECTS, POLICY, rule, rule_lines


@pytest.fixture
def policy_file(workspace: Path) -> Path:
    file = workspace / "ipybox.yaml"
    file.write_text(POLICY)
    return file


def remember(policy: ApprovalPolicy, scope: Any, server: str = "fs", tool: str = "write", path: str = "data/x") -> None:
    policy.remember(policy.decide(server, tool, {"path": path}), scope)


def test_an_answer_is_not_saved_while_another_server_saves_one(policy_file: Path, workspace: Path):
    policy = ApprovalPolicy.load(policy_file, workspace)

    with policy_file.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        remember(policy, "tool")

    assert policy_file.read_text() == POLICY
    assert policy.decide("fs", "write", {"path": "data/x"}).effect == "allow", "for this session"


def test_answer_goes_before_the_rule_that_asked_and_allows_no_more_than_that(policy_file: Path, workspace: Path):
    policy = ApprovalPolicy.load(policy_file, workspace)

    remember(policy, "tool")

    new = (
        '  - server: "fs"  # remembered from an answer\n'
        '    tool: "write"\n'
        '    args: {"path": {"path": "data/**"}}\n'
        '    effect: "allow"\n'
    )
    assert policy_file.read_text() == POLICY.replace("  # I want", f"{new}  # I want")
    for again in (policy, ApprovalPolicy.load(policy_file, workspace)):
        assert again.decide("fs", "write", {"path": "data/x"}).effect == "allow"
        assert again.decide("fs", "move", {"path": "data/x"}).effect == "ask"
        assert again.decide("fs", "write", {"path": "data/to-secrets/x"}).effect == "deny"
        assert again.decide("fs", "write", {"path": "other"}).effect == "deny", "by a rule further below"


def test_answer_to_what_no_rule_matches_goes_to_the_end(policy_file: Path, workspace: Path):
    policy = ApprovalPolicy.load(policy_file, workspace)

    remember(policy, "tool", server="github", tool="list_issues")
    remember(policy, "server", server="github", tool="get_issue")

    head, _, tail = policy_file.read_text().partition("  - {effect: deny, server: fs, tool: write}\n")
    assert head + "  - {effect: deny, server: fs, tool: write}\n  # the end\n" == POLICY
    assert tail == (
        '  - server: "github"  # remembered from an answer\n    tool: "list_issues"\n    effect: "allow"\n'
        '  - server: "github"  # remembered from an answer\n    effect: "allow"\n  # the end\n'
    )
    assert policy.decide("github", "delete_repository", {}).effect == "allow"
    assert policy.decide("fs", "write", {"path": "secrets/x"}).effect == "deny"


def test_answer_covers_no_other_program_or_host_under_the_server_s_name(workspace: Path):
    policy = ApprovalPolicy(workspace=workspace)
    here, there = {"command": "notes", "args": ["here"]}, {"command": "notes", "args": ["there"]}
    policy.remember(policy.decide("notes", "write", {}, here), "server")
    assert policy.decide("notes", "delete", {}, {**here}).effect == "allow"
    assert policy.decide("notes", "delete", {}, {"args": ["here"], "command": "notes"}).effect == "allow"
    assert policy.decide("notes", "write", {}, there).effect == "ask"
    assert policy.decide("notes", "write", {}).effect == "ask"


def test_answers_turn_nothing_into_an_allow_but_what_is_asked(workspace: Path):
    chance = random.Random(11)
    calls = list(itertools.product(["a", "b"], ["x", "y"], ["u", "v", 5]))
    pool = [
        (effect, server, tool, f"arg: {value}")
        for effect, server, tool, value in itertools.product(EFFECTS, ["a", "b", "*"], ["x", "*"], ["u", "v"])
    ]
    for _ in range(100):
        policy = ApprovalPolicy(rule_lines(chance.sample(pool, chance.randint(1, 6))), workspace)
        before = {call: policy.decide(call[0], call[1], {"arg": call[2]}) for call in calls}
        asked = [call for call in calls if before[call].effect == "ask" and before[call].can_be_remembered]
        if not asked:
            continue
        answered = chance.choice(asked)
        policy.remember(before[answered], chance.choice(["tool", "server"]))
        assert policy.decide(answered[0], answered[1], {"arg": answered[2]}).effect == "allow"
        for call in calls:
            after = policy.decide(call[0], call[1], {"arg": call[2]}).effect
            assert after in (before[call].effect, "allow")
            assert before[call].effect != "deny" or after == "deny"


@pytest.mark.parametrize("text", ["default: ask\n", "default: ask", "# only this\ndefault: ask\r\n"])
def test_first_rule_of_a_file_is_an_answer(text: str, workspace: Path):
    file = workspace / "ipybox.yaml"
    file.write_bytes(text.encode())

    remember(ApprovalPolicy.load(file, workspace), "tool")

    assert file.read_bytes().startswith(text.encode())
    assert (b"\r\n" in file.read_bytes()) == ("\r\n" in text)
    assert ApprovalPolicy.load(file, workspace).decide("fs", "write", {}).effect == "allow"


def test_file_elsewhere_is_replaced_at_once_and_keeps_its_mode(tmp_path: Path, workspace: Path):
    file = tmp_path / "rules.yaml"
    file.write_text(POLICY)
    file.chmod(0o640)
    with file.open() as reader:
        remember(ApprovalPolicy.load(file, workspace), "tool", server="github")

        assert reader.read() == POLICY
    assert "github" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert {path.name for path in tmp_path.iterdir()} == {"rules.yaml", "workspace"}


def test_paths_count_from_the_workspace_wherever_the_file_is_and_ipybox_runs(
    policy_file: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.yaml").write_text(POLICY)
    call = ("fs", "write", {"path": str(workspace / "data" / "x")})

    for file in (policy_file, tmp_path / "rules.yaml"):
        assert ApprovalPolicy.load(file, workspace).decide(*call).reason == f"{file.name}:9"
    assert ApprovalPolicy(POLICY, workspace).decide(*call).reason == "policy:9"


def test_file_in_the_workspace_stays_the_one_that_a_sandbox_protects(policy_file: Path, workspace: Path):
    before = policy_file.stat().st_ino
    remember(ApprovalPolicy.load(policy_file, workspace), "tool")
    assert policy_file.stat().st_ino == before


def test_file_that_has_changed_is_left_alone_and_the_answer_holds_for_the_session(
    policy_file: Path, workspace: Path, caplog: pytest.LogCaptureFixture
):
    policy = ApprovalPolicy.load(policy_file, workspace)
    policy_file.write_text("default: deny\n")

    with caplog.at_level(logging.WARNING):
        remember(policy, "tool")

    assert policy_file.read_text() == "default: deny\n"
    assert "ipybox.yaml has changed since ipybox read it" in caplog.text
    assert policy.decide("fs", "write", {"path": "data/x"}).effect == "allow"


def test_answer_that_another_one_has_made_needless_is_not_written(policy_file: Path, workspace: Path):
    policy = ApprovalPolicy.load(policy_file, workspace)
    decision = policy.decide("fs", "write", {"path": "data/x"})
    policy.remember(decision, "tool")
    written = policy_file.read_text()

    policy.remember(decision, "server")

    assert policy_file.read_text() == written


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(
            "rules:\n- effect: deny\n  args:\n    a:\n      pattern: |-\n        # heading\n"
            "- effect: ask\n  server: fs\n",
            "can't add a rule to ipybox.yaml because of its formatting",
            id="text_that_looks_like_a_comment",
        ),
        pytest.param("default: ask\n...\n", "ipybox.yaml:3: not valid YAML", id="end_of_the_document"),
        pytest.param(
            "rules:\n" + "- {effect: deny, tool: x}\n" * 200, "too many rules: 201", id="as_many_rules_as_there_can_be"
        ),
    ],
)
def test_policy_that_no_rule_can_be_added_to_stays_as_it_is_and_the_log_says_so(
    text: str, reason: str, workspace: Path, caplog: pytest.LogCaptureFixture
):
    file = workspace / "ipybox.yaml"
    file.write_text(text)
    policy = ApprovalPolicy.load(file, workspace)

    with caplog.at_level(logging.WARNING):
        policy.remember(policy.decide("fs", "write", {"a": "plain"}), "tool")

    assert reason in caplog.text
    assert file.read_text() == text
    assert policy.decide("fs", "write", {"a": "plain"}).effect == "ask"


@pytest.mark.parametrize(
    ("tool", "others"),
    [
        ("查询", ["查", "查询 ", "删除"]),
        ("रिपोर्ट", ["रपरट", "रिपोर्"]),
        ("café", ["cafe\N{COMBINING ACUTE ACCENT}", "cafe", "CAFÉ"]),
        ("ﬁnd", ["find"]),
        ("отчёт/x-1.y_z", ["отчет/x-1.y_z", "отчётx/1.y_z"]),
        ("x" * 200, ["x" * 199]),
    ],
    ids=["Chinese", "Hindi", "accent", "ligature", "Russian", "long"],
)
def test_an_answer_for_a_name_in_any_script_holds_for_this_name_only(tool: str, others: list[str], workspace: Path):
    file = workspace / "ipybox.yaml"
    file.write_text("default: ask\n")
    policy = ApprovalPolicy.load(file, workspace)

    policy.remember(policy.decide("fs", tool, {}), "tool")

    for read in (policy, ApprovalPolicy.load(file, workspace)):
        assert read.decide("fs", tool, {}).effect == "allow"
        assert {read.decide("fs", other, {}).effect for other in others} == {"ask"}


@pytest.mark.parametrize(
    ("server", "tool"),
    [
        *(("fs", tool) for tool in ("*", "a b", "", "x" * 201, "a\N{NO-BREAK SPACE}b", "a\u202eb", "a\ud83d", "a\x85")),
        ("f?", "x"),
    ],
)
def test_names_that_would_mean_others_are_not_remembered(server: str, tool: str, workspace: Path):
    assert not ApprovalPolicy(workspace=workspace).decide(server, tool, {}).can_be_remembered


def test_what_is_asked_only_because_nothing_is_certain_is_not_remembered(workspace: Path):
    policy = ApprovalPolicy(f"rules:\n- {rule('ask', 'a: x')}\n", workspace)
    assert policy.decide("s", "t", {"a": "x"}).can_be_remembered
    assert not policy.decide("s", "t", {}).can_be_remembered
