"""Asks the user of an MCP client about tool calls, by elicitation: a form with the call, to accept or decline.

https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal
from weakref import WeakValueDictionary

from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestFormParams, ElicitResult
from pydantic import ValidationError

from ipybox.printable import printable
from ipybox.tool_exec.approval.client import ApprovalRequest
from ipybox.tool_exec.approval.policy import Decision, Policy, Scope

#: Characters of one argument, and arguments, that a question shows.
MAX_ARGUMENT = 600
MAX_ARGUMENTS = 20

#: Sends a question to the client, and returns what its user answers.
Ask = Callable[[ElicitRequestFormParams], Awaitable[ElicitResult]]

_ONCE = "only this call"
_SCOPES: dict[str, Scope] = {"always for this tool": "tool", "always for this server": "server"}
_REFUSALS: dict[Literal["decline", "cancel"], str] = {
    "decline": "the user declined it",
    "cancel": "the question was dismissed without an answer; where no person can give one, allow the call by a rule "
    "in a file, `--approve FILE`",
}

_NOBODY_TO_ASK = (
    "this client can't ask its user (it has no elicitation of forms): allow the call by a rule in a file, "
    "`--approve FILE`, or all calls by `--approve auto`"
)


class Approver:
    """Decides on tool calls: by a policy, and where that says so by asking.

    Each client is asked one question after the other, as an answer may make others needless. The first question about
    a tool is to be accepted or declined, which is one key in clients that draw no form for that; those that follow once
    it was accepted have the choice of allowing it for good.

    Args:
        policy: What is asked; it learns answers that hold for more than one call.
        timeout: Seconds until a question is withdrawn; the call has failed then.
    """

    def __init__(self, policy: Policy, timeout: float | None = 60):
        self.policy = policy
        self._timeout = timeout
        self._turns: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()
        #: Servers with the names of their tools.
        self._accepted: set[tuple[str, str]] = set()

    async def decide(self, request: ApprovalRequest, ask: Ask | None, client: object = None) -> None:
        """Accepts or rejects a call; without anybody to ask, it is rejected. The client is what `client_of` returns."""
        if ask is None:
            notice = "" if self.policy.untrusted is None else f". {self.policy.untrusted}"
            await request.reject(f"{_NOBODY_TO_ASK}{notice}", by="nobody")
            return
        turn = self._turns.setdefault(client, asyncio.Lock())
        try:
            async with asyncio.timeout(self._timeout), turn:
                await self._ask(request, ask)
        except TimeoutError:
            pass  # the tool server has its own clock, and has let the call fail
        except (MCPError, ValidationError) as exc:
            await request.reject(f"the client failed to ask its user: {printable(str(exc))}", by="nobody")

    async def _ask(self, request: ApprovalRequest, ask: Ask) -> None:
        decision = self.policy.decide_on(request)
        if decision.effect == "allow":  # by an answer that has come meanwhile
            await request.accept(by="rule", because=f"it is allowed by {decision.reason}")
            return
        tool = (decision.call.server, decision.call.tool)
        has_choice = tool in self._accepted and decision.can_be_remembered
        answer = await ask(question(decision, self.policy, has_choice=has_choice))
        if answer.action != "accept":
            by = "user" if answer.action == "decline" else "nobody"
            await request.reject(_REFUSALS[answer.action], by=by)
            return
        scope = _SCOPES.get(str((answer.content or {}).get("scope")))
        if scope is not None and has_choice:
            self.policy.remember(decision, scope)
        self._accepted.add(tool)
        await request.accept(by="user")


def asker(context: Context[Any, Any]) -> Ask | None:
    """Returns what asks the user of the client that made a request, or None if the client can't."""
    capabilities = context.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    # Without modes, as in the first revision, it is forms.
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return None

    async def ask(form: ElicitRequestFormParams) -> ElicitResult:
        return await context.session.elicit_form(form.message, form.requested_schema, context.request_id)

    return ask


def client_of(context: Context[Any, Any]) -> object:
    """Returns what is the same for requests that one client makes, as far as its transport tells them apart.

    On stdio there is but one; HTTP without sessions (MCP 2026-07-28) does not tell, so each request has its own.
    """
    return None if context.headers is None else context.headers.get("mcp-session-id", object())


def question(decision: Decision, policy: Policy, *, has_choice: bool) -> ElicitRequestFormParams:
    """Returns the form that shows a call, with the choice of allowing more than that or without."""
    call = decision.call
    lines = [
        f"Code calls the tool {_cut(printable(call.tool))} of the MCP server {_cut(printable(call.server))}",
        *_arguments(call.arguments),
    ]
    if policy.file is not None or policy.untrusted is not None:
        lines.append(f"It is asked about because of {printable(decision.reason)}")
    return ElicitRequestFormParams(message="\n".join(lines), requested_schema=_schema(policy, has_choice))


def _arguments(arguments: Mapping[str, Any]) -> list[str]:
    if not arguments:
        return ["  without arguments"]
    lines: list[str] = []
    for name, value in list(arguments.items())[:MAX_ARGUMENTS]:
        lines.append(f"  {_cut(printable(name))}: {_cut(printable(json.dumps(value, ensure_ascii=False)))}")
    if len(arguments) > MAX_ARGUMENTS:
        lines.append(f"  [... {len(arguments) - MAX_ARGUMENTS} more arguments are not shown ...]")
    return lines


def _cut(text: str) -> str:
    """Returns a text, or its head and tail with what is missing: what matters can be at either end."""
    missing = len(text) - MAX_ARGUMENT
    if missing <= 0:
        return text
    half = MAX_ARGUMENT // 2
    return f"{text[:half]} [... {missing:,} characters are not shown ...] {text[-half:]}"


def _schema(policy: Policy, has_choice: bool) -> dict[str, Any]:
    if not has_choice:
        return {"type": "object", "properties": {}}
    kept = "for this session" if policy.file is None else f"in {printable(policy.file.name)}"
    scope = {
        "type": "string",
        "title": "Allow",
        "description": f"What is always allowed is kept {kept}",
        "enum": [_ONCE, *_SCOPES],
        "default": _ONCE,
    }
    return {"type": "object", "properties": {"scope": scope}}
