"""The rules of an approval policy, and how they are written.

default: ask                  # if no rule matches; the default is ask
rules:                        # the first rule that matches decides
  - effect: deny              # allow, ask or deny
    server: filesystem        # a name, or a list of names, with * and ?
    registration: 5d41…       # a hash of the server's parameters, in rules that ipybox adds
    tool: [write_*, edit_*]
    hint: destructive         # or read_only, idempotent or open_world, or a list
    args:                     # all must hold: a value, a list of possible values, or conditions
      path: {path: "secrets/**"}
      edits[].oldText: {pattern: "^import"}
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args

import yaml

from ipybox.tool_exec.approval.conditions import (
    COMPARISONS,
    EACH,
    Argument,
    Condition,
    ToolCall,
    compares,
    matches,
    one_of,
    path_matches,
)
from ipybox.tool_exec.approval.document import PolicyDocument
from ipybox.tool_exec.approval.patterns import PathGlob, Pattern, is_text, name_glob
from ipybox.workspace.registrations import HINTS

Effect = Literal["allow", "ask", "deny"]
EFFECTS: Final[tuple[Effect, ...]] = get_args(Effect)

#: Maximum rules of a policy: each takes time.
MAX_RULES = 200

_POLICY_KEYS = ("default", "rules")
_RULE_KEYS = ("effect", "server", "registration", "tool", "hint", "args")
_CONDITION_KEYS = ("pattern", "path", *COMPARISONS)
#: Characters that are wildcards or separators elsewhere.
_NOT_IN_NAMES = re.compile(r"[\s,;|\[\]{}()\\]|^$")

T = TypeVar("T")


@dataclass(frozen=True)
class ApprovalRule:
    """One rule of a policy.

    Attributes:
        servers, tools: Patterns for their names; empty for all.
        registration: A hash of the server's parameters; empty for any.
        hints: Hints, of which one must apply to the tool; empty for all tools.
        written: The rule in the file, as plain data.
        source: File and line.
        start, end: The indexes in the text at which the rule's first line, and the line after it, start.
    """

    effect: Effect
    servers: Sequence[Pattern]
    registration: str
    tools: Sequence[Pattern]
    hints: Sequence[str]
    arguments: Sequence[Argument]
    written: Mapping[str, Any]
    source: str
    start: int
    end: int

    def matches(self, call: ToolCall) -> bool:
        """Returns whether the rule decides on a call. Unless the rule allows, unknown conditions count as met."""
        return (
            self._names(self.servers, call.server)
            and self.registration in ("", call.registration)
            and self._names(self.tools, call.tool)
            and (not self.hints or self._is_enough([self._hinted(call)]))
            and all(self._is_enough(argument.judge(call)) for argument in self.arguments)
        )

    def uncertain_argument(self, call: ToolCall) -> str | None:
        """Returns the name of an argument for which it is uncertain whether the rule matches; None without one.

        The name is `hint` if that is true of the rule's hints.
        """
        if self.hints and self._hinted(call) is None:
            return "hint"
        return next((each.name for each in self.arguments if True not in each.judge(call)), None)

    def _hinted(self, call: ToolCall) -> bool | None:
        answers = [call.has_hint(hint) for hint in self.hints]
        return True if True in answers else None if None in answers else False

    def _is_enough(self, answers: Sequence[bool | None]) -> bool:
        if self.effect == "allow":
            return all(answers)
        return any(answer is not False for answer in answers)

    def _names(self, globs: Sequence[Pattern], name: str) -> bool:
        if not globs:
            return True
        if not is_text(name):
            return self.effect != "allow"
        return any(glob.found_in(name) for glob in globs)


def parse(document: PolicyDocument, workspace: Path) -> tuple[Effect, list[ApprovalRule]]:
    """Returns the default and the rules of a document.

    Raises:
        PolicyError: If the document is not a valid policy.
    """
    top = document.mapping(document.root, "a policy", _POLICY_KEYS)
    default = _choice(document, top["default"], "'default'", EFFECTS) if "default" in top else "ask"
    if "rules" not in top:
        return default, []
    rules = top["rules"]
    if not isinstance(rules, yaml.SequenceNode) or rules.flow_style or not rules.value:
        document.fail(rules, f"'rules' must be a list with one '-' per rule, not {document.shown(rules)}")
    if len(rules.value) > MAX_RULES:
        document.fail(rules, f"too many rules: {len(rules.value)}; the limit is {MAX_RULES}")
    return default, [_rule(document, node, workspace) for node in rules.value]


def _rule(document: PolicyDocument, node: yaml.Node, workspace: Path) -> ApprovalRule:
    keys = document.mapping(node, "a rule", _RULE_KEYS)
    if "effect" not in keys:
        document.fail(node, f"a rule must have an 'effect': {', '.join(EFFECTS)}")
    if len(keys) == 1:
        document.fail(node, "a rule must also have a server, tool, hint or args; server: '*' matches all calls")
    start = document.text.rfind("\n", 0, node.start_mark.index) + 1
    if document.text[start : node.start_mark.index].strip(" \t") != "-":
        document.fail(node, "a rule must start on the same line as its '-'")
    return ApprovalRule(
        effect=_choice(document, keys["effect"], "'effect'", EFFECTS),
        servers=_names(document, keys.get("server"), "a server", packages=True),
        registration=document.text_of(keys["registration"], "a registration") if "registration" in keys else "",
        tools=_names(document, keys.get("tool"), "a tool"),
        hints=[_choice(document, each, "a hint", [*HINTS.values()]) for each in document.items(keys.get("hint"))],
        arguments=_arguments(document, keys.get("args"), workspace),
        written=document.plain(node),
        source=f"{document.source}:{node.start_mark.line + 1}",
        start=start,
        end=document.end(node),
    )


def _choice(document: PolicyDocument, node: yaml.Node, what: str, known: Sequence[T]) -> T:
    value = document.text_of(node, what)
    if value not in known:
        *others, last = map(str, known)
        document.fail(node, f"{what} must be {', '.join(others)} or {last}, not {document.shown(node)}")
    return known[known.index(value)]


def _names(document: PolicyDocument, node: yaml.Node | None, what: str, *, packages: bool = False) -> list[Pattern]:
    """Returns patterns for names; with `packages`, also for the package of a server such as `brave-search`."""
    globs = [(each, document.text_of(each, what)) for each in document.items(node)]
    for each, glob in globs:
        if _NOT_IN_NAMES.search(glob):
            document.fail(each, f"{what} must be a name, optionally with the wildcards * and ?, or a list of names")
    written = dict.fromkeys(glob for _, glob in globs)
    also = [re.sub("[-.]", "_", glob) for glob in written] if packages else []
    return [name_glob(glob) for glob in dict.fromkeys([*written, *also])]


def _arguments(document: PolicyDocument, node: yaml.Node | None, workspace: Path) -> list[Argument]:
    if node is None:
        return []
    found = document.mapping(node, "'args'")
    if not found:
        document.fail(node, "'args' is empty: add arguments, or remove it")
    return [_argument(document, name, each, workspace) for name, each in found.items()]


def _argument(document: PolicyDocument, name: str, node: yaml.Node, workspace: Path) -> Argument:
    steps = name.replace(EACH, f".{EACH}").split(".")
    if not all(step == EACH or re.fullmatch(r"[^\s\[\]]+", step) for step in steps) or steps[0] == EACH:
        valid = "write a, a.b for a nested value, or a[] and a[].b for the elements of a list"
        document.fail(node, f"invalid argument {name!r}: {valid}")
    if not isinstance(node, yaml.MappingNode):
        return Argument(name, steps, [one_of([document.scalar(each, "a value") for each in document.items(node)])])
    given = document.mapping(node, f"{name!r}", _CONDITION_KEYS)
    if not given:
        document.fail(node, f"{name!r} has no condition: add one of {', '.join(_CONDITION_KEYS)}")
    return Argument(name, steps, [_condition(document, keyword, each, workspace) for keyword, each in given.items()])


def _condition(document: PolicyDocument, keyword: str, node: yaml.Node, workspace: Path) -> Condition:
    if keyword == "pattern":
        expression = document.text_of(node, "a pattern")
        return _made(document, node, "a regular expression in the syntax of Rust's regex", partial(matches, expression))
    if keyword == "path":
        globs = [(each, document.text_of(each, "a path")) for each in document.items(node)]
        return path_matches([_made(document, each, None, partial(PathGlob, glob, workspace)) for each, glob in globs])
    limit = document.scalar(node, f"'{keyword}'")
    if isinstance(limit, str | bool):
        document.fail(node, f"'{keyword}' must be a number, not {document.shown(node)}")
    return compares(COMPARISONS[keyword], limit)


def _made(document: PolicyDocument, node: yaml.Node, what: str | None, make: Callable[[], T]) -> T:
    try:
        return make()
    except ValueError as exc:
        reason = exc if what is None else f"{what}: {exc}"
        document.fail(node, f"{document.shown(node)} must be {reason}")
