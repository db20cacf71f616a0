"""Tests which rule decides on a tool call."""

import itertools
import random
from fnmatch import fnmatchcase
from pathlib import Path

from ipybox.tool_exec.approval.client import ApprovalRequest
from ipybox.tool_exec.approval.policy import ApprovalPolicy
from tests.tool_exec.policy.rules import EFFECTS, rule_lines


def test_request_is_decided_on_as_the_call_that_it_is_about(workspace: Path, tmp_path: Path):
    policy = ApprovalPolicy(
        "rules:\n- {effect: allow, server: fs, tool: write, args: {path: {path: data/**}}}\n", workspace
    )

    async def respond(_: object) -> bool:
        return True

    def effect(server: str, tool: str, path: str, cwd: Path) -> str:
        request = ApprovalRequest(server, tool, {"path": path}, respond, {"command": "x", "cwd": str(cwd)})
        return policy.decide_on(request)[0].effect

    assert effect("fs", "write", "data/x", workspace) == "allow"
    assert effect("other", "write", "data/x", workspace) == "ask"
    assert effect("fs", "read", "data/x", workspace) == "ask"
    assert effect("fs", "write", "x", workspace) == "ask"
    assert effect("fs", "write", "data/x", tmp_path) == "ask"


def test_policy_says_what_it_allows_without_asking(workspace: Path):
    rules = "rules:\n- {effect: deny, server: a}\n- {effect: allow, tool: [ö, b]}\n- {effect: ask, server: b}\n"

    assert ApprovalPolicy(rules, workspace, source="p").allowed == ['p:3: {"effect": "allow", "tool": ["ö", "b"]}']
    assert ApprovalPolicy(f"default: allow\n{rules}", workspace).allowed[1:] == ["every call that no rule matches"]
    assert ApprovalPolicy(workspace=workspace).allowed == []


def test_first_match_wins_and_no_order_lets_through_what_a_rule_above_denies(workspace: Path):
    chance = random.Random(7)
    servers, tools, values = ["a", "b", "ab"], ["x", "y", "xy"], ["u", "v"]
    pool = [
        (effect, server, tool, f"arg: {value}")
        for effect, server, tool, value in itertools.product(EFFECTS, ["a*", "*b", "*"], ["x?", "*y", "*"], values)
    ]
    for _ in range(150):
        rules = chance.sample(pool, chance.randint(1, 12))
        policy = ApprovalPolicy(rule_lines(rules), workspace)
        for server, tool, value in itertools.product(servers, tools, values):
            matching = [
                effect
                for effect, s, t, arg in rules
                if fnmatchcase(server, s) and fnmatchcase(tool, t) and arg == f"arg: {value}"
            ]
            found = policy.decide(server, tool, {"arg": value}).effect
            assert found == (matching[0] if matching else "ask")
            # Whatever nobody can be sure of is never allowed beyond that.
            for unsure in ({}, {"arg": 5}):
                possible = [e for e, s, t, _ in rules if fnmatchcase(server, s) and fnmatchcase(tool, t)]
                stopping = next((effect for effect in possible if effect != "allow"), "ask")
                assert policy.decide(server, tool, unsure).effect == stopping


def test_a_rule_may_name_a_server_as_it_was_registered(workspace: Path):
    policy = ApprovalPolicy("default: allow\nrules:\n- {effect: deny, server: [brave-search, 'a.b*']}\n", workspace)
    servers = "brave_search", "brave-search", "a_bc", "a.bc", "brave"
    assert [policy.decide(each, "find", {}).effect for each in servers] == [*["deny"] * 4, "allow"]


def test_decision_names_its_rule_and_what_is_uncertain(workspace: Path):
    policy = ApprovalPolicy(
        "rules:\n\n- effect: deny\n  args: {path: {path: secrets/**}}\n", workspace, source="ipybox.yaml"
    )

    assert policy.decide("fs", "write", {"path": "secrets/x"}).reason == "ipybox.yaml:3"
    doubt = "ipybox.yaml:3, as it's unclear whether 'path' matches"
    assert policy.decide("fs", "write", {"path": 5}).reason == doubt
    assert policy.decide("fs", "write", {"path": "data/x"}).reason == "the default of ipybox.yaml"
