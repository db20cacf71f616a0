"""Rules about hints: what a server says counts only after a person has decided on that tool."""

from pathlib import Path

import pytest

from ipybox.errors import PolicyError
from ipybox.tool_exec.approval.policy import WRITES, ApprovalPolicy
from ipybox.workspace.registrations import PinnedTool

TICKED = PinnedTool("a", ("read_only",), unasked=True)
TICKED_WRITE = PinnedTool("a", ("destructive", "open_world"), unasked=True)
UNTICKED = PinnedTool("a", ("read_only", "open_world"), unasked=False)
UNTICKED_WRITE = PinnedTool("a", ("idempotent",), unasked=False)
UNDECIDED = PinnedTool("a", ("read_only", "idempotent"))


def effect(text: str, pinned: PinnedTool | None) -> str:
    return ApprovalPolicy(text, Path("/w")).decide("s", "t", {}, None, pinned).effect


@pytest.mark.parametrize(
    ("pinned", "expected"),
    [
        pytest.param(TICKED, "allow", id="ticked"),
        pytest.param(TICKED_WRITE, "allow", id="ticked-write"),
        pytest.param(UNTICKED, "ask", id="not-ticked"),
        pytest.param(UNDECIDED, "ask", id="undecided"),
        pytest.param(None, "ask", id="unknown"),
    ],
)
def test_writes_asks_about_all_but_the_tools_that_a_person_ticked(pinned: PinnedTool | None, expected: str):
    assert effect(WRITES, pinned) == expected


@pytest.mark.parametrize(
    ("rule", "met", "not_met"),
    [
        pytest.param("{effect: allow, hint: read_only}", [TICKED], [UNTICKED, UNDECIDED, None], id="allow"),
        pytest.param("{effect: allow, hint: idempotent}", [UNTICKED_WRITE], [UNDECIDED, TICKED, None], id="another"),
        pytest.param(
            "{effect: deny, hint: destructive}",
            [TICKED_WRITE, UNDECIDED, None],
            [TICKED, UNTICKED, UNTICKED_WRITE],
            id="deny",
        ),
        pytest.param(
            "{effect: deny, hint: [destructive, open_world]}",
            [TICKED_WRITE, UNTICKED, UNDECIDED, None],
            [TICKED, UNTICKED_WRITE],
            id="list",
        ),
        pytest.param(
            "{effect: deny, hint: open_world, server: other}",
            [],
            [TICKED_WRITE, UNTICKED, None],
            id="other-conditions",
        ),
    ],
)
def test_allow_needs_certainty_about_a_hint_and_deny_does_not(
    rule: str, met: list[PinnedTool | None], not_met: list[PinnedTool | None]
):
    text = f"rules:\n- {rule}\n"
    effects = {"allow", "deny"} & {rule[9:].split(",")[0]}
    assert {effect(text, pinned) for pinned in met} <= effects
    assert {effect(text, pinned) for pinned in not_met} == {"ask"}


def test_an_uncertain_hint_is_a_reason_that_no_answer_outlives():
    policy = ApprovalPolicy("default: allow\nrules:\n- {effect: ask, hint: destructive}\n", Path("/w"), source="rules")
    decision = policy.decide("s", "t", {})
    assert (decision.reason, decision.can_be_remembered) == ("rules:3, as it's unclear whether 'hint' matches", False)


def test_an_answer_to_a_rule_about_hints_is_remembered_with_them():
    policy = ApprovalPolicy("default: allow\nrules:\n- {effect: ask, hint: open_world}\n", Path("/w"))
    policy.remember(policy.decide("s", "t", {}, None, UNTICKED), "tool")
    assert [policy.decide("s", tool, {}, None, UNTICKED).effect for tool in ("t", "other")] == ["allow", "ask"]
    assert policy.decide("s", "t", {}, None, UNDECIDED).effect == "ask", "the tool has changed"


@pytest.mark.parametrize("hint", ["readOnlyHint", "reads", "''", "[read_only, x]", "5"])
def test_an_unknown_hint_is_an_error_that_lists_the_known_ones(hint: str):
    with pytest.raises(PolicyError, match=r"policy:2: a hint .*"):
        ApprovalPolicy(f"rules:\n- {{effect: deny, hint: {hint}}}\n")
