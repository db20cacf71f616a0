"""The forms that ask the user of an MCP client about tool calls; `approver` sends them and decides.

Without a person, some clients accept empty forms or fill in defaults, so no form is empty and no field has a default.
Hints go into the field's description, because the message shows the call (`shown_call`).
https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from mcp_types import ElicitRequestFormParams, ElicitResult

from ipybox.audit.redaction import Redactor
from ipybox.mcp_server.shown_call import BAR, COLUMNS, MANY, ShownCall, ascii_name, cut_columns, home_path, wrapped
from ipybox.support.names import OWN_NAME
from ipybox.support.printable import printable
from ipybox.tool_exec.approval.policy import ApprovalPolicy, PolicyDecision
from ipybox.tool_exec.approval.request import RequestKind

#: What an answer covers: one call, the tool's calls in the rest of the cell, or all calls to the tool or the server.
Extent = Literal["call", "cell", "tool", "server"]

#: The field of a form. A call is accepted only if the field contains one of the choices.
FIELD = "scope"

_CHOICES: dict[Extent, str] = {
    "call": "only this call",
    "cell": "the rest of this cell",
    "tool": "always for this tool",
    "server": "always for this server",
}
_CHOICES_OF_SEVERAL: dict[Extent, str] = {**_CHOICES, "call": "only these calls"}
#: The choices for shell commands.
_SHELL_CHOICES: dict[Extent, str] = {
    "call": "only this command",
    "cell": "any command in the rest of this cell",
    "tool": "always for any command",
}


@dataclass(frozen=True)
class Question:
    """A question about a call, or several calls of one tool, given the policy's decisions on them."""

    decisions: Sequence[PolicyDecision]
    policy: ApprovalPolicy
    redactor: Redactor
    #: The cell's calls to the tool so far, including pending ones.
    calls: int = 1
    #: Seconds until the question expires.
    seconds: float | None = None
    kind: RequestKind = "tool"

    def form(self, file: Path | None = None) -> ElicitRequestFormParams:
        """Returns the form; the file contains the whole call."""
        lines = self._call.brief or self._call.shortened(file)
        field: dict[str, Any] = {"type": "string", "title": "Allow", "enum": [*self._choices().values()]}
        if hints := self._hints():
            field["description"] = ". ".join(hints)
        schema = {"type": "object", "properties": {FIELD: field}, "required": [FIELD]}
        return ElicitRequestFormParams(message="\n".join(lines), requested_schema=schema)

    def whole(self) -> str | None:
        """Returns all of the calls, or None if every client shows all of them."""
        return self._call.whole() if self._call.brief is None else None

    def extent(self, answer: ElicitResult) -> Extent | None:
        """Returns what an answer allows; None if it allows nothing."""
        chosen = (answer.content or {}).get(FIELD) if answer.action == "accept" else None
        return next((extent for extent, choice in self._choices().items() if choice == chosen), None)

    @cached_property
    def asking(self) -> Mapping[str, PolicyDecision]:
        """The decisions that need an answer, one for each ground."""
        return {decision.ground: decision for decision in self.decisions if decision.effect == "ask"}

    @cached_property
    def _call(self) -> ShownCall:
        return ShownCall([decision.call for decision in self.decisions], self.kind, self.redactor)

    def _choices(self) -> dict[Extent, str]:
        several = _CHOICES_OF_SEVERAL if len(self.decisions) > 1 else _CHOICES
        choices = _SHELL_CHOICES if self.kind == "shell" else several
        return {extent: choice for extent, choice in choices.items() if extent in self._extents}

    @cached_property
    def _extents(self) -> Sequence[Extent]:
        """What an answer can cover: more than the calls only if all are asked about for one reason."""
        decisions = [*self.asking.values()]
        if len(decisions) > 1:
            return ["call"]
        if not all(each.can_be_remembered for each in self.decisions):
            return ["call", "cell"]
        # The other tools of this "server" install packages and run commands.
        own = decisions[0].call.server == OWN_NAME
        return ["call", "cell", "tool"] if own else ["call", "cell", "tool", "server"]

    def _hints(self) -> list[str]:
        hints: list[str] = []
        if self.seconds is not None:
            end = (datetime.now() + timedelta(seconds=self.seconds)).astimezone()
            hints.append(f"Expires at {end:%H:%M:%S %Z} ({self.seconds:.0f} s)")
        if self.calls > len(self.decisions):
            hints.append(f"{self.calls:,} calls to this tool in this cell so far")
        if self.policy.file is not None or self.policy.untrusted is not None:
            reasons = dict.fromkeys(decision.reason for decision in self.decisions)
            hints.append(f"Asked because of {printable(' and '.join(list(reasons)[:MANY]))}")
        if "tool" in self._extents:
            file = self.policy.file
            kept = "lasts until ipybox stops" if file is None else f"is saved in {printable(file.name)}"
            hints.append(f"'Always' {kept}")
        return hints


#: The choice of the form about an MCP server.
ADD = "add and start it"


def server_form(name: str, file: Path, command_line: str) -> ElicitRequestFormParams:
    """Returns the form that asks whether to add a server from the configuration of one of the user's MCP clients."""
    width = COLUMNS - len(BAR)
    command = cut_columns(printable(command_line), 2 * (width - 1))  # a wide character may leave a column empty
    title = cut_columns(f"Add the MCP server {ascii_name(name)} to this workspace?", COLUMNS)
    lines = [title, f"{BAR}{cut_columns(home_path(file), width)}", *wrapped(f"{BAR}{command}", 2)]
    schema = {"type": "object", "properties": {FIELD: {"type": "string", "title": "Add", "enum": [ADD]}}}
    return ElicitRequestFormParams(message="\n".join(lines), requested_schema=schema | {"required": [FIELD]})


def rules_option() -> str:
    """Returns the option that sets a rules file: the plugin's in Claude Code, otherwise ipybox's."""
    if "CLAUDE_PLUGIN_ROOT" in os.environ:  # https://code.claude.com/docs/en/plugins-reference
        return "the plugin's option `approve` (/plugin configure)"
    return "`--approve FILE`"
