"""The forms that ask the user of an MCP client about tool calls; `approver` sends them and decides.

https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from mcp_types import ElicitRequestFormParams, ElicitResult

from ipybox.audit.redaction import Redactor, is_secret_name
from ipybox.guest.tools.protocol import SHELL_MAGIC_TOOL
from ipybox.support.printable import printable
from ipybox.tool_exec.approval.conditions import ToolCall
from ipybox.tool_exec.approval.policy import ApprovalPolicy, PolicyDecision
from ipybox.tool_exec.approval.protocol import RequestKind

#: The extent of an answer: one call, the tool's calls in the rest of the cell, or all calls of the tool or the server.
Extent = Literal["call", "cell", "tool", "server"]

#: Limits of a form: characters of one argument, and arguments.
MAX_ARGUMENT = 600
MAX_ARGUMENTS = 20

#: Characters and lines of a shell command.
MAX_COMMAND = 4000
MAX_COMMAND_LINES = 60

#: Characters beyond the truncation in which a secret is recognized that the truncation would split.
_BEYOND = 4096
_NO_LIMIT = 1 << 30

_CHOICES: dict[Extent, str] = {
    "call": "only this call",
    "cell": "the rest of this cell",
    "tool": "always for this tool",
    "server": "always for this server",
}
#: The same for shell commands. Their "server" would include more than commands.
_SHELL_CHOICES: dict[Extent, str] = {
    "call": "only this command",
    "cell": "any command in the rest of this cell",
    "tool": "always any command",
}
_DECLINED = "decline it"


@dataclass(frozen=True)
class Question:
    """A request about one call.

    Attributes:
        decision: The policy's decision about the call: to ask.
        policy: The policy.
        calls: How many calls of the tool its cell has made so far, including waiting ones.
        seconds: Seconds until the request expires; None for never.
        before: A notice about the previous request, to show first.
        kind: Whether the call is of a tool, or a shell command.
    """

    decision: PolicyDecision
    policy: ApprovalPolicy
    calls: int = 1
    seconds: float | None = None
    before: str | None = None
    kind: RequestKind = "tool"

    def form(self, redactor: Redactor, *, has_choice: bool) -> ElicitRequestFormParams:
        """Returns the form that shows the call, with or without the choice to allow more than this call.

        A form without fields takes one key to accept in clients that draw no fields. Declining it leads to
        `alternatives`.
        """
        call, policy = self.decision.call, self.policy
        preface = [] if self.before is None else [self.before]
        shown = _command(call.arguments, redactor) if self.kind == "shell" else _arguments(call.arguments, redactor)
        lines = [*preface, self._headline(), *shown]
        if policy.file is not None or policy.untrusted is not None:
            lines.append(f"It is asked about because of {printable(self.decision.reason)}")
        if self.calls > 1:
            lines.append(f"{self.calls:,} calls of this tool in this cell so far")
        if not has_choice:
            what = "command" if self.kind == "shell" else "call"
            lines.append(f"Accept allows this {what} only; Decline offers to allow more")
        return self._asking(lines, list(self._choices().values()) if has_choice else [])

    def alternatives(self) -> ElicitRequestFormParams:
        """Returns the form that follows a declined one without a choice; unanswered, it stays declined."""
        lines = [self._headline(), "It is declined unless you allow more than this call"]
        return self._asking(lines, [_DECLINED, *list(self._choices().values())[1:]])

    def extent(self, answer: ElicitResult) -> Extent | None:
        """Returns the extent that the user chose in an accepted form, or None if the choice allows nothing."""
        chosen = (answer.content or {}).get("scope")
        return next((extent for extent, choice in self._choices().items() if choice == chosen), None)

    def _headline(self) -> str:
        if self.kind == "tool":
            return f"Code calls the tool {name_of(self.decision.call)}"
        return (
            "Code runs a shell script" if self.decision.call.tool == SHELL_MAGIC_TOOL else "Code runs a shell command"
        )

    def _choices(self) -> dict[Extent, str]:
        choices = _SHELL_CHOICES if self.kind == "shell" else _CHOICES
        if self.decision.can_be_remembered:
            return choices
        return {extent: choice for extent, choice in choices.items() if extent in ("call", "cell")}

    def _asking(self, lines: Sequence[str], choices: Sequence[str]) -> ElicitRequestFormParams:
        if self.seconds is not None:
            end = (datetime.now() + timedelta(seconds=self.seconds)).astimezone()
            lines = [*lines, f"This question expires at {end:%H:%M:%S %Z}, after {self.seconds:.0f} s"]
        properties: dict[str, Any] = {}
        if choices:
            properties["scope"] = {"type": "string", "title": "Allow", "enum": list(choices), "default": choices[0]}
            if self.decision.can_be_remembered:
                kept = "for this session" if self.policy.file is None else f"in {printable(self.policy.file.name)}"
                properties["scope"]["description"] = f"What is always allowed is kept {kept}"
        schema = {"type": "object", "properties": properties}
        return ElicitRequestFormParams(message="\n".join(lines), requested_schema=schema)


def rules_option() -> str:
    """Returns how the user sets a rules file: with the plugin's option in Claude Code, else with ipybox's option."""
    if "CLAUDE_PLUGIN_ROOT" in os.environ:  # https://code.claude.com/docs/en/plugins-reference
        return "the plugin's option `approve` (/plugin configure)"
    return "`--approve FILE`"


def name_of(call: ToolCall) -> str:
    """Returns the name of a tool in forms."""
    return f"{_cut(printable(call.tool))} of the MCP server {_cut(printable(call.server))}"


def _command(arguments: Mapping[str, Any], redactor: Redactor) -> list[str]:
    """Returns the lines of a shell command, each after a bar, so that none looks like a line of ipybox."""
    text = _cut(_without_secrets(arguments["cmd"], redactor, MAX_COMMAND), MAX_COMMAND)
    lines = [f"  | {printable(line)}" for line in text.removesuffix("\n").split("\n")]
    if (missing := len(lines) - MAX_COMMAND_LINES) > 0:
        half = MAX_COMMAND_LINES // 2
        lines[half:-half] = [f"  [... {missing} lines are not shown ...]"]
    rest = {name: value for name, value in arguments.items() if name != "cmd"}
    return [*lines, *(_arguments(rest, redactor) if rest else [])]


def _arguments(arguments: Mapping[str, Any], redactor: Redactor) -> list[str]:
    if not arguments:
        return ["  without arguments"]
    lines: list[str] = []
    for name, value in list(arguments.items())[:MAX_ARGUMENTS]:
        text = json.dumps(value, ensure_ascii=False)
        if value and value is not True and is_secret_name(name):
            shown = redactor.show(value if isinstance(value, str) else text)
        else:
            shown = _without_secrets(text, redactor)
        lines.append(f"  {_cut(printable(name))}: {_cut(printable(shown))}")
    if len(arguments) > MAX_ARGUMENTS:
        lines.append(f"  [... {len(arguments) - MAX_ARGUMENTS} more arguments are not shown ...]")
    return lines


def _without_secrets(text: str, redactor: Redactor, most: int = MAX_ARGUMENT) -> str:
    """Returns a text with its secrets shortened; text too far from both ends to be shown is not checked."""
    seen = most // 2 + _BEYOND
    if len(text) <= 2 * seen:
        return redactor.text(text, _NO_LIMIT)
    return redactor.text(text[:seen], _NO_LIMIT) + text[seen:-seen] + redactor.text(text[-seen:], _NO_LIMIT)


def _cut(text: str, most: int = MAX_ARGUMENT) -> str:
    """Returns a text, or its head and tail, because the important part can be at either end."""
    missing = len(text) - most
    if missing <= 0:
        return text
    half = most // 2
    return f"{text[:half]} [... {missing:,} characters are not shown ...] {text[-half:]}"
