"""Tests which tool calls the conditions and names of a rule match."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ipybox.tool_exec.approval.policy import ApprovalPolicy
from tests.tool_exec.policy.rules import EFFECTS, effect_of, rule, rule_lines

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
    ("a: [x, 1]", {"a": 2}, False),
    ("a: x", {"a": ["x"]}, None),
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
    ("a: 9007199254740991", {"a": 9007199254740991}, True),
    ("a: 9007199254740992", {"a": 9007199254740993}, None),
    ("a: 9007199254740993", {"a": 9007199254740993}, None),
    ("a: {minimum: 9}", {"a": 9007199254740993}, True),
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
    ("'a[][]': x", {"a": [["x"], ["x", "x"]]}, True),
    ("a.b.c: x", {"a": {"b": {"c": "x"}}}, True),
    ("'a[]': x", {"a": ["x"] * 100}, True),
    ("'a[]': x", {"a": ["x"] * 101}, None),
    ("'a[]': x", {"a": ["x"] * 1000}, None),
    # Names that differ in case only, of which servers in Go take the last one
    ("a: x", {"a": "x", "A": "y"}, None),
    ("a: x", {"A": "y", "a": "z"}, None),
    ("a.s: x", {"a": {"s": "x", "\u017f": "y"}}, None),
    ("a: x", {"a": "x", **{f"b{number}": 1 for number in range(99)}}, True),
    ("a: x", {"a": "x", **{f"b{number}": 1 for number in range(100)}}, None),
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
    policy = ApprovalPolicy(f"rules:\n- {rule('allow', 'path: {path: data/**}')}\n", workspace)

    def effect(cwd: str | None) -> str:
        return policy.decide("fs", "write", {"path": "data/x"}, {"command": "x", "cwd": cwd}).effect

    assert effect(None) == "allow"
    assert effect(str(workspace)) == "allow"
    assert effect(str(tmp_path)) == "ask"
    assert effect("${SOMEWHERE}") == "ask"


@pytest.mark.parametrize(
    "params",
    [
        {"args": ["-y", "fs", "{}"]},
        {"args": ["--root={}"]},
        {"args": ["-v", "{}:/projects:ro"]},
        {"args": ["../other"]},
        {"env": {"VAULT": "{}"}},
        {"args": ["--root=~/other"]},
        {"env": {"VAULT": "${SOMEWHERE}", "API_KEY": "${API_KEY}"}},
        {"args": ["${SOMEWHERE}"]},
        {"args": ["{}", *map(str, [*Path("/").glob("*"), *Path("/usr").glob("*"), *Path("/dev").glob("*")])]},
    ],
)
def test_relative_path_counts_from_directories_that_the_server_was_started_with_too(
    params: dict[str, Any], workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    other = workspace.parent / "other"
    other.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(workspace.parent))
    filled: Any = json.loads(json.dumps({"command": "x", "cwd": str(workspace), **params}).replace("{}", str(other)))
    args = f"path: {{path: '{other}/secrets/**'}}"
    policy = ApprovalPolicy(f"default: allow\nrules:\n- {rule('deny', args)}\n", workspace)
    assert policy.decide("fs", "read", {"path": "secrets/x"}, filled).effect == "deny"
    assert policy.decide("fs", "read", {"path": str(workspace / "x")}, filled).effect == "allow"
    allowing = ApprovalPolicy(f"rules:\n- {rule('allow', 'path: {path: data/**}')}\n", workspace)
    assert allowing.decide("fs", "read", {"path": "data/x"}, filled).effect == "ask"
    assert allowing.decide("fs", "read", {"path": str(workspace / "data/x")}, filled).effect == "allow"


def test_link_in_the_place_of_an_allowed_directory_leads_nowhere(workspace: Path):
    policy = ApprovalPolicy(f"rules:\n- {rule('allow', 'path: {path: new/**}')}\n", workspace)
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
    policy = ApprovalPolicy(rule_lines([("deny", "s*", "t", "a: {pattern: '^(a+)+$'}")] * 50), workspace)
    started = time.process_time()

    policy.decide("s", "t", {"a": "a" * 19_000 + "!"})

    assert time.process_time() - started < 1
