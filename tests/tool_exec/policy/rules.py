"""Rules, and what they decide."""

from pathlib import Path
from typing import Any

from ipybox.tool_exec.approval.policy import ApprovalPolicy

EFFECTS = ("allow", "ask", "deny")


def effect_of(rule: str, arguments: dict[str, Any], workspace: Path, server: str = "fs", tool: str = "write") -> str:
    """Returns what becomes of a call by one rule, where `none` is said if it doesn't match."""
    default = "deny" if "effect: allow" in rule else "allow"
    effect = ApprovalPolicy(f"default: {default}\nrules:\n- {rule}\n", workspace).decide(server, tool, arguments).effect
    return "none" if effect == default else effect


def rule(effect: str, args: str) -> str:
    return f"{{effect: {effect}, args: {{{args}}}}}"


def rule_lines(rules: list[tuple[str, str, str, str]]) -> str:
    lines = (f"- {{effect: {e}, server: '{s}', tool: '{t}', args: {{{a}}}}}" for e, s, t, a in rules)
    return "\n".join(["rules:", *lines, ""])


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
