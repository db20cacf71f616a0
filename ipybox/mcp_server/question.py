"""The forms that ask the user of an MCP client about tool calls; `approver` sends them and decides.

No form is empty, and no field has a default value: without a person, some clients accept empty forms, and some fill in
default values. Hints go into the description of the field, because the message shows the call (`shown_call`).

https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from mcp_types import ElicitRequestFormParams, ElicitResult

from ipybox.audit.redaction import Redactor
from ipybox.mcp_server.shown_call import ShownCall
from ipybox.support.printable import printable
from ipybox.tool_exec.approval.policy import ApprovalPolicy, PolicyDecision
from ipybox.tool_exec.approval.protocol import RequestKind

#: The extent of an answer: one call, the tool's calls in the rest of the cell, or all calls of the tool or the server.
Extent = Literal["call", "cell", "tool", "server"]

#: The field of a form. The call is accepted only if it holds one of the choices.
FIELD = "scope"

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
    "tool": "always for any command",
}


@dataclass(frozen=True)
class Question:
    """A request about one call.

    Attributes:
        decision: The policy's decision about the call: to ask.
        policy: The policy.
        calls: How many calls of the tool its cell has made so far, including waiting ones.
        seconds: Seconds until the request expires; None for never.
        before: A notice about the previous request.
        kind: Whether the call is of a tool, or a shell command.
    """

    decision: PolicyDecision
    policy: ApprovalPolicy
    calls: int = 1
    seconds: float | None = None
    before: str | None = None
    kind: RequestKind = "tool"

    def form(self, redactor: Redactor, *, has_choice: bool = True, file: Path | None = None) -> ElicitRequestFormParams:
        """Returns the form that shows the call.

        Args:
            redactor: Knows the secrets.
            has_choice: Whether the form offers to allow more than this call.
            file: The file with what `whole` returns.
        """
        call = ShownCall(self.decision.call, self.kind, redactor)
        lines = call.brief() or call.shortened(file)
        choices = [*self._choices().values()][: None if has_choice else 1]
        field: dict[str, Any] = {"type": "string", "title": "Allow", "enum": choices}
        if hints := self._hints(has_choice=has_choice):
            field["description"] = ". ".join(hints)
        schema = {"type": "object", "properties": {FIELD: field}, "required": [FIELD]}
        return ElicitRequestFormParams(message="\n".join(lines), requested_schema=schema)

    def whole(self, redactor: Redactor) -> str | None:
        """Returns the whole call if not every client shows it; else None."""
        call = ShownCall(self.decision.call, self.kind, redactor)
        return call.whole() if call.brief() is None else None

    def extent(self, answer: ElicitResult) -> Extent | None:
        """Returns what an answer allows; None if it allows nothing."""
        chosen = (answer.content or {}).get(FIELD) if answer.action == "accept" else None
        return next((extent for extent, choice in self._choices().items() if choice == chosen), None)

    def _choices(self) -> dict[Extent, str]:
        choices = _SHELL_CHOICES if self.kind == "shell" else _CHOICES
        if self.decision.can_be_remembered:
            return choices
        return {extent: choice for extent, choice in choices.items() if extent in ("call", "cell")}

    def _hints(self, *, has_choice: bool) -> list[str]:
        hints: list[str] = []
        if self.seconds is not None:
            end = (datetime.now() + timedelta(seconds=self.seconds)).astimezone()
            hints.append(f"Expires at {end:%H:%M:%S %Z}, after {self.seconds:.0f} s")
        if self.calls > 1:
            hints.append(f"{self.calls:,} calls to this tool in this cell so far")
        if self.before is not None:
            hints.append(self.before)
        if self.policy.file is not None or self.policy.untrusted is not None:
            hints.append(f"Asked because of {printable(self.decision.reason)}")
        if has_choice and self.decision.can_be_remembered:
            kept = "for this session" if self.policy.file is None else f"in {printable(self.policy.file.name)}"
            hints.append(f"'Always' answers are remembered {kept}")
        return hints


def rules_option() -> str:
    """Returns how the user sets a rules file: with the plugin's option in Claude Code, else with ipybox's option."""
    if "CLAUDE_PLUGIN_ROOT" in os.environ:  # https://code.claude.com/docs/en/plugins-reference
        return "the plugin's option `approve` (/plugin configure)"
    return "`--approve FILE`"
