"""Tests the errors of policy files."""

import os
from pathlib import Path

import pytest

from ipybox.errors import PolicyError
from ipybox.tool_exec.approval.policy import ApprovalPolicy
from ipybox.workspace.trust import TrustStore
from tests.support.test_untrusted_file import lowest_free
from tests.tool_exec.policy.rules import POLICY, effect_of, rule


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("", None, "is empty"),
        ("# nothing\n", None, "is empty"),
        ("rules: [", 1, "not valid YAML"),
        ("default: ask\n\tx: 1", 2, "not valid YAML"),
        ("default: ask\n--- \ndefault: deny", 2, "another document"),
        ("default: \x00", 1, "character 0x0"),
        ("[" * 30_000 + "]" * 30_000, 1, "1: nested too deeply"),
        ("\ndefault: \x00", 2, "character 0x0"),
        ("default: ask\n\tx: 1", 2, "that cannot start any token, while scanning for the next token"),
        ("#" * 65_537, None, "larger than 65,536 bytes"),
        ("#" * 65_536, None, "is empty"),
        ("x: &a [1]\ny: [*a, *a]", 2, "aliases are not supported"),
        ("- effect: allow", 1, "a policy must be a mapping with default, rules"),
        ("defualt: ask", 1, "unknown key 'defualt': valid keys for a policy are default, rules"),
        ("default: ask\ndefault: deny", 2, "duplicate key 'default'"),
        ("default: never", 1, "'default' must be allow, ask or deny, not 'never'"),
        ("default: no", 1, "'default' must be a string, not 'no': put it in quotes"),
        ("default:", 1, "not nothing"),
        ("default: [ask]", 1, "'default' must be a printable string of at most 500 characters"),
        ("default: [ask]", 1, "a finite number, true or false, not a list; quote"),
        ("default: {ask: deny}", 1, "true or false, not a mapping; quote"),
        ("default: " + "n" * 60, 1, f"not '{'n' * 60}'"),
        ("default: " + "n" * 61, 1, f"not '{'n' * 60}…'"),
        ("5: ask", 1, "a key must be a string, not '5'"),
        ("[a]: ask", 1, "a key must be a printable string"),
        ("rules: x", 1, "'rules' must be a list"),
        ("rules: [{effect: allow, tool: x}]", 1, "'rules' must be a list with one '-' per rule"),
        ("rules:\n- x", 2, "a rule must be a mapping with effect, server, registration, tool, hint, args, not 'x'"),
        ("rules:\n-\n", 2, "a rule must be a mapping"),
        ("rules:\n-\n  effect: ask\n  tool: x", 3, "must start on the same line as its '-'"),
        ("rules:\n- tool: x", 2, "a rule must have an 'effect'"),
        ("rules:\n- effect: allow", 2, "a rule must also have a server"),
        ("rules:\n- effect: allow\n  tools: x", 3, "unknown key 'tools'"),
        ("rules:\n- effect: permit\n  tool: x", 2, "'effect' must be allow, ask or deny, not 'permit'"),
        ("rules:\n- effect: allow\n  tool: 5", 3, "a tool must be a string, not '5'"),
        ("rules:\n- effect: allow\n  tool: 2026-11-21", 3, "quote strings that look like other types"),
        ("rules:\n- effect: allow\n  tool: []", 3, "the list is empty"),
        ("rules:\n- effect: allow\n  tool: 'a, b'", 3, "a tool must be a name"),
        ("rules:\n- effect: allow\n  server: '[ab]'", 3, "a server must be a name"),
        ("rules:\n- effect: allow\n  args: {}", 3, "'args' is empty"),
        ("rules:\n- effect: allow\n  args: x", 3, "'args' must be a mapping, not 'x'"),
        ("rules:\n- effect: allow\n  args: {a: {}}", 3, "'a' has no condition"),
        ("rules:\n- effect: allow\n  args:\n    a: {like: x}", 4, "unknown key 'like'"),
        ("rules:\n- effect: allow\n  args: {a..b: x}", 3, "invalid argument 'a..b'"),
        ("rules:\n- effect: allow\n  args: {a: null}", 3, "not 'null'"),
        ("rules:\n- effect: allow\n  args: {a: !!int x}", 3, "not 'x'; quote strings that look like other types"),
        ("rules:\n- effect: allow\n  args: {a: !!int 2026-11-21}", 3, "not '2026-11-21'; quote strings"),
        ("rules:\n- effect: allow\n  args: {a: .nan}", 3, "a finite number, true or false, not '.nan'"),
        ("rules:\n- effect: allow\n  args: {a: {minimum: x}}", 3, "'minimum' must be a number, not 'x'"),
        ("rules:\n- effect: allow\n  args: {a: {maximum: .inf}}", 3, "a finite number, true or false, not '.inf'"),
        ("rules:\n- effect: allow\n  args: {a: {pattern: '('}}", 3, "Rust's regex: unclosed group"),
        ("rules:\n- effect: allow\n  args: {a: {pattern: '(?=x)'}}", 3, "look-around"),
        ("rules:\n- effect: allow\n  args: {a: {path: ../x}}", 3, "without '..'"),
        ("rules:\n- effect: allow\n  args: {a: {path: 'x/{a,b}'}}", 3, "with no wildcards except *, ? and **"),
        ("rules:\n- effect: allow\n  args: {a: {path: 'x**'}}", 3, "must be a path such as"),
        ("rules:\n- effect: allow\n  args: {a: {path: ~root/x}}", 3, "must be a path such as"),
        ("rules:\n- effect: allow\n  args: {a: !!python/object:os.system {}}", 3, "'a' must be a mapping"),
        ("rules:\n- effect: allow\n  tool: " + "x" * 600, 3, "at most 500 characters"),
        ("rules:\n" + "- {effect: allow, tool: x}\n" * 201, 2, "too many rules: 201"),
        (f"rules:\n- effect: allow\n  args: {{a: [{'1,' * 2001}]}}", 3, "more than 2,000 values in lists"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_wrong_is_said_with_its_line_and_what_is_expected(text: str, line: int | None, expected: str):
    with pytest.raises(PolicyError) as error:
        ApprovalPolicy(text, source="ipybox.yaml")

    assert expected in str(error.value)
    assert str(error.value).startswith("ipybox.yaml is" if line is None else f"ipybox.yaml:{line}: ")
    assert str(error.value).isprintable()


def test_text_may_have_so_many_characters(workspace: Path):
    assert effect_of(rule("allow", f"a: {'x' * 500}"), {"a": "x" * 500}, workspace) == "allow"


@pytest.mark.parametrize("name", ["rules.yaml", "sub/ipybox.yaml"])
def test_policy_that_code_could_change_is_refused(name: str, workspace: Path):
    (workspace / "sub").mkdir()
    (workspace / name).write_text(POLICY)
    (workspace / "ipybox.yaml").symlink_to(name)
    for path in (workspace / name, workspace / "ipybox.yaml"):
        with pytest.raises(PolicyError, match=r"cells could change the policy .*: rename it to .*ipybox\.yaml"):
            ApprovalPolicy.load(path, workspace)


def test_policy_that_is_a_directory_is_refused_and_stays_closed(tmp_path: Path, workspace: Path):
    free = lowest_free()
    with pytest.raises(PolicyError, match=r"can't read the policy .*: Is a directory"):
        ApprovalPolicy.load(tmp_path, workspace)
    assert lowest_free() == free


def test_file_that_can_not_be_read_is_an_error(tmp_path: Path, workspace: Path):
    ways = "or use 'auto', 'writes' or 'ask'"
    with pytest.raises(PolicyError, match=rf"policy file .*missing\.yaml not found: create it, {ways}"):
        ApprovalPolicy.load(tmp_path / "missing.yaml", workspace)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"\xff")
    for name, reason in (
        ("workspace/data", "is in the workspace"),
        ("workspace/gone.yaml", "not found; to pass the rules as a string, use ApprovalPolicy"),
        ("pipe", "not a regular file"),
        ("bytes", "not UTF-8"),
        ("bytes/rules.yaml", "can't read the policy .*: Not a directory"),
    ):
        with pytest.raises(PolicyError, match=reason):
            ApprovalPolicy.load(tmp_path / name, workspace)
    with pytest.raises(PolicyError, match=rf"maybe not found: create .*/workspace/ipybox\.yaml, {ways}"):
        ApprovalPolicy.load(workspace / "maybe", workspace, TrustStore(workspace))
