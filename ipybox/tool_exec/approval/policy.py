"""Approval policies: which tool calls are allowed, which are denied, and which somebody is asked about.

A policy is applied where tools are run, outside of the kernel. It can learn: an answer that holds for more than one
call becomes a rule. That rule stands directly before the one that had the question asked, with its conditions, or after
all others if there was none: it decides on nothing but what would be asked, whatever stands above or below.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from ipybox.errors import PolicyError
from ipybox.tool_exec.approval.client import ApprovalRequest
from ipybox.tool_exec.approval.conditions import Call
from ipybox.tool_exec.approval.document import MAX_SIZE, Document
from ipybox.tool_exec.approval.policy_file import PolicyFile, insert
from ipybox.tool_exec.approval.rules import Effect, Rule, parse

logger = logging.getLogger(__name__)

#: What a policy is called that is in the workspace: code in the sandbox can't write a file of this name.
POLICY_FILE = "ipybox.yaml"

#: What an answer can hold for, beyond one call.
Scope = Literal["tool", "server"]

#: Names that a rule can have without meaning others, too.
_NAME = re.compile(r"[\w.\-/]{1,200}", re.ASCII)


@dataclass(frozen=True)
class Decision:
    """What becomes of a call.

    Attributes:
        effect: Whether it is allowed, denied, or somebody is asked.
        call: The call.
        reason: Which rule says so, or that none does.
        can_be_remembered: Whether an answer can hold for more than this call.
    """

    effect: Effect
    call: Call
    reason: str
    can_be_remembered: bool


class Policy:
    """Rules in their order, of which the first one that matches a call decides.

    Args:
        text: YAML, as `ipybox.tool_exec.approval.rules` describes it. By default, everything is asked.
        workspace: The directory that relative paths mean, by default the working directory.
        source: How messages call the text.

    Raises:
        PolicyError: If the text is no policy; the message names the line, and what is expected there.
    """

    def __init__(self, text: str = "default: ask\n", workspace: Path | None = None, *, source: str = "policy"):
        self._workspace = (workspace or Path.cwd()).resolve()
        self._source = source
        self._file: PolicyFile | None = None
        self._text = text
        self._default: Effect
        self._default, self._rules = parse(Document(text, source), self._workspace)

    @classmethod
    def load(cls, path: Path | str, workspace: Path | None = None) -> Self:
        """Returns the policy of a file, into which answers are written that hold for more than one call.

        Raises:
            PolicyError: If the file can't be read, or is wrong, or code could change it: in the workspace, it has to be
                `ipybox.yaml`.
        """
        workspace = (workspace or Path.cwd()).resolve()
        place = Path(path).expanduser().resolve()
        inside = place.is_relative_to(workspace)
        if inside and place != workspace / POLICY_FILE:
            elsewhere = f"call it {workspace / POLICY_FILE}, which the sandbox protects, or have it elsewhere"
            raise PolicyError(f"code could change the policy {place}, as it is in the workspace: {elsewhere}")
        file = PolicyFile(place, MAX_SIZE, in_place=inside)
        policy = cls(file.text, workspace, source=place.name)
        policy._file = file
        return policy

    @property
    def file(self) -> Path | None:
        """The file into which answers are written, if there is one."""
        return None if self._file is None else self._file.path

    def decide(
        self,
        server_name: str,
        tool_name: str,
        tool_args: Mapping[str, Any],
        server_params: Mapping[str, Any] | None = None,
    ) -> Decision:
        """Decides on a call.

        Args:
            server_name: Name of the MCP server.
            tool_name: Name of the tool.
            tool_args: The arguments of the call.
            server_params: What starts the server, which says what its paths may be relative to.
        """
        call = Call(server_name, tool_name, tool_args, self._directories(server_params or {}))
        rule = self._first(call)
        if rule is None:
            return Decision(self._default, call, f"the default of {self._source}", _has_plain_names(call))
        doubtful = rule.doubtful(call)
        doubt = f", as nothing certain can be said about {doubtful!r}" if doubtful else ""
        return Decision(rule.effect, call, f"{rule.source}{doubt}", doubtful is None and _has_plain_names(call))

    def decide_on(self, request: ApprovalRequest) -> Decision:
        """Decides on a call that waits for approval."""
        return self.decide(request.server_name, request.tool_name, request.tool_args, request.server_params)

    def remember(self, decision: Decision, scope: Scope) -> None:
        """Allows from now on, for a tool or a server, what the decision had somebody asked about.

        If the policy has a file, the rule is written there; if that is impossible, the log says why.
        """
        assert decision.can_be_remembered
        rule = self._first(decision.call)
        if (self._default if rule is None else rule.effect) != "ask":
            return  # as another answer was remembered meanwhile
        written: dict[str, Any] = {"server": decision.call.server}
        if scope == "tool":
            written["tool"] = decision.call.tool
        if rule is not None:
            written = {**rule.written, **written}
        written["effect"] = "allow"
        # The effect is last, so that a rule that is written in part is none.
        written = {key: written[key] for key in ("server", "tool", "args", "effect") if key in written}
        self._put(len(self._rules) if rule is None else self._rules.index(rule), written)

    def _put(self, place: int, written: Mapping[str, Any]) -> None:
        try:
            text = insert(self._text, self._rules, place, written)
            default, rules = parse(Document(text, self._source), self._workspace)
            expected = [rule.written for rule in self._rules]
            expected.insert(place, written)
            if (default, [rule.written for rule in rules]) != (self._default, expected):
                raise PolicyError(f"{self._source} is written in a way in which no rule can be added to it")
            self._text, self._rules = text, rules
            if self._file is not None:
                self._file.write(text)
        except (PolicyError, OSError) as exc:
            logger.warning("an answer could not be written to the policy: %s", exc)

    def _first(self, call: Call) -> Rule | None:
        return next((rule for rule in self._rules if rule.matches(call)), None)

    def _directories(self, server_params: Mapping[str, Any]) -> list[Path]:
        started_in = str(server_params.get("cwd") or "")
        return [] if "$" in started_in else [self._workspace, Path.cwd() / started_in]


def _has_plain_names(call: Call) -> bool:
    return all(_NAME.fullmatch(name) for name in (call.server, call.tool))
