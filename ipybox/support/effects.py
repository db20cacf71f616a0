"""Counts the tool calls of a cell that may have changed something, so that its error can list them."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ipybox.support.printable import printable

#: How a call ended: `done`; `started`, for a shell command, which the kernel runs; `failed` with an error of the tool,
#: maybe after an effect; `sent` without an answer so far; `declined`; or `not started` for another reason.
CallState = Literal["done", "started", "failed", "sent", "declined", "not started"]

#: The states of calls that had no effect.
_NO_EFFECT: tuple[CallState, ...] = ("declined", "not started")

#: Maximum number of entries of a cell, and of entries that a summary lists; the rest is counted together.
MAX_ENTRIES = 100
MAX_LISTED = 10

#: Maximum characters of a name, and of arguments in a summary.
MAX_NAME = 200
MAX_ARGUMENTS = 100

_WORDS: dict[CallState, str] = {"sent": "sent (answer unknown)"}
_PLAIN = re.compile(r"[\w-]+(\.[\w-]+)*", re.ASCII)


@dataclass(frozen=True)
class ToolCallCount:
    """Calls of one tool that ended in the same way.

    Attributes:
        server_name: The MCP server; empty, like `tool_name`, for a rest that is not listed by tool.
        tool_name: The tool.
        state: How the calls ended.
        count: The number of calls.
        arguments: The arguments of the last one without secrets, as truncated JSON; None if nothing is recorded.
    """

    server_name: str
    tool_name: str
    state: CallState
    count: int
    arguments: str | None = None

    def __str__(self) -> str:
        name = f"{self.server_name}.{self.tool_name}" if self.tool_name else "other tools"
        name = name if _PLAIN.fullmatch(name) or not self.tool_name else printable(json.dumps(name))
        text = f"{name} ×{self.count} {_WORDS.get(self.state, self.state)}"
        return f"{text}: {self.arguments}" if self.arguments and self.state in ("failed", "sent") else text


class Call(Protocol):
    """What a tally needs to know about a call."""

    server_name: str
    tool_name: str
    state: CallState
    may_write: Callable[[], bool]
    described: dict[str, Any]


@dataclass
class _Entry:
    may_write: Callable[[], bool]
    count: int = 0
    arguments: object = None


@dataclass
class CallTally:
    """The calls of one cell. `open` contains those that have not ended."""

    open: set[Call] = field(default_factory=set[Call])
    _entries: dict[tuple[str, str, CallState], _Entry] = field(default_factory=dict[Any, _Entry])

    def add(self, call: Call) -> None:
        """Counts a call in its present state, which is final if the call has ended."""
        self.open.discard(call)
        key = (call.server_name[:MAX_NAME], call.tool_name[:MAX_NAME], call.state)
        if key not in self._entries and len(self._entries) >= MAX_ENTRIES:
            key = ("", "", call.state)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(call.may_write)
        entry.count += 1
        entry.arguments = call.described.get("arguments")

    def counts(self) -> tuple[ToolCallCount, ...]:
        """Returns the calls of tools that may write; none if no such call was sent. Counts open calls as they are."""
        for call in tuple(self.open):
            self.add(call)
        found = tuple(
            ToolCallCount(*key, entry.count, _shortened(entry.arguments))
            for key, entry in self._entries.items()
            if entry.may_write()
        )
        return found if any(each.state not in _NO_EFFECT for each in found) else ()


def summary(calls: Sequence[ToolCallCount], before: str = "this error") -> list[str]:
    """Returns a sentence about calls as a list; an empty list if none had an effect, or all failed visibly."""
    if all(each.state in (*_NO_EFFECT, "failed") for each in calls):
        return []
    listed = [str(each) for each in calls if each.state not in _NO_EFFECT]
    if (more := len(listed) - MAX_LISTED) > 0:
        listed[MAX_LISTED:] = [f"{more} more kinds of calls"]
    counts = {state: sum(each.count for each in calls if each.state == state) for state in _NO_EFFECT}
    listed += [f"{count} {state}" for state, count in counts.items() if count]
    return [f"Before {before}: {', '.join(listed)}."] if listed else []


def _shortened(arguments: object) -> str | None:
    if arguments is None:
        return None
    text = printable(json.dumps(arguments, ensure_ascii=False))
    return text if len(text) <= MAX_ARGUMENTS else f"{text[:MAX_ARGUMENTS]}…"
