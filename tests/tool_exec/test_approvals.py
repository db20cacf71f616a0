"""How policy, approver and the tool's registration come together in a decision, without a kernel."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ipybox.audit.recorder import SessionRecorder
from ipybox.audit.records import ApprovalDecision
from ipybox.guest.tools.protocol import RunRequest
from ipybox.tool_exec.approval.approvals import Approvals, accept_call, reject_call
from ipybox.tool_exec.approval.policy import ApprovalPolicy
from ipybox.tool_exec.approval.request import ApprovalRequest, NoDecision, accepts_batches
from ipybox.tool_exec.dispatch import ToolCaller
from ipybox.tool_exec.server_connections import ServerConnections
from ipybox.workspace.registrations import PinnedTool
from ipybox.workspace.seal import SealVerifier
from tests.servers import WAIT

RULES = """\
rules:
- {effect: allow, args: {text: [allowed]}}
- {effect: deny, args: {text: [denied]}}
"""
HINTS = "rules:\n- {effect: allow, hint: read_only}\n"

TICKED = PinnedTool("now", ("read_only",), unasked=True)
ALLOWED = ApprovalDecision(True, "rule", "allowed by policy:2")
DENIED = ApprovalDecision(False, "rule", "denied by policy:3")
BY_HINT = ApprovalDecision(True, "rule", "allowed by policy:2")


def call(text: str) -> RunRequest:
    params = {"command": "serve"}
    tool_args = {"text": text}
    return RunRequest(
        server_name="s", server_params=params, seal=None, tool_name="t", tool_args=tool_args, output_mark=7
    )


def policy(text: str) -> ApprovalPolicy:
    return ApprovalPolicy(text, Path("/w"))


class Server:
    """A registered server whose tool is defined as `digest` today."""

    def __init__(self, pinned: PinnedTool | None, digest: str | None, on_asked: Callable[[], None] = lambda: None):
        self._pinned, self._digest, self._on_asked = pinned, digest, on_asked

    def pinned(self, call: RunRequest) -> PinnedTool | None:
        assert (call["server_name"], call["tool_name"]) == ("s", "t")
        return self._pinned

    async def definition(self, call: RunRequest) -> str | None:
        assert (call["server_name"], call["tool_name"]) == ("s", "t")
        self._on_asked()
        return self._digest


def caller(approvals: Approvals, server: Server, connected: bool = True) -> ToolCaller:
    connections = cast(ServerConnections, server) if connected else None
    registrations = cast(SealVerifier, server)
    recorder = SessionRecorder()
    return ToolCaller(
        token="", approvals=approvals, recorder=recorder, connections=connections, registrations=registrations
    )


class Approver:
    """Accepts whatever it is asked about, and keeps it."""

    def __init__(self):
        self.requests: list[ApprovalRequest] = []

    async def one(self, request: ApprovalRequest) -> None:
        self.requests.append(request)
        await request.accept(by="approver")

    @accepts_batches
    async def several(self, request: ApprovalRequest) -> None:
        await self.one(request)


@pytest.fixture
def approver() -> Approver:
    return Approver()


async def test_rules_decide_first_and_the_approver_gets_the_others_with_all_that_is_known(approver: Approver):
    approvals = Approvals(policy(RULES), timeout=WAIT)
    known = caller(approvals, Server(TICKED, "now"))
    async with approvals.cell(approver.one):
        assert await approvals.decide(call("allowed"), "tool", known) == ALLOWED
        assert await approvals.decide(call("denied"), "tool", known) == DENIED
        assert approver.requests == []
        assert (await approvals.decide(call("other"), "shell", known)).by == "approver"

    (request,) = approver.requests
    assert (request.server_name, request.tool_name, request.tool_args) == ("s", "t", {"text": "other"})
    assert (request.server_params, request.pinned, request.output_mark) == ({"command": "serve"}, TICKED, 7)
    assert (request.kind, request.count, request.expires_at is None) == ("shell", 1, False)


async def test_one_request_is_about_the_calls_of_a_batch_that_no_rule_decides_on(approver: Approver):
    approvals = Approvals(policy(RULES))
    known = caller(approvals, Server(TICKED, "now"))
    async with approvals.cell(approver.several):
        calls = [call("a"), call("denied"), call("b"), call("allowed")]
        first, denied, second, allowed = await approvals.decide_many(calls, known)
        assert [first and first.by, denied, second and second.by, allowed] == ["approver", DENIED, "approver", ALLOWED]
        assert await approvals.decide_many([call("denied")], known) == [DENIED]
        assert await approvals.decide_many([], known) == []
    (request,) = approver.requests
    assert (request.calls, request.pinned) == ([{"text": "a"}, {"text": "b"}], TICKED)


async def test_calls_of_a_batch_are_decided_on_one_by_one_if_the_approver_knows_no_batches(approver: Approver):
    approvals = Approvals(policy(RULES))
    known = caller(approvals, Server(TICKED, "now"))
    assert await approvals.decide_many([call("denied")], known) == [None]  # no cell runs
    async with approvals.cell(approver.one):
        assert await approvals.decide_many([call("denied"), call("a")], known) == [None, None]
    assert approver.requests == []


@pytest.mark.parametrize(
    ("server", "connected", "allowed"),
    [
        pytest.param(Server(TICKED, "now"), True, True, id="as-registered"),
        pytest.param(Server(TICKED, "later"), True, False, id="changed"),
        pytest.param(Server(TICKED, None), True, False, id="gone"),
        pytest.param(Server(TICKED, "later"), False, True, id="no-connections"),
        pytest.param(Server(TICKED._replace(unasked=None), "now"), True, False, id="undecided"),
        pytest.param(Server(None, "now"), True, False, id="not-registered"),
    ],
)
async def test_a_hint_counts_while_the_tool_is_as_it_was_when_a_person_decided(
    approver: Approver, caplog: pytest.LogCaptureFixture, server: Server, connected: bool, allowed: bool
):
    approvals = Approvals(policy(HINTS))
    known = caller(approvals, server, connected)
    tried = call("x")
    async with approvals.cell(approver.several):
        decision = await approvals.decide(tried, "tool", known)
        batch = await approvals.decide_many([call("x")], known)
    pinned = server.pinned(tried)
    definition = await server.definition(tried) if connected and pinned == TICKED else None
    asked = ApprovalDecision(True, "approver", definition=definition)
    assert decision == (replace(BY_HINT, definition=definition) if allowed else asked)
    # In a batch, it is checked again when the call's turn comes.
    assert batch == [None if allowed else asked]
    changed = connected and not allowed and pinned == TICKED
    assert caplog.messages == ["s.t has changed since its registration"] * (2 * changed)
    assert [request.pinned for request in approver.requests] == [
        pinned._replace(unasked=None) if changed and pinned else pinned
    ] * (0 if allowed else 2)


async def test_a_tool_that_can_not_be_looked_up_has_no_hint(approver: Approver):
    approvals = Approvals(policy(HINTS))
    async with approvals.cell(approver.one):
        assert (await approvals.decide(call("x"))).by == "approver"
    assert approver.requests[0].pinned is None


async def test_a_rule_without_hints_asks_no_server(approver: Approver):
    def fail() -> None:
        raise AssertionError("was asked")

    approvals = Approvals(policy(RULES))
    known = caller(approvals, Server(TICKED, "now", fail))
    async with approvals.cell(approver.several):
        assert (await approvals.decide(call("x"), "tool", known)).by == "approver"
        assert [each and each.by for each in await approvals.decide_many([call("x")], known)] == ["approver"]


@pytest.mark.parametrize("many", [False, True], ids=["one", "batch"])
async def test_a_call_is_not_made_if_its_cell_is_interrupted_while_the_server_is_asked(approver: Approver, many: bool):
    approvals = Approvals(policy(HINTS))
    known = caller(approvals, Server(TICKED, "now", lambda: approvals.end_batches()))
    async with approvals.cell(approver.several):
        decide: Any = approvals.decide_many([call("x")], known) if many else approvals.decide(call("x"), "tool", known)
        found = await decide
    decision = found[0] if many else found
    assert isinstance(decision, NoDecision)
    assert (decision.accepted, decision.reason) == (False, "its cell has ended or was interrupted")
    assert approver.requests == []


async def test_calls_after_the_end_of_a_cell_and_requests_that_it_leaves_are_not_accepted():
    approvals = Approvals()
    asked = asyncio.Event()

    async def never(_: ApprovalRequest) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(WAIT):
        async with approvals.cell(never):
            decision = asyncio.create_task(approvals.decide(call("x")))
            await asked.wait()
        left = await decision
        assert (left.accepted, left.reason) == (False, "its cell has ended or was interrupted")
        late = await approvals.decide(call("x"))
        assert (late.accepted, late.reason) == (False, "the call was made while no cell was running")


async def test_executions_without_an_approver_accept_all_or_reject_what_a_policy_asks_about():
    open_to_all, strict = Approvals(), Approvals(policy(RULES))
    async with open_to_all.cell(accept_call), strict.cell(reject_call):
        assert await open_to_all.decide(call("x")) == ApprovalDecision(True, "auto")
        rejected = await strict.decide(call("x"))
    assert (rejected.accepted, rejected.by) == (False, "nobody")
    assert str(rejected.reason).startswith("the approval policy requires approval")
