"""Approval of tool calls by an MCP client's user, through elicitation; `ipybox.mcp_server.question` builds the forms.

https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestFormParams, ElicitResult
from pydantic import ValidationError

from ipybox.audit.redaction import Redactor, shortened
from ipybox.mcp_server.approval_desk import ApprovalDesk
from ipybox.mcp_server.question import Question, rules_option
from ipybox.mcp_server.shown_call import name_of, whole_call
from ipybox.support.errors import SandboxError
from ipybox.support.printable import printable
from ipybox.support.private_file import create_private
from ipybox.support.scratch import ScratchDirectory
from ipybox.tool_exec.approval.policy import ApprovalPolicy, PolicyDecision
from ipybox.tool_exec.approval.request import ApprovalRequest, accepts_batches

#: Seconds in which concurrent calls of a tool are collected, so that one form asks about all of them.
COLLECTING_TIME = 0.05

#: Seconds that a person needs at least to read and answer a form: a faster answer came from the client itself.
READING_TIME = 0.5

logger = logging.getLogger(__name__)

#: Sends a form to the client and returns the user's answer.
Ask = Callable[[ElicitRequestFormParams], Awaitable[ElicitResult]]

#: An MCP server and one of its tools.
_Tool = tuple[str, str]

#: Holds a lock.
Turn = Callable[[asyncio.Lock], AbstractAsyncContextManager[None]]


class ElicitationApprover:
    """Creates what decides on the tool calls of cells: a policy, or the client's user if the policy says so.

    Each client shows one form at a time, because an answer may make others unnecessary. If the client answers itself,
    for example by a hook, the answer applies only to that call and is recorded as the client's. The policy stores
    answers that apply beyond the cell. A form expires, and its call fails, `timeout` seconds after it is shown.
    """

    def __init__(self, policy: ApprovalPolicy, timeout: float | None = 60, desk: ApprovalDesk | None = None):
        self.policy = policy
        self.timeout = timeout
        self.desk = desk or ApprovalDesk(Path())
        self.redactor = Redactor(shortened)
        self._clients: WeakValueDictionary[object, FormClient] = WeakValueDictionary()

    def cell(
        self,
        ask: Ask | None,
        client: object = None,
        *,
        turn: Turn = lambda lock: lock,
        tell: Callable[[str], None] = lambda _: None,
    ) -> "CellApprover":
        """Returns the approver for the calls of one cell.

        `ask` shows the user a form; None if the client can't. `client` identifies the client as far as the transport
        allows. `turn` holds the client's lock while a form can be shown. `tell` shows the user a line.
        """
        return CellApprover(self, ask, self.client(client), turn, tell)

    def client(self, identity: object) -> "FormClient":
        """Returns what is known about a client, by what identifies it."""
        return self._clients.setdefault(identity, FormClient())


class FormClient:
    """A client that shows forms."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        #: Whether the client gave the latest answer itself.
        self.answers_itself = False
        #: Whether the latest form ended without an answer, so that a person may answer it when they see the next one.
        self.withdrawn = False


@dataclass(eq=False)
class _Open:
    """A request that waits for a form, and by whom and why it is refused if no person decides."""

    request: ApprovalRequest
    refusal: tuple[str, str] | None = None


@dataclass(eq=False)
class CellApprover:
    """Decides on the tool calls of one cell; created by `ElicitationApprover.cell`."""

    _approver: ElicitationApprover
    _ask: Ask | None
    _client: FormClient
    _turn: Turn
    _tell: Callable[[str], None]
    _calls: Counter[_Tool] = field(default_factory=Counter[_Tool])
    #: Requests that no form has settled, by tool.
    _open: dict[_Tool, list["_Open"]] = field(default_factory=dict[_Tool, "list[_Open]"])
    #: Tools allowed for the rest of the cell, with the ground for asking.
    _allowed: set[tuple[_Tool, str]] = field(default_factory=set[tuple[_Tool, str]])

    @accepts_batches
    async def decide(self, request: ApprovalRequest) -> None:
        """Accepts or rejects a request, unless a terminal does so first. Rejects it if nobody can be asked."""
        self._calls[request.server_name, request.tool_name] += request.count
        desk = self._approver.desk
        with desk.waiting(request, partial(whole_call, request, self._approver.redactor)):
            refusal = await desk.unless_decided(request, self._by_form(request))
            # A terminal may decide although nobody answered the form.
            if refusal is not None and not (desk.watched and await desk.decided(request)):
                await request.reject(refusal[1], by=refusal[0])

    async def _by_form(self, request: ApprovalRequest) -> tuple[str, str] | None:
        """Decides by a form; if no person could be asked, returns by whom and why the call is rejected."""
        if self._ask is None:
            notice = "" if self._approver.policy.untrusted is None else f". {self._approver.policy.untrusted}"
            reason = "this client can't ask its user (it doesn't support form elicitation)"
            return "nobody", f"{reason}{_TELL}{rules_option()}{notice}"
        waiting = _Open(request)
        of_tool = self._open.setdefault((request.server_name, request.tool_name), [])
        of_tool.append(waiting)
        try:
            if not self._client.answers_itself and request.kind == "tool":
                await asyncio.sleep(COLLECTING_TIME)
            async with self._turn(self._client.turn):  # a form does not expire before the user sees it
                while request.state == "pending" and waiting.refusal is None:
                    # A client that answers itself, such as by a hook, decides on each by itself.
                    alone = self._client.answers_itself or request.kind == "shell"
                    together = [waiting] if alone else [each for each in of_tool if each.request.state == "pending"]
                    refusal = await self._decide([each.request for each in together], self._ask)
                    for each in together:
                        each.refusal = refusal
            return waiting.refusal
        except TimeoutError:  # there was no request to show a form
            return "nobody", _UNANSWERED
        finally:
            of_tool.remove(waiting)

    async def _decide(self, requests: Sequence[ApprovalRequest], ask: Ask) -> tuple[str, str] | None:
        """Decides on requests about one tool, or returns why they are refused; neither if they need separate forms."""
        approver, tool = self._approver, (requests[0].server_name, requests[0].tool_name)
        left, asked = await self._undecided(requests)
        if not left:
            return None
        seconds = None if approver.desk.watched else approver.timeout
        kind = requests[0].kind
        question = Question(asked, approver.policy, approver.redactor, self._calls[tool], seconds, kind)
        try:
            answer = await self._show(question, ask)
        except TimeoutError:
            return "nobody", _UNANSWERED
        except (MCPError, ValidationError) as exc:
            return "nobody", f"the client failed to ask its user: {printable(str(exc))}"
        extent = question.extent(answer)
        if self._client.answers_itself:
            return None if len(left) > 1 else await self._settle_by_client(left[0], answer, accepted=extent is not None)
        if extent is None and answer.action == "cancel":
            return "nobody", _DISMISSED
        if extent is not None and extent != "call":
            [(ground, decision)] = question.asking.items()
            if extent == "cell":
                self._allowed.add((tool, ground))
            else:
                approver.policy.remember(decision, extent)
        for request in left:
            await (request.reject(_DECLINED, by="user") if extent is None else request.accept(by="user"))
        return None

    async def _undecided(
        self, requests: Sequence[ApprovalRequest]
    ) -> tuple[list[ApprovalRequest], list[PolicyDecision]]:
        """Decides on requests that rules or answers decide on by now; returns the others, and the calls to show."""
        left: list[ApprovalRequest] = []
        asked: list[PolicyDecision] = []
        for request in requests:
            decisions = await asyncio.to_thread(self._approver.policy.decide_on, request)
            denied = [each for each in decisions if each.effect != "allow"]
            tool = (request.server_name, request.tool_name)
            if forbidden := [each.reason for each in denied if each.effect == "deny"]:
                await request.reject(f"denied by {forbidden[0]}", by="rule")
            elif not denied:
                await request.accept(by="rule", because=f"allowed by {decisions[0].reason}")
            elif all((tool, each.ground) in self._allowed for each in denied):
                await request.accept(by="user", because="the tool is allowed for the rest of the cell")
            else:
                left.append(request)
                asked += decisions
        return left, asked

    async def _settle_by_client(
        self, request: ApprovalRequest, answer: ElicitResult, *, accepted: bool
    ) -> tuple[str, str] | None:
        at_once = f"on its own, within {READING_TIME:g} s"
        if accepted:
            calls = "the call" if request.count == 1 else f"{request.count:,} calls"
            self._tell(f"\nThe client accepted {calls} to {request.server_name}.{request.tool_name} {at_once}.\n")
            await request.accept(by="client", because=f"the client accepted it {at_once}")
            return None
        answered = "dismissed the form" if answer.action == "cancel" else "declined it"
        return "client", f"the client {answered} {at_once}{_TELL}{rules_option()}"

    async def _show(self, question: Question, ask: Ask) -> ElicitResult:
        clock = asyncio.get_running_loop().time
        try:
            with _call_file(await asyncio.to_thread(question.whole)) as file:
                form = await asyncio.to_thread(question.form, file)
                async with self._approver.desk.timeout(self._approver.timeout):
                    while True:
                        shown, withdrawn = clock(), self._client.withdrawn
                        self._client.withdrawn = True
                        answer = await ask(form)
                        self._client.withdrawn = False
                        at_once = clock() - shown < READING_TIME
                        if not (at_once and withdrawn):
                            self._client.answers_itself = at_once
                            return answer
        except TimeoutError:
            self._tell(f"\nThe form about the tool {name_of(question.decisions[0].call)} has expired.\n")
            raise


@contextmanager
def _call_file(text: str | None) -> Generator[Path | None]:
    """Saves a text temporarily where sandboxed code can't read it; yields its path, or None without a file."""
    file = None
    with ExitStack() as stack:
        try:
            if text is not None:
                place = stack.enter_context(ScratchDirectory()).path / "call.txt"
                with create_private(place, "wb") as opened:
                    opened.write(text.encode())
                file = place
        except (OSError, SandboxError) as exc:
            logger.warning("can't save a call's arguments: %s", exc)
        yield file


_DECLINED = "the user declined it"
_UNANSWERED = "the user didn't answer the form before it expired"
_DISMISSED = "the form was dismissed without an answer"

#: Text for the agent, between the reason why no person was asked and the name of the user's option.
_TELL = (
    ", so no person was asked. Tell the user: only they can answer, with `ipybox approvals --watch` in a terminal, or "
    "change what needs approval, with "
)
