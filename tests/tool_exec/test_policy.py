"""Approval policies: what rules match, which one decides, what is wrong in a file, and what becomes of answers."""

import itertools
import logging
import os
import random
import stat
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from ipybox.errors import PolicyError
from ipybox.tool_exec.approval.client import ApprovalRequest
from ipybox.tool_exec.approval.policy import Policy

EFFECTS = ("allow", "ask", "deny")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which servers are started, too, with links that lead out of `data`."""
    directory = (tmp_path / "workspace").resolve()
    (directory / "data" / "deep").mkdir(parents=True)
    (directory / "secrets").mkdir()
    (directory / "data" / "way-out").symlink_to("/etc")
    (directory / "data" / "to-secrets").symlink_to("../secrets")
    (directory / "data" / "circle").symlink_to("circle")
    (directory / "link").symlink_to("data")
    monkeypatch.chdir(directory)
    return directory


def effect_of(rule: str, arguments: dict[str, Any], workspace: Path, server: str = "fs", tool: str = "write") -> str:
    """Returns what becomes of a call by one rule, where `none` is said if it doesn't match."""
    default = "deny" if "effect: allow" in rule else "allow"
    effect = Policy(f"default: {default}\nrules:\n- {rule}\n", workspace).decide(server, tool, arguments).effect
    return "none" if effect == default else effect


def rule(effect: str, args: str) -> str:
    return f"{{effect: {effect}, args: {{{args}}}}}"


#: A condition, arguments, and whether it holds: None if nobody can say.
CONDITIONS: list[tuple[str, dict[str, Any], bool | None]] = [
    # Plain values
    ("a: x", {"a": "x"}, True),
    ("a: x", {"a": "X"}, False),
    ("a: x", {}, None),
    ("a: x", {"a": None}, None),
    ("a: '5'", {"a": 5}, None),
    ("a: 5", {"a": "5"}, None),
    ("a: 5", {"a": 5.0}, True),
    ("a: 1", {"a": True}, None),
    ("a: true", {"a": 1}, None),
    ("a: true", {"a": True}, True),
    ("a: true", {"a": False}, False),
    ("a: [x, y]", {"a": "y"}, True),
    ("a: {enum: [x, 1]}", {"a": 2}, False),
    ("a: {const: x}", {"a": ["x"]}, None),
    ("a: {const: true, default: false}", {}, False),
    ("a: {const: true, default: true}", {}, True),
    # Numbers
    ("a: {minimum: 5}", {"a": 5}, True),
    ("a: {exclusiveMinimum: 5}", {"a": 5}, False),
    ("a: {maximum: 5}", {"a": 5.1}, False),
    ("a: {exclusiveMaximum: 5, minimum: 1}", {"a": 4}, True),
    ("a: {maximum: 5}", {"a": "4"}, None),
    ("a: {maximum: 5}", {"a": True}, None),
    ("a: {maximum: 5}", {"a": float("nan")}, None),
    ("a: {maximum: 5}", {"a": float("inf")}, None),
    ("a: {maximum: 5}", {"a": float("-inf")}, None),
    ("a: {minimum: 5}", {"a": float("inf")}, None),
    ("a: 5", {"a": float("inf")}, None),
    ("a: {maximum: 5}", {"a": 10**400}, False),
    # Patterns
    ("a: {pattern: '^select '}", {"a": "select 1"}, True),
    ("a: {pattern: '^select '}", {"a": "drop select 1"}, False),
    ("a: {pattern: '^select .*$'}", {"a": "select 1;\ndrop"}, None),
    ("a: {pattern: 'drop.*table'}", {"a": "drop\ntable"}, None),
    ("a: {pattern: '^x$'}", {"a": "x\n"}, False),
    ("a: {pattern: x}", {"a": "x" * 100_000}, None),
    ("a: {pattern: x}", {"a": "x\ud800"}, None),
    ("a: {pattern: x}", {"a": 5}, None),
    # What is in arguments
    ("a.b: x", {"a": {"b": "x"}}, True),
    ("a.b: x", {"a": "x"}, None),
    ("a.b: x", {"a.b": "x"}, None),
    ("'a[]': x", {"a": ["x", "x"]}, True),
    ("'a[]': x", {"a": ["y"]}, False),
    ("'a[]': x", {"a": ["x", 5]}, None),
    ("'a[]': x", {"a": []}, None),
    ("'a[]': x", {"a": "x"}, None),
    ("'a[].b': x", {"a": [{"b": "x"}, {"c": 1}]}, None),
    ("'a[].b': x", {"a": [{"b": "x"}, {"b": "x"}]}, True),
    ("'a[].b': x", {"a": [{"b": "y"}]}, False),
    ("'a[].b': {enum: [x], default: x}", {"a": [{"b": "x"}, {"c": 1}]}, True),
    ("'a[][]': x", {"a": [["x"], ["x", "x"]]}, True),
    ("a.b.c: x", {"a": {"b": {"c": "x"}}}, True),
    ("'a[]': x", {"a": ["x"] * 100}, True),
    ("'a[]': x", {"a": ["x"] * 101}, None),
    ("'a[]': x", {"a": ["x"] * 1000}, None),
    # Two at once
    ("a: x, b: y", {"a": "x", "b": "y"}, True),
    ("a: x, b: y", {"a": "x", "b": "z"}, False),
    ("a: x, b: y", {"a": "x"}, None),
]

PATHS: list[tuple[str, Any, bool | None]] = [
    ("data/**", "data/x", True),
    ("data/**", "data/deep/er/x", True),
    ("data/**", "./data//deep/../x", True),
    ("data/**", "{workspace}/data/x", True),
    ("data/**", "data", True),
    ("data/**", "database", False),
    ("data/*", "data/deep/x", False),
    ("data/*.csv", "data/x.csv", True),
    ("data/*.csv", "data/x.csv.exe", False),
    ("data/**/x", "data/x", True),
    ("data/**/x", "data/deep/x", True),
    ("data/?", "data/x", True),
    ("/**", "/", True),
    ("/etc/**", "//etc/passwd", True),
    ("/etc/**", "../../../../../../../../etc/passwd", True),
    ("/etc/**", "/etcetera", False),
    # Out of the directory
    ("data/**", "data/../secrets/x", False),
    ("data/**", "data/deep/../../secrets", False),
    ("data/**", "/data/x", False),
    # Links: what they lead to counts, and for a deny how they are spelled, too
    ("data/**", "data/way-out/passwd", None),
    ("data/**", "data/to-secrets/x", None),
    ("secrets/**", "data/to-secrets/x", True),
    ("secrets/**", "link/to-secrets/x", True),
    ("data/**", "link/x", True),
    ("link/**", "link/x", None),
    ("data/**", "link/../secrets/x", False),
    ("data/**", "data/way-out/../data/x", None),
    ("data/**", "data/circle/x", None),
    # Another case may be the same file
    ("data/**", "DATA/x", None),
    ("data/caf\u00e9", "data/cafe\u0301", None),
    # What can't be judged
    ("data/**", "", None),
    ("data/**", 5, None),
    ("data/**", None, None),
    ("data/**", ["data/x"], None),
    ("data/**", "data/x\0", None),
    ("data/**", "data/\u202ex", None),
    ("data/**", "~/x", None),
    ("data/**", "data/$HOME", None),
    ("data/**", "data/*", None),
    ("data/**", "data/{x,../../y}", None),
    ("data/**", "data\\..\\x", None),
    ("data/**", "data/%2e%2e/x", None),
    ("data/**", "file:///data/x", None),
    ("data/**", "C:/data/x", None),
    ("data/**", " data/x", None),
    ("data/**", "data/" + "x/" * 1000, None),
    ("data/**", "data" + "/" * 995 + "x", True),
    ("data/**", "data" + "/" * 996 + "x", None),
    ("/**", "/proc/self/cwd/x", None),
]


@pytest.mark.parametrize(
    ("condition", "arguments", "holds"), CONDITIONS, ids=[f"{n}-{case[0]}" for n, case in enumerate(CONDITIONS)]
)
def test_condition_has_to_be_certain_to_allow_and_only_possible_to_deny_or_ask(
    condition: str, arguments: dict[str, Any], holds: bool | None, workspace: Path
):
    assert effect_of(rule("allow", condition), arguments, workspace) == ("allow" if holds else "none")
    for effect in ("deny", "ask"):
        assert effect_of(rule(effect, condition), arguments, workspace) == ("none" if holds is False else effect)


@pytest.mark.parametrize(("glob", "path", "holds"), PATHS, ids=[f"{n}-{case[0]}" for n, case in enumerate(PATHS)])
def test_path_is_judged_by_what_it_leads_to(glob: str, path: Any, holds: bool | None, workspace: Path):
    if isinstance(path, str) and path.startswith("{workspace}"):
        path = path.format(workspace=workspace)
    condition = f"path: {{path: {glob!r}}}"

    assert effect_of(rule("allow", condition), {"path": path}, workspace) == ("allow" if holds else "none")
    assert effect_of(rule("deny", condition), {"path": path}, workspace) == ("none" if holds is False else "deny")


@pytest.mark.parametrize(
    ("written", "server", "tool", "matches"),
    [
        ("server: git*", "github", "x", True),
        ("server: git*", "my-github", "x", False),
        ("server: [a, b]", "b", "x", True),
        ("tool: 'get_?'", "s", "get_1", True),
        ("tool: 'get_?'", "s", "get_12", False),
        ("tool: a.b", "s", "axb", False),
        ("tool: '*'", "s", "a/b\nc", True),
        ("server: s, tool: t", "s", "u", False),
        ("server: S", "s", "x", False),
    ],
)
def test_names_are_matched_as_a_whole(written: str, server: str, tool: str, matches: bool, workspace: Path):
    for effect in EFFECTS:
        found = effect_of(f"{{effect: {effect}, {written}}}", {}, workspace, server, tool)
        assert found == (effect if matches else "none")


def test_name_that_is_too_long_is_denied_and_not_allowed(workspace: Path):
    name = "x" * 1_000_000
    assert effect_of("{effect: deny, tool: other}", {}, workspace, tool=name) == "deny"
    assert effect_of("{effect: allow, tool: 'x*'}", {}, workspace, tool=name) == "none"


def test_relative_path_counts_from_where_the_server_was_started_too(workspace: Path, tmp_path: Path):
    policy = Policy(f"rules:\n- {rule('allow', 'path: {path: data/**}')}\n", workspace)

    def effect(cwd: str | None) -> str:
        return policy.decide("fs", "write", {"path": "data/x"}, {"command": "x", "cwd": cwd}).effect

    assert effect(None) == "allow"
    assert effect(str(workspace)) == "allow"
    assert effect(str(tmp_path)) == "ask"
    assert effect("${SOMEWHERE}") == "ask"


def test_request_is_decided_on_as_the_call_that_it_is_about(workspace: Path, tmp_path: Path):
    policy = Policy("rules:\n- {effect: allow, server: fs, tool: write, args: {path: {path: data/**}}}\n", workspace)

    async def respond(_: object) -> bool:
        return True

    def effect(server: str, tool: str, path: str, cwd: Path) -> str:
        request = ApprovalRequest(server, tool, {"path": path}, respond, {"command": "x", "cwd": str(cwd)})
        return policy.decide_on(request).effect

    assert effect("fs", "write", "data/x", workspace) == "allow"
    assert effect("other", "write", "data/x", workspace) == "ask"
    assert effect("fs", "read", "data/x", workspace) == "ask"
    assert effect("fs", "write", "x", workspace) == "ask"
    assert effect("fs", "write", "data/x", tmp_path) == "ask"


def test_policy_says_what_it_allows_without_asking(workspace: Path):
    rules = "rules:\n- {effect: deny, server: a}\n- {effect: allow, tool: [ö, b]}\n- {effect: ask, server: b}\n"

    assert Policy(rules, workspace, source="p").allowed == ['p:3: {"effect": "allow", "tool": ["ö", "b"]}']
    assert Policy(f"default: allow\n{rules}", workspace).allowed[1:] == ["every call that no rule matches"]
    assert Policy(workspace=workspace).allowed == []


def test_link_in_the_place_of_an_allowed_directory_leads_nowhere(workspace: Path):
    policy = Policy(f"rules:\n- {rule('allow', 'path: {path: new/**}')}\n", workspace)
    assert policy.decide("fs", "write", {"path": "new/x"}).effect == "allow"

    (workspace / "new").symlink_to("/etc")

    assert policy.decide("fs", "write", {"path": "new/x"}).effect == "ask"


def test_links_one_behind_the_other_without_end_are_not_judged(workspace: Path):
    (workspace / "link-0").symlink_to("data")
    for number in range(1, 2000):
        (workspace / f"link-{number}").symlink_to(f"link-{number - 1}/deep/..")

    assert effect_of(rule("allow", "path: {path: data/**}"), {"path": "link-1999/x"}, workspace) == "none"
    assert effect_of(rule("deny", "path: {path: /etc/**}"), {"path": "link-1999/x"}, workspace) == "deny"


def test_no_text_makes_a_pattern_slow(workspace: Path):
    policy = Policy(rule_lines([("deny", "s*", "t", "a: {pattern: '^(a+)+$'}")] * 50), workspace)
    started = time.process_time()

    policy.decide("s", "t", {"a": "a" * 19_000 + "!"})

    assert time.process_time() - started < 1


def rule_lines(rules: list[tuple[str, str, str, str]]) -> str:
    lines = (f"- {{effect: {e}, server: '{s}', tool: '{t}', args: {{{a}}}}}" for e, s, t, a in rules)
    return "\n".join(["rules:", *lines, ""])


def test_first_match_wins_and_no_order_lets_through_what_a_rule_above_denies(workspace: Path):
    chance = random.Random(7)
    servers, tools, values = ["a", "b", "ab"], ["x", "y", "xy"], ["u", "v"]
    pool = [
        (effect, server, tool, f"arg: {value}")
        for effect, server, tool, value in itertools.product(EFFECTS, ["a*", "*b", "*"], ["x?", "*y", "*"], values)
    ]
    for _ in range(150):
        rules = chance.sample(pool, chance.randint(1, 12))
        policy = Policy(rule_lines(rules), workspace)
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


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("", None, "is empty"),
        ("# nothing\n", None, "is empty"),
        ("rules: [", 1, "not valid YAML"),
        ("default: ask\n\tx: 1", 2, "not valid YAML"),
        ("default: ask\n--- \ndefault: deny", 2, "another document"),
        ("default: \x00", 1, "character 0x0"),
        ("[" * 30_000 + "]" * 30_000, 1, "1: this is nested too deeply"),
        ("\ndefault: \x00", 2, "character 0x0"),
        ("default: ask\n\tx: 1", 2, "that cannot start any token, while scanning for the next token"),
        ("#" * 65_537, None, "larger than 65,536 bytes"),
        ("#" * 65_536, None, "is empty"),
        ("x: &a [1]\ny: [*a, *a]", 2, "aliases are not taken"),
        ("- effect: allow", 1, "a policy has to be a mapping with default, rules"),
        ("defualt: ask", 1, "unknown key 'defualt': a policy can have default, rules"),
        ("default: ask\ndefault: deny", 2, "the key 'default' is there twice"),
        ("default: never", 1, "'default' has to be allow, ask or deny, not 'never'"),
        ("default: no", 1, "'default' has to be a text, not 'no': put it in quotes"),
        ("default:", 1, "not nothing"),
        ("default: [ask]", 1, "'default' has to be a printable text of at most 500 characters"),
        ("default: [ask]", 1, "a number, true or false, not a list; quote"),
        ("default: {ask: deny}", 1, "true or false, not a mapping; quote"),
        ("default: " + "n" * 60, 1, f"not '{'n' * 60}'"),
        ("default: " + "n" * 61, 1, f"not '{'n' * 60}…'"),
        ("5: ask", 1, "a key has to be a text, not '5'"),
        ("[a]: ask", 1, "a key has to be a printable text"),
        ("rules: x", 1, "'rules' has to be a list"),
        ("rules: [{effect: allow, tool: x}]", 1, "'rules' has to be a list, in lines that begin with '-'"),
        ("rules:\n- x", 2, "a rule has to be a mapping with effect, server, tool, args, not 'x'"),
        ("rules:\n-\n", 2, "a rule has to be a mapping"),
        ("rules:\n-\n  effect: ask\n  tool: x", 3, "has to begin in the line of its '-'"),
        ("rules:\n- tool: x", 2, "a rule has to have an 'effect'"),
        ("rules:\n- effect: allow", 2, "the rule is empty"),
        ("rules:\n- effect: allow\n  tools: x", 3, "unknown key 'tools'"),
        ("rules:\n- effect: permit\n  tool: x", 2, "'effect' has to be allow, ask or deny, not 'permit'"),
        ("rules:\n- effect: allow\n  tool: 5", 3, "a tool has to be a text, not '5'"),
        ("rules:\n- effect: allow\n  tool: 2026-11-21", 3, "quote a text that looks otherwise"),
        ("rules:\n- effect: allow\n  tool: []", 3, "the list is empty"),
        ("rules:\n- effect: allow\n  tool: 'a, b'", 3, "a tool has to be a name"),
        ("rules:\n- effect: allow\n  server: '[ab]'", 3, "a server has to be a name"),
        ("rules:\n- effect: allow\n  args: {}", 3, "'args' is empty"),
        ("rules:\n- effect: allow\n  args: x", 3, "'args' has to be a mapping, not 'x'"),
        ("rules:\n- effect: allow\n  args: {a: {}}", 3, "'a' has no condition"),
        ("rules:\n- effect: allow\n  args: {a: {default: 1}}", 3, "'a' has no condition"),
        ("rules:\n- effect: allow\n  args:\n    a: {like: x}", 4, "unknown key 'like'"),
        ("rules:\n- effect: allow\n  args: {a..b: x}", 3, "'a..b' is no argument"),
        ("rules:\n- effect: allow\n  args: {a: null}", 3, "not 'null'"),
        ("rules:\n- effect: allow\n  args: {a: !!int x}", 3, "not 'x'; quote a text that looks otherwise"),
        ("rules:\n- effect: allow\n  args: {a: !!int 2026-11-21}", 3, "not '2026-11-21'; quote a text"),
        ("rules:\n- effect: allow\n  args: {a: .nan}", 3, "a value has to be a finite number"),
        ("rules:\n- effect: allow\n  args: {a: {minimum: x}}", 3, "'minimum' has to be a number, not 'x'"),
        ("rules:\n- effect: allow\n  args: {a: {maximum: .inf}}", 3, "'maximum' has to be a number"),
        ("rules:\n- effect: allow\n  args: {a: {enum: x}}", 3, "'enum' has to be a list"),
        ("rules:\n- effect: allow\n  args: {a: {const: [x]}}", 3, "'const' has to be one value"),
        ("rules:\n- effect: allow\n  args: {a: {pattern: '('}}", 3, "Rust's regex: unclosed group"),
        ("rules:\n- effect: allow\n  args: {a: {pattern: '(?=x)'}}", 3, "look-around"),
        ("rules:\n- effect: allow\n  args: {a: {path: ../x}}", 3, "without '..'"),
        ("rules:\n- effect: allow\n  args: {a: {path: 'x/{a,b}'}}", 3, "without wildcards but *, ? and **"),
        ("rules:\n- effect: allow\n  args: {a: {path: 'x**'}}", 3, "has to be a path such as"),
        ("rules:\n- effect: allow\n  args: {a: {path: ~root/x}}", 3, "has to be a path such as"),
        ("rules:\n- effect: allow\n  args: {a: !!python/object:os.system {}}", 3, "'a' has to be a mapping"),
        ("rules:\n- effect: allow\n  tool: " + "x" * 600, 3, "at most 500 characters"),
        ("rules:\n" + "- {effect: allow, tool: x}\n" * 201, 2, "there are 201 rules"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_wrong_is_said_with_its_line_and_what_is_expected(text: str, line: int | None, expected: str):
    with pytest.raises(PolicyError) as error:
        Policy(text, source="ipybox.yaml")

    assert expected in str(error.value)
    assert str(error.value).startswith("ipybox.yaml is" if line is None else f"ipybox.yaml:{line}: ")
    assert str(error.value).isprintable()


def test_text_may_have_so_many_characters(workspace: Path):
    assert effect_of(rule("allow", f"a: {'x' * 500}"), {"a": "x" * 500}, workspace) == "allow"


def test_decision_names_its_rule_and_what_is_uncertain(workspace: Path):
    policy = Policy("rules:\n\n- effect: deny\n  args: {path: {path: secrets/**}}\n", workspace, source="ipybox.yaml")

    assert policy.decide("fs", "write", {"path": "secrets/x"}).reason == "ipybox.yaml:3"
    doubt = "ipybox.yaml:3, as nothing certain can be said about 'path'"
    assert policy.decide("fs", "write", {"path": 5}).reason == doubt
    assert policy.decide("fs", "write", {"path": "data/x"}).reason == "the default of ipybox.yaml"


POLICY = """\
# My rules
rules:
  - effect: deny # never
    server: fs
    args: {path: {path: [secrets/**]}}

  # I want to know
  # about these
  - effect: ask
    server: fs
    tool: [write, move]
    args:
      path:
        path: data/**   # only there

  - {effect: deny, server: fs, tool: write}
  # the end
"""


@pytest.fixture
def policy_file(workspace: Path) -> Path:
    file = workspace / "ipybox.yaml"
    file.write_text(POLICY)
    return file


def remember(policy: Policy, scope: Any, server: str = "fs", tool: str = "write", path: str = "data/x") -> None:
    policy.remember(policy.decide(server, tool, {"path": path}), scope)


def test_answer_goes_before_the_rule_that_asked_and_allows_no_more_than_that(policy_file: Path, workspace: Path):
    policy = Policy.load(policy_file, workspace)

    remember(policy, "tool")

    new = (
        '  - server: "fs"  # remembered from an answer\n'
        '    tool: "write"\n'
        '    args: {"path": {"path": "data/**"}}\n'
        '    effect: "allow"\n'
    )
    assert policy_file.read_text() == POLICY.replace("  # I want", f"{new}  # I want")
    for again in (policy, Policy.load(policy_file, workspace)):
        assert again.decide("fs", "write", {"path": "data/x"}).effect == "allow"
        assert again.decide("fs", "move", {"path": "data/x"}).effect == "ask"
        assert again.decide("fs", "write", {"path": "data/to-secrets/x"}).effect == "deny"
        assert again.decide("fs", "write", {"path": "other"}).effect == "deny", "by a rule further below"


def test_answer_to_what_no_rule_matches_goes_to_the_end(policy_file: Path, workspace: Path):
    policy = Policy.load(policy_file, workspace)

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


def test_answers_turn_nothing_into_an_allow_but_what_is_asked(workspace: Path):
    chance = random.Random(11)
    calls = list(itertools.product(["a", "b"], ["x", "y"], ["u", "v", 5]))
    pool = [
        (effect, server, tool, f"arg: {value}")
        for effect, server, tool, value in itertools.product(EFFECTS, ["a", "b", "*"], ["x", "*"], ["u", "v"])
    ]
    for _ in range(100):
        policy = Policy(rule_lines(chance.sample(pool, chance.randint(1, 6))), workspace)
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

    remember(Policy.load(file, workspace), "tool")

    assert file.read_bytes().startswith(text.encode())
    assert (b"\r\n" in file.read_bytes()) == ("\r\n" in text)
    assert Policy.load(file, workspace).decide("fs", "write", {}).effect == "allow"


def test_file_elsewhere_is_replaced_at_once_and_keeps_its_mode(tmp_path: Path, workspace: Path):
    file = tmp_path / "rules.yaml"
    file.write_text(POLICY)
    file.chmod(0o640)
    with file.open() as reader:
        remember(Policy.load(file, workspace), "tool", server="github")

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
        assert Policy.load(file, workspace).decide(*call).reason == f"{file.name}:9"
    assert Policy(POLICY, workspace).decide(*call).reason == "policy:9"


def test_file_in_the_workspace_stays_the_one_that_a_sandbox_protects(policy_file: Path, workspace: Path):
    before = policy_file.stat().st_ino
    remember(Policy.load(policy_file, workspace), "tool")
    assert policy_file.stat().st_ino == before


def test_file_that_has_changed_is_left_alone_and_the_answer_holds_for_the_session(
    policy_file: Path, workspace: Path, caplog: pytest.LogCaptureFixture
):
    policy = Policy.load(policy_file, workspace)
    policy_file.write_text("default: deny\n")

    with caplog.at_level(logging.WARNING):
        remember(policy, "tool")

    assert policy_file.read_text() == "default: deny\n"
    assert "ipybox.yaml has changed since it was read" in caplog.text
    assert policy.decide("fs", "write", {"path": "data/x"}).effect == "allow"


def test_answer_that_another_one_has_made_needless_is_not_written(policy_file: Path, workspace: Path):
    policy = Policy.load(policy_file, workspace)
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
            "ipybox.yaml is written in a way in which no rule can be added to it",
            id="text_that_looks_like_a_comment",
        ),
        pytest.param("default: ask\n...\n", "ipybox.yaml:3: not valid YAML", id="end_of_the_document"),
        pytest.param(
            "rules:\n" + "- {effect: deny, tool: x}\n" * 200, "there are 201 rules", id="as_many_rules_as_there_can_be"
        ),
    ],
)
def test_policy_that_no_rule_can_be_added_to_stays_as_it_is_and_the_log_says_so(
    text: str, reason: str, workspace: Path, caplog: pytest.LogCaptureFixture
):
    file = workspace / "ipybox.yaml"
    file.write_text(text)
    policy = Policy.load(file, workspace)

    with caplog.at_level(logging.WARNING):
        policy.remember(policy.decide("fs", "write", {"a": "plain"}), "tool")

    assert reason in caplog.text
    assert file.read_text() == text
    assert policy.decide("fs", "write", {"a": "plain"}).effect == "ask"


@pytest.mark.parametrize(("server", "tool"), [("fs", "*"), ("fs", "a b"), ("fs", ""), ("f?", "x"), ("fs", "x" * 201)])
def test_names_that_would_mean_others_are_not_remembered(server: str, tool: str, workspace: Path):
    assert not Policy(workspace=workspace).decide(server, tool, {}).can_be_remembered


def test_what_is_asked_only_because_nothing_is_certain_is_not_remembered(workspace: Path):
    policy = Policy(f"rules:\n- {rule('ask', 'a: x')}\n", workspace)
    assert policy.decide("s", "t", {"a": "x"}).can_be_remembered
    assert not policy.decide("s", "t", {}).can_be_remembered


@pytest.mark.parametrize("name", ["rules.yaml", "sub/ipybox.yaml"])
def test_policy_that_code_could_change_is_refused(name: str, workspace: Path):
    (workspace / "sub").mkdir()
    (workspace / name).write_text(POLICY)
    (workspace / "ipybox.yaml").symlink_to(name)
    for path in (workspace / name, workspace / "ipybox.yaml"):
        with pytest.raises(PolicyError, match=r"code could change the policy .*: call it .*ipybox\.yaml"):
            Policy.load(path, workspace)


def test_file_that_can_not_be_read_is_an_error(tmp_path: Path, workspace: Path):
    with pytest.raises(PolicyError, match=r"there is no policy .*missing\.yaml: write it, or choose 'auto' or 'ask'"):
        Policy.load(tmp_path / "missing.yaml", workspace)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"\xff")
    for name, reason in (("workspace/data", "is in the workspace"), ("pipe", "not a file"), ("bytes", "not UTF-8")):
        with pytest.raises(PolicyError, match=reason):
            Policy.load(tmp_path / name, workspace)
