"""Approval of tool calls by an MCP client's user, through elicitation; `ipybox.mcp_server.question` has the forms.

https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Literal
from weakref import WeakValueDictionary

from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestFormParams, ElicitResult
from pydantic import ValidationError

from ipybox.audit.redaction import Redactor, shortened
from ipybox.mcp_server.question import Extent, Question, name_of, rules_option
from ipybox.support.printable import printable
from ipybox.tool_exec.approval.policy import ApprovalPolicy, PolicyDecision
from ipybox.tool_exec.approval.protocol import RequestKind
from ipybox.tool_exec.approval.request import ApprovalRequest

#: Sends a form to the client, and returns its user's answer.
Ask = Callable[[ElicitRequestFormParams], Awaitable[ElicitResult]]

#: An MCP server and one of its tools.
_Tool = tuple[str, str]


class ElicitationApprover:
    """Decides on tool calls: by a policy, and with forms for the client's user if the policy asks.

    Each client shows one form at a time, because an answer may make others unnecessary. The first form for a tool only
    accepts or declines, which is one key in clients that draw no fields for that; after decline, a second form offers
    to allow more. Once a call was accepted, or in a loop, the form itself offers these choices.

    Args:
        policy: Decides which calls need a form, and stores answers that hold for more than one cell.
        timeout: Seconds until a form that the user sees expires and the call fails. None for no limit.
    """

    def __init__(self, policy: ApprovalPolicy, timeout: float | None = 60):
        self.policy = policy
        self.timeout = timeout
        self.redactor = Redactor(shortened)
        #: Tools of which a call was accepted.
        self.accepted: set[_Tool] = set()
        #: Notices about forms that expired without an answer, until a form shows them to a user.
        self.withdrawn: str | None = None
        self._turns: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()

    def cell(
        self,
        ask: Ask | None,
        client: object = None,
        *,
        seconds: float | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> "CellApprover":
        """Returns the approver for the calls of one cell.

        Args:
            ask: Sends a form to the user; None if the client does not support forms.
            client: What `client_of` returns.
            seconds: How long the cell may take; its forms expire with it.
            tell: Shows the user a line, immediately.
        """
        turn = self._turns.setdefault(client, asyncio.Lock())
        return CellApprover(self, ask, turn, seconds, tell)


class CellApprover:
    """Decides on the tool calls of one cell; created by `ElicitationApprover.cell`."""

    def __init__(
        self,
        approver: ElicitationApprover,
        ask: Ask | None,
        turn: asyncio.Lock,
        seconds: float | None,
        tell: Callable[[str], None],
    ):
        self._approver = approver
        self._policy = approver.policy
        self._ask = ask
        self._turn = turn
        self._end = None if seconds is None else asyncio.get_running_loop().time() + seconds
        self._tell = tell
        self._calls: Counter[_Tool] = Counter()
        #: What is allowed for the rest of the cell: calls that need approval for the same reason.
        self._allowed: set[tuple[_Tool, str]] = set()

    async def decide(self, request: ApprovalRequest) -> None:
        """Accepts or rejects a call. Rejects it if the client does not support forms."""
        self._calls[request.server_name, request.tool_name] += 1
        if self._ask is None:
            notice = "" if self._policy.untrusted is None else f". {self._policy.untrusted}"
            nobody = "this client can't ask its user (it has no elicitation of forms): allow the call by a rule in a "
            await request.reject(f"{nobody}file, or all calls by `auto`: {rules_option()}{notice}", by="nobody")
            return
        try:
            async with self._turn:  # a form does not expire before the user sees it
                await self._decide(request, self._ask)
        except TimeoutError:
            await request.reject("the question to the user has expired without an answer", by="nobody")
        except (MCPError, ValidationError) as exc:
            await request.reject(f"the client failed to ask its user: {printable(str(exc))}", by="nobody")

    async def _decide(self, request: ApprovalRequest, ask: Ask) -> None:
        decision = self._policy.decide_on(request)
        tool = (decision.call.server, decision.call.tool)
        if decision.effect == "allow":  # by an answer since the call arrived
            await request.accept(by="rule", because=f"it is allowed by {decision.reason}")
            return
        if (tool, decision.reason) in self._allowed:
            await request.accept(by="user", because="its tool is allowed for the rest of the cell")
            return
        outcome = await self._answer(decision, request.kind, ask)
        if outcome in ("decline", "cancel"):
            await request.reject(_refusal(outcome), by="user" if outcome == "decline" else "nobody")
            return
        if outcome == "cell":
            self._allowed.add((tool, decision.reason))
        elif outcome != "call":
            self._policy.remember(decision, outcome)
        self._approver.accepted.add(tool)
        await request.accept(by="user")

    async def _answer(
        self, decision: PolicyDecision, kind: RequestKind, ask: Ask
    ) -> Extent | Literal["decline", "cancel"]:
        """Returns the user's answer.

        Raises:
            TimeoutError: If the form expires.
        """
        tool = (decision.call.server, decision.call.tool)
        approver, calls = self._approver, self._calls[tool]
        has_choice = calls > 1 or tool in approver.accepted
        question = Question(decision, self._policy, calls, self._seconds(), approver.withdrawn, kind)
        approver.withdrawn = None
        answer = await self._show(question, question.form(approver.redactor, has_choice=has_choice), ask)
        if answer.action == "accept":
            return (question.extent(answer) if has_choice else None) or "call"
        if answer.action == "cancel" or has_choice:
            return answer.action
        question = replace(question, seconds=self._seconds())
        try:
            answer = await self._show(question, question.alternatives(), ask)
        except TimeoutError:
            return "decline"
        return (question.extent(answer) if answer.action == "accept" else None) or "decline"

    async def _show(self, question: Question, form: ElicitRequestFormParams, ask: Ask) -> ElicitResult:
        try:
            async with asyncio.timeout(question.seconds):
                return await ask(form)
        except (TimeoutError, asyncio.CancelledError) as exc:
            about = f"The question about the tool {name_of(question.decision.call)}"
            self._approver.withdrawn = f"{about} was withdrawn before it was answered."
            if isinstance(exc, TimeoutError):
                self._tell(f"\n{about} has expired.\n")
            raise

    def _seconds(self) -> float | None:
        left = None if self._end is None else max(0.0, self._end - asyncio.get_running_loop().time())
        return min((seconds for seconds in (self._approver.timeout, left) if seconds is not None), default=None)


def asker(context: Context[Any, Any]) -> Ask | None:
    """Returns a function that sends forms to the user of the client that made a request; None without such support."""
    capabilities = context.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    # Without modes, as in the first revision, forms are supported.
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return None

    async def ask(form: ElicitRequestFormParams) -> ElicitResult:
        return await context.session.elicit_form(form.message, form.requested_schema, context.request_id)

    return ask


def client_of(context: Context[Any, Any]) -> object:
    """Returns an object that is equal for requests of one client, as far as its transport can tell clients apart.

    On stdio there is only one client; over HTTP without sessions (MCP 2026-07-28), each request has its own object.
    """
    return None if context.headers is None else context.headers.get("mcp-session-id", object())


def _refusal(action: Literal["decline", "cancel"]) -> str:
    if action == "decline":
        return "the user declined it"
    return (
        "the question was dismissed without an answer; where no person can give one, allow the call by a rule in a "
        f"file: {rules_option()}"
    )
