"""Asks the user of an MCP client which tools of a server run without asking, when it is registered.

Only policies with hints need the answer, and only a person can give it: see `question` about forms, and `READING_TIME`
about clients that answer them. An unanswered question agrees to nothing and is asked again at the next registration.
"""

import asyncio
import re
import uuid
from dataclasses import dataclass, replace
from typing import Any

from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import ValidationError

from ipybox.mcp_server import approver
from ipybox.mcp_server.approver import form_sender
from ipybox.mcp_server.question import BAR, COLUMNS, MAX_LINE, MAX_NAME, cut_columns, quoted_name
from ipybox.support.printable import printable
from ipybox.tool_exec.approval.patterns import name_glob
from ipybox.workspace.registrations import Registration

#: Seconds until a form expires.
_FORM_TIMEOUT = 60.0

#: The key of a request's form.
_AGREEMENT = "agreement"

#: The fields of the two forms, and the first one's choices beside the tools that only read.
FIELD, NAMES = "unasked", "tools"
CHOOSE, NONE = "choose", "none"


class Agreements:
    """Asks about servers; keeps questions whose answer comes with a repetition of the request (MCP 2026-07-28)."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[_Question, float]] = {}

    async def decide(
        self, server_name: str, record: Registration, context: Context[Any, Any]
    ) -> Registration | InputRequiredResult:
        """Returns a server's record, with the user's decision if it lacked one, or a form for the user."""
        ask, clock = form_sender(context), asyncio.get_running_loop().time
        step: _Question | Registration = _Question(server_name, record)
        if ask is None or not record.undecided:
            return record
        if context.session.can_send_request:
            try:
                while isinstance(step, _Question):
                    shown = clock()
                    answer: object = await asyncio.wait_for(ask(step.form()), _FORM_TIMEOUT)
                    step = await asyncio.to_thread(step.settled, answer, clock() - shown)
            except (TimeoutError, MCPError, ValidationError):  # nobody answered, or the client didn't as MCP says
                return record
            return step
        if (known := self._shown.pop(context.request_state or "", None)) is not None:
            question, shown = known
            answer = (context.input_responses or {}).get(_AGREEMENT)
            step = await asyncio.to_thread(question.settled, answer, clock() - shown)
        if isinstance(step, Registration):
            return step
        self._shown = {state: each for state, each in self._shown.items() if clock() - each[1] < _FORM_TIMEOUT}
        state = uuid.uuid4().hex
        self._shown[state] = step, clock()
        return InputRequiredResult(input_requests={_AGREEMENT: ElicitRequest(params=step.form())}, request_state=state)


@dataclass(frozen=True)
class _Question:
    """A question about the tools of a server, as its record was when the question was shown."""

    server_name: str
    record: Registration
    #: Whether the user chooses the tools by name.
    choosing: bool = False

    def form(self) -> ElicitRequestFormParams:
        """Returns the form that asks it."""
        about = f"MCP server {cut_columns(quoted_name(self.server_name), MAX_NAME)}"
        launch = BAR + cut_columns(printable(self.record.launch), COLUMNS - len(BAR))
        offline = self.record.offline
        away = [name for name in self.record.reading if name not in offline]
        if self.choosing:
            lines = [f"{about}: which tools run without asking?", launch]
            lines += [_listed("Only read", offline)] * bool(offline)
            lines += [_listed("Also reach the internet", away)] * bool(away)
            hint = "Names with commas between them; * and ? are wildcards"
            name, field = NAMES, {"type": "string", "title": "Tools", "description": hint}
        else:
            lines = [f"{about}: run tools that only read without asking?", launch]
            lines += [f"It says: {self.record.split}.", "ipybox can't check that."]
            name, field = FIELD, {"type": "string", "title": "Run without asking", "enum": self._choices()}
            if offline:
                field["description"] = _listed("Only read", offline)
        schema = {"type": "object", "properties": {name: field}, "required": [name]}
        return ElicitRequestFormParams(message="\n".join(lines), requested_schema=schema)

    def settled(self, answer: object, seconds: float) -> "_Question | Registration":
        """Records what was answered after some seconds; returns the record as it is now, or the next question."""
        content: dict[str, Any] = {}
        if isinstance(answer, ElicitResult) and answer.action == "accept" and seconds >= approver.READING_TIME:
            content = dict(answer.content or {})
        choice, names = content.get(FIELD), content.get(NAMES)
        if self.choosing and isinstance(names, str):
            globs = [name_glob(each) for each in re.split(r"[,\s]+", names) if each]
            return self.record.agree([name for name in self.record.tools if any(glob.found_in(name) for glob in globs)])
        if self.choosing or choice not in self._choices():
            return self.record
        if choice == CHOOSE:
            return replace(self, choosing=True)
        return self.record.agree([] if choice == NONE else self.record.offline)

    def _choices(self) -> list[str]:
        offline = len(self.record.offline)
        return [*([f"the {offline} that only read"] if offline else []), CHOOSE, NONE]


def _listed(what: str, names: list[str]) -> str:
    text = f"{what}: {', '.join(cut_columns(quoted_name(name), MAX_NAME) for name in names)}"
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}…"
