"""The counts of a cell's tool calls that may have changed something, which its error lists."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ipybox.support.printable import printable

#: How a call ended: `done`; `started`, for a shell command, which the kernel runs; `failed` with an error of the tool,
#: maybe after an effect; `sent` without an answer so far; `declined`; or `not started` for another reason.
CallState = Literal["done", "started", "failed", "sent", "declined", "not started"]

#: The states of calls that had no effect.
NO_EFFECT: tuple[CallState, ...] = ("declined", "not started")

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


def summary(calls: Sequence[ToolCallCount], before: str = "this error") -> list[str]:
    """Returns a sentence about calls as a list; an empty list if none had an effect, or all failed visibly."""
    if all(each.state in (*NO_EFFECT, "failed") for each in calls):
        return []
    listed = [str(each) for each in calls if each.state not in NO_EFFECT]
    if (more := len(listed) - MAX_LISTED) > 0:
        listed[MAX_LISTED:] = [f"{more} more kinds of calls"]
    counts = {state: sum(each.count for each in calls if each.state == state) for state in NO_EFFECT}
    listed += [f"{count} {state}" for state, count in counts.items() if count]
    return [f"Before {before}: {', '.join(listed)}."] if listed else []


def shortened(arguments: object) -> str | None:
    """Returns arguments as truncated JSON; None without arguments."""
    if arguments is None:
        return None
    text = printable(json.dumps(arguments, ensure_ascii=False))
    return text if len(text) <= MAX_ARGUMENTS else f"{text[:MAX_ARGUMENTS]}…"
