"""Conditions on tool arguments in rules. The agent's code chooses the arguments, so there are three answers:

True   the condition holds
False  it does not
None   unknown: the argument is missing, not one of the tool's, of another type or too long, or tools may interpret it
       differently
"""

import hashlib
import json
import math
import operator
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final, cast

from ipybox.audit.redaction import is_secret
from ipybox.tool_exec.approval.patterns import PathCandidates, PathGlob, Pattern, is_text, read
from ipybox.workspace.registrations import PinnedTool

#: Maximum elements of a list and members of an object; conditions on larger ones are unknown.
MAX_ELEMENTS = 100
#: Maximum characters that all patterns together search in a call, with those of globs; beyond them, conditions are
#: unknown. A pattern such as `\w{100}` takes two seconds for so many.
MAX_SEARCHED = 1_000_000
#: Up to this number, all integers are exact in JavaScript. https://tc39.es/ecma262/#sec-number.max_safe_integer
MAX_EXACT = 2**53 - 1

#: Maximum directories that a path may be relative to.
MAX_BASES = 20
#: What separates a directory from the rest of an argument.
_PARTS = re.compile("[=,:]")

#: The step into each element of a list.
EACH: Final = "[]"

Scalar = str | int | float | bool
#: The value of a missing argument.
MISSING: Final = object()


@dataclass
class ToolCall:
    """A tool call to decide on."""

    server: str
    tool: str
    arguments: Mapping[str, Any]
    #: The workspace and the server's working directory, if known.
    directories: Sequence[Path]
    #: The tool as its registration pinned it, if known.
    pinned: PinnedTool | None = None
    #: The parameters of its server, if it has any.
    params: Mapping[str, Any] | None = None
    _readings: dict[str, PathCandidates | None] = field(default_factory=dict[str, "PathCandidates | None"])
    _searched: int = 0

    def lists(self, name: str) -> bool:
        """Returns whether the tool may have this parameter: it may ignore an argument of another name."""
        return self.pinned is None or self.pinned.parameters is None or name in self.pinned.parameters

    def affords(self, characters: int) -> bool:
        """Returns whether a condition may search this many characters; counts them."""
        self._searched += characters
        return self._searched <= MAX_SEARCHED

    def readings(self, path: str) -> PathCandidates | None:
        """Returns the paths that a text may mean; cached, because there can be many rules."""
        if path not in self._readings:
            self._readings[path] = read(path, self._bases)
        return self._readings[path]

    @cached_property
    def _bases(self) -> Sequence[Path]:
        """What a path may be relative to: for many servers, a directory in their arguments or variables.

        Empty if unknown.
        """
        args, env = map((self.params or {}).get, ("args", "env"))
        words = [str(each) for each in cast("list[object]", args)] if isinstance(args, list) else []
        variables = cast("dict[str, object]", env) if isinstance(env, dict) else {}
        named = "".join([*words, *(str(each) for name, each in variables.items() if not is_secret(name, str(each)))])
        if not self.directories or "$" in named:
            return []
        words += map(str, variables.values())
        parts = [part for word in words for part in (word, *_PARTS.split(word))]
        places = {self.directories[-1] / os.path.expanduser(part) for part in parts}
        found = [*self.directories, *sorted(filter(os.path.isdir, places))]
        return found if len(found) <= MAX_BASES else []

    @cached_property
    def registration(self) -> str:
        """A hash of the server's parameters; empty for the application's functions and ipybox's own tools."""
        written = json.dumps(self.params, sort_keys=True).encode()
        return hashlib.sha256(written).hexdigest()[:32] if self.params else ""

    def has_hint(self, hint: str) -> bool | None:
        """Returns whether a hint applies to the tool; None unless a person has decided on the tool as it is now.

        `read_only` applies to the tools that run without asking: a person's decision replaces the server's word.
        """
        if self.pinned is None or self.pinned.unasked is None:
            return None
        return self.pinned.unasked if hint == "read_only" else hint in self.pinned.hints


#: Returns whether a condition holds for a value of a call; None if unknown.
Condition = Callable[[object, ToolCall], bool | None]


def one_of(values: Sequence[Scalar]) -> Condition:
    """Returns the condition that a value is one of these; unknown for other types, which tools may convert.

    And for large numbers, which become others in JavaScript: 2⁵³ + 1 is 2⁵³.
    """

    def judge(value: object, _: ToolCall) -> bool | None:
        alike = [each for each in values if _kind(each) == _kind(value)]
        large = isinstance(value, int | float) and abs(value) > MAX_EXACT
        return value in alike if alike and not large else None

    return judge


def matches(expression: str) -> Condition:
    """Returns the condition that a text contains a match; unknown if only a line break prevents one."""
    exact, across_lines = Pattern(expression), Pattern(f"(?s){expression}")

    def judge(value: object, call: ToolCall) -> bool | None:
        if not isinstance(value, str) or not is_text(value) or not call.affords(len(value)):
            return None
        if exact.found_in(value):
            return True
        return None if across_lines.found_in(value) else False

    return judge


def compares(operation: Callable[[Any, Any], bool], limit: float) -> Condition:
    """Returns the condition `operation(value, limit)` for numbers; unknown for other values."""
    return lambda value, _: operation(value, limit) if _kind(value) == "number" else None


def path_matches(globs: Sequence[PathGlob]) -> Condition:
    """Returns the condition that a path leads to a file that one of the globs matches."""
    length = sum(len(glob.text) for glob in globs)

    def judge(value: object, call: ToolCall) -> bool | None:
        readings = call.readings(value) if isinstance(value, str) and call.affords(length) else None
        if readings is None:
            return None
        answers = [glob.judge(readings) for glob in globs]
        return True if True in answers else None if None in answers else False

    return judge


#: Comparisons by keyword, as in JSON Schema.
COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "minimum": operator.ge,
    "exclusiveMinimum": operator.gt,
    "maximum": operator.le,
    "exclusiveMaximum": operator.lt,
}


@dataclass(frozen=True)
class Argument:
    """Conditions on each value of one argument.

    Attributes:
        steps: The keys that lead to the argument; `EACH` for all elements of a list.
    """

    name: str
    steps: Sequence[str]
    conditions: Sequence[Condition]

    def judge(self, call: ToolCall) -> list[bool | None]:
        """Returns one answer per value, and at least one."""
        if not call.lists(self.steps[0]):
            return [None]
        values = list(islice(_values(call.arguments, self.steps), MAX_ELEMENTS + 1))
        return [None] if len(values) > MAX_ELEMENTS else [self._judge(value, call) for value in values]

    def _judge(self, value: object, call: ToolCall) -> bool | None:
        if value is MISSING:
            return None
        answers = [judge(value, call) for judge in self.conditions]
        return False if False in answers else None if None in answers else True


def _values(value: object, steps: Sequence[str]) -> Iterator[object]:
    """Yields the values that the steps lead to, and `MISSING` where a step fails."""
    if not steps:
        yield value
        return
    step, *further = steps
    if step == EACH:
        elements = cast(list[object], value) if isinstance(value, list) else []
        if not elements:
            yield MISSING
        for element in elements:
            yield from _values(element, further)
    elif isinstance(value, dict) and _is_clear(step, found := cast(dict[str, object], value)):
        yield from _values(found[step], further)
    else:
        yield MISSING


def _is_clear(name: str, members: Mapping[str, object]) -> bool:
    """Returns whether an object has a member, and none that differs in case only, which servers in Go may prefer."""
    alike = (each.casefold() == name.casefold() for each in members)
    return name in members and len(members) <= MAX_ELEMENTS and sum(alike) == 1


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float) and not math.isfinite(value):
        return "no number"  # in JSON, which is what tools receive
    if isinstance(value, int | float):
        return "number"
    return type(value).__name__
