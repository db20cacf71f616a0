"""Approval policies: which tool calls are allowed, which are denied, and which need an approval request.

The application enforces a policy, outside the kernel. A policy can learn: an answer to more than one call becomes a
rule. The new rule is inserted directly before the rule that required the request, with the same conditions, or at the
end if no rule matched. So it only decides on calls that would otherwise need a request. Comments and formatting of the
other rules are preserved.
"""

import fcntl
import json
import logging
import os
import stat
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from ipybox.support.errors import PolicyError
from ipybox.support.safe_directory import names_below, open_directory, open_untrusted
from ipybox.support.untrusted_paths import real_path
from ipybox.tool_exec.approval.conditions import ToolCall
from ipybox.tool_exec.approval.document import MAX_SIZE, PolicyDocument
from ipybox.tool_exec.approval.request import ApprovalRequest
from ipybox.tool_exec.approval.rules import ApprovalRule, Effect, parse
from ipybox.workspace.registrations import PinnedTool

if TYPE_CHECKING:
    from ipybox.workspace.trust import TrustStore

logger = logging.getLogger(__name__)

#: The name of a policy file in the workspace, which sandboxed code can't write.
POLICY_FILE = "ipybox.yaml"

#: The policy of `--approve writes`: the tools that a person lets run without asking do, and all others ask.
WRITES = "rules:\n- {effect: allow, hint: read_only}\n"

REMEMBERED = "# remembered from an answer"

#: The scope of an answer to more than one call.
Scope = Literal["tool", "server"]

#: Answers are remembered only for names of at most this many letters, digits and these characters.
_MAX_NAME = 200
_MARKS = "_.-/"


@dataclass(frozen=True)
class PolicyDecision:
    """A policy's decision on a call."""

    effect: Effect
    call: ToolCall
    #: Which rule decided, or that it was the default.
    reason: str
    #: Whether an answer can apply to more than this call.
    can_be_remembered: bool
    #: The rule that decided, if one did, and the argument for which it is unclear whether it does.
    rule: ApprovalRule | None = None
    unclear: str | None = None

    @property
    def ground(self) -> str:
        """What calls with the same reason share, unlike the reason, whose line changes with each answer in the file."""
        return json.dumps([self.rule and self.rule.written, self.unclear, self.call.registration])


class ApprovalPolicy:
    """Rules in order; the first one that matches a call decides.

    Args:
        text: YAML, as `ipybox.tool_exec.approval.rules` describes it. By default, every call needs a request.
        workspace: The base of relative paths, by default the working directory.
        source: The name of the text in messages.
        untrusted: Why the rules are not trusted, if they aren't: calls that they allow then need a request.

    Raises:
        PolicyError: If the text is not a valid policy; the message names the line and the expected content.
    """

    def __init__(
        self,
        text: str = "default: ask\n",
        workspace: Path | None = None,
        *,
        source: str = "policy",
        untrusted: str | None = None,
    ):
        self.untrusted = untrusted
        #: The file that answers are written to; None to keep them in memory.
        self.file: Path | None = None
        self._workspace = (workspace or Path.cwd()).resolve()
        self._source = source
        self._on_written: Callable[[bytes], None] | None = None
        self._text = self._text_in_file = text
        self._default: Effect
        self._default, self._rules = parse(PolicyDocument(text, source), self._workspace)

    @classmethod
    def load(cls, path: Path | str, workspace: Path | None = None, store: "TrustStore | None" = None) -> Self:
        """Returns the policy in a file; answers to more than one call are written to it.

        Args:
            path: The file.
            workspace: The base of relative paths, by default the working directory.
            store: Decides whether a file in the workspace is trusted. Without it, the caller vouches for the file.

        Raises:
            PolicyError: If the file can't be read, is invalid, or code could change it: in the workspace, it must be
                `ipybox.yaml`.
        """
        workspace = (workspace or Path.cwd()).resolve()
        spelled = Path(os.path.abspath(Path(path).expanduser()))
        place = Path(real_path(spelled))
        inside = place.is_relative_to(workspace)
        if store is not None and not inside and names_below(spelled, workspace):
            raise PolicyError(
                f"the policy {spelled} is a link out of the workspace, which cells could redirect: use {place} instead"
            )
        if inside and place != workspace / POLICY_FILE:
            if not place.exists():
                way_out = f": create {workspace / POLICY_FILE}, or use 'auto', 'writes' or 'ask'"
                if store is None:
                    way_out = "; to pass the rules as a string, use ApprovalPolicy(text)"
                raise PolicyError(f"policy file {spelled} not found{way_out}")
            elsewhere = f"rename it to {workspace / POLICY_FILE}, which the sandbox protects, or move it elsewhere"
            raise PolicyError(f"cells could change the policy {place}, because it is in the workspace: {elsewhere}")
        text = _read(place)
        store = store if inside else None
        if store is not None and not store.trusts(place, text.encode()):
            return cls._untrusted(text, place, store)
        policy = cls(text, workspace, source=place.name)
        if store is None or store.can_remember:  # otherwise, writing an answer would revoke the trust
            policy.file = place
            policy._on_written = store and partial(store.trust, place)
        return policy

    @classmethod
    def _untrusted(cls, text: str, place: Path, store: "TrustStore") -> Self:
        from ipybox.workspace.trust import policy_notice

        notice = policy_notice(place, store)
        logger.warning("%s", notice)
        try:
            return cls(text, store.workspace, source=place.name, untrusted=notice)
        except PolicyError as exc:
            # It is unknown which calls it denies, so all need a request.
            return cls(workspace=store.workspace, source=place.name, untrusted=f"{notice} Its rules are invalid: {exc}")

    @property
    def allowed(self) -> list[str]:
        """What the policy allows without asking: one line for each rule, and for the default."""
        rules = [rule for rule in self._rules if rule.effect == "allow"]
        lines = [f"{rule.source}: {json.dumps(rule.written, ensure_ascii=False)}" for rule in rules]
        return [*lines, *(["every call that no rule matches"] if self._default == "allow" else [])]

    @property
    def uses_hints(self) -> bool:
        """Whether a decision can depend on the hints of a tool."""
        return any(rule.hints for rule in self._rules)

    def decide(
        self,
        server_name: str,
        tool_name: str,
        tool_args: Mapping[str, Any],
        server_params: Mapping[str, Any] | None = None,
        pinned: PinnedTool | None = None,
    ) -> PolicyDecision:
        """Decides on a call; the server's parameters tell what its paths may be relative to.

        `pinned` is the tool as its registration pinned it, for rules with hints.
        """
        started_in = str((server_params or {}).get("cwd") or "")
        directories = [] if "$" in started_in else [self._workspace, Path.cwd() / started_in]
        call = ToolCall(server_name, tool_name, tool_args, directories, pinned, server_params)
        rule = self._first(call)
        effect, reason = (rule.effect, rule.source) if rule else (self._default, f"the default of {self._source}")
        can_be_remembered = self.untrusted is None and _is_plain(server_name) and _is_plain(tool_name)
        if unclear := rule and rule.uncertain_argument(call):
            reason += f", as it's unclear whether {unclear!r} matches"
            can_be_remembered = False
        if self.untrusted is not None and effect == "allow":
            effect = "ask"
            reason += ", which is not trusted"
        return PolicyDecision(effect, call, reason, can_be_remembered, rule, unclear)

    def decide_on(self, request: ApprovalRequest) -> list[PolicyDecision]:
        """Decides on each call that waits for approval."""
        server_name, tool_name, params = request.server_name, request.tool_name, request.server_params
        return [self.decide(server_name, tool_name, call, params, request.pinned) for call in request.calls]

    def remember(self, decision: PolicyDecision, scope: Scope) -> None:
        """Allows calls like the one that required a request from now on, for its tool or its whole server.

        If the policy has a file, the rule is written to it; a failure is logged.
        """
        assert decision.can_be_remembered
        rule = self._first(decision.call)
        if (self._default if rule is None else rule.effect) != "ask":
            return  # another answer has changed the rules since
        written: dict[str, Any] = {"server": decision.call.server}
        if decision.call.registration:  # another program or host under this name asks again
            written["registration"] = decision.call.registration
        if scope == "tool":
            written["tool"] = decision.call.tool
        if rule is not None:
            written = {**rule.written, **written}
        written["effect"] = "allow"
        # The effect comes last, so that a partly written rule is invalid.
        written = {
            key: written[key] for key in ("server", "registration", "tool", "hint", "args", "effect") if key in written
        }
        self._put(len(self._rules) if rule is None else self._rules.index(rule), written)

    def _put(self, index: int, written: Mapping[str, Any]) -> None:
        try:
            text = _insert(self._text, self._rules, index, written)
            default, rules = parse(PolicyDocument(text, self._source), self._workspace)
            expected = [rule.written for rule in self._rules]
            expected.insert(index, written)
            if (default, [rule.written for rule in rules]) != (self._default, expected):
                raise PolicyError(f"can't add a rule to {self._source} because of its formatting")
            self._text, self._rules = text, rules
            if self.file is not None:
                self._write(self.file)
            if self._on_written is not None:
                self._on_written(text.encode())
        except (PolicyError, OSError) as exc:
            logger.warning("can't save the answer as a rule in the policy: %s", exc)

    def _first(self, call: ToolCall) -> ApprovalRule | None:
        return next((rule for rule in self._rules if rule.matches(call)), None)

    def _write(self, path: Path) -> None:
        """Writes the text, unless another program has changed the file or is about to. The text only grows."""
        with open(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _read(path) != self._text_in_file:
                raise PolicyError(f"{path} has changed since ipybox read it")
            data = self._text.encode()
            if path.is_relative_to(self._workspace):
                # The sandbox protects this file with a mount; a file that replaces it would be writable. Its path has
                # no links. There is one write: a partly written rule lacks its effect, which is an error.
                file.write(data)
            else:
                _replace(path, data)
        self._text_in_file = self._text


def _replace(path: Path, data: bytes) -> None:
    with open_directory(path.parent, create=False) as directory, directory.scratch(path.name) as scratch:
        scratch.write_new(path.name, data)
        os.chmod(path.name, stat.S_IMODE(path.stat().st_mode), dir_fd=scratch.fd)
        scratch.rename(path.name, directory, path.name)


def _read(path: Path) -> str:
    try:
        with open_untrusted(path) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise PolicyError(f"the policy {path} is not a regular file")
            return file.read(MAX_SIZE + 1).decode()
    except FileNotFoundError:
        raise PolicyError(f"policy file {path} not found: create it, or use 'auto', 'writes' or 'ask'") from None
    except OSError as exc:
        raise PolicyError(f"can't read the policy {path}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise PolicyError(f"the policy {path} is not UTF-8") from exc


def _insert(text: str, rules: Sequence[ApprovalRule], index: int, written: Mapping[str, Any]) -> str:
    """Returns a policy's text with a rule inserted before the one at `index`, and otherwise unchanged."""
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = text[rules[0].start : text.index("-", rules[0].start)] if rules else "  "
    keys = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in written.items()]
    first, *others = keys
    lines = [f"{indent}- {first}  {REMEMBERED}", *(f"{indent}  {each}" for each in others), ""]
    if not rules:
        start = len(text)
        lines.insert(0, "rules:")
    else:
        start = rules[-1].end if index == len(rules) else _above_comments(text, rules[index].start)
    before = text[:start]
    if before and not before.endswith("\n"):
        before += newline
    return before + newline.join(lines) + text[start:]


def _above_comments(text: str, start: int) -> int:
    """Returns the index at which the comments directly above a line begin, or the line if there are none."""
    while text[(above := text.rfind("\n", 0, start - 1) + 1) : start].lstrip().startswith("#"):
        start = above
    return start


def _is_plain(name: str) -> bool:
    """Returns whether a rule for this name matches no other name. Rules compare characters, not glyphs."""
    plain = (each.isalnum() or each in _MARKS or unicodedata.category(each).startswith("M") for each in name)
    return 0 < len(name) <= _MAX_NAME and all(plain)
