"""What an approval request tells, however its approver is reached: in the same process, or by an `ApprovalClient`."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from ipybox.errors import ApprovalExpiredError, IpyboxError
from ipybox.guest.tools.protocol import RunRequest
from ipybox.tool_exec.approval.approvals import Approvals
from ipybox.tool_exec.approval.client import ApprovalClient, ApprovalRequest
from ipybox.tool_exec.approval.protocol import ApprovalDecision, NoDecision
from ipybox.tool_exec.approval.request import ApprovalCallback
from ipybox.tool_exec.approval.server import ApprovalChannel
from ipybox.workspace.registrations import PinnedTool
from tests.servers import WAIT
from tests.tool_exec.channel import serving_channel

CALL = RunRequest(server_name="server", server_params={}, seal=None, tool_name="tool", tool_args={"a": 1})

#: Calls a tool, which needs an approval, and returns the decision that counted.
Call = Callable[[], "asyncio.Task[ApprovalDecision]"]
Asking = Callable[..., AbstractAsyncContextManager[Call]]


@pytest.fixture(params=["process", "client"])
def asking(request: pytest.FixtureRequest) -> Asking:
    @asynccontextmanager
    async def asked(approver: ApprovalCallback, timeout: float | None = WAIT) -> AsyncGenerator[Call]:
        channel = ApprovalChannel(approval_required=True, approval_timeout=timeout)
        approvals = Approvals(timeout=timeout) if request.param == "process" else channel

        def call() -> "asyncio.Task[ApprovalDecision]":
            return asyncio.create_task(approvals.decide(CALL))

        async with asyncio.timeout(WAIT):
            if approvals is not channel:
                async with approvals.cell(approver):
                    yield call
            else:
                async with serving_channel(channel) as port, ApprovalClient(approver, port=port):
                    yield call

    return asked


async def forever() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("timeout", [WAIT, None])
async def test_request_has_a_name_and_tells_when_it_expires(asking: Asking, timeout: float | None):
    requests: list[ApprovalRequest] = []

    async def accept(request: ApprovalRequest) -> None:
        assert request.state == "pending"
        requests.append(request)
        await request.accept()

    before = datetime.now(UTC)
    async with asking(accept, timeout) as call:
        await asyncio.gather(call(), call())

    assert len({request.id for request in requests}) == 2
    for request in requests:
        assert before <= request.created_at <= datetime.now(UTC)
        assert request.created_at.utcoffset() == timedelta(0)
        lasts = None if request.expires_at is None else request.expires_at - request.created_at
        assert lasts == (None if timeout is None else timedelta(seconds=timeout))


@pytest.mark.parametrize("accepted", [True, False])
async def test_what_waits_gets_the_decision_whoever_makes_it(asking: Asking, accepted: bool):
    requests: asyncio.Queue[ApprovalRequest] = asyncio.Queue()
    async with asking(requests.put) as call:  # it returns before it decides
        calling = call()
        request = await requests.get()
        waiting = [asyncio.create_task(request.decided()) for _ in range(2)]
        assert await (request.accept() if accepted else request.reject("not on Sundays"))
        decision = await request.decided()
        assert {await each for each in waiting} == {await calling} == {decision}

    assert (decision.accepted, bool(decision), decision.by) == (accepted, accepted, "application")
    assert decision.reason == (None if accepted else "not on Sundays")
    assert request.state == ("accepted" if accepted else "rejected")


async def test_request_that_expires_is_a_decision_against_the_call_and_a_late_one_is_an_error(asking: Asking):
    requests: asyncio.Queue[ApprovalRequest] = asyncio.Queue()
    async with asking(requests.put, 0.1) as call:
        calling = call()
        request = await requests.get()
        decision = await request.decided()
        assert decision == await calling == NoDecision(False, "timeout", "the approval request expired after 0.1 s")
        assert request.state == "expired"
        for decide in (request.accept, request.reject):
            with pytest.raises(ApprovalExpiredError, match=r"^the decision on server\.tool came too late: ") as error:
                await decide()
            assert str(request.expires_at) in str(error.value)
            assert isinstance(error.value, IpyboxError)
        assert await request.decided() == decision


async def test_only_the_first_decision_counts_and_each_says_whether_it_did(asking: Asking):
    requests: asyncio.Queue[ApprovalRequest] = asyncio.Queue()
    async with asking(requests.put) as call:
        for concurrent in (False, True):
            calling = call()
            request = await requests.get()
            if concurrent:
                counts = await asyncio.gather(request.reject("first"), request.accept())
            else:
                counts = [await request.reject("first"), await request.accept()]
            assert counts == [True, False]
            assert (await calling, request.state) == (ApprovalDecision(False, "application", "first"), "rejected")


async def test_request_of_a_call_that_ends_is_cancelled_and_a_decision_does_not_count(asking: Asking):
    requests: asyncio.Queue[ApprovalRequest] = asyncio.Queue()
    async with asking(requests.put) as call:
        calling = call()
        request = await requests.get()
        calling.cancel()
        assert await request.decided() == NoDecision(False, "nobody", "the call has ended")
        assert request.state == "cancelled"
        assert not await request.accept()
        assert not await request.reject()


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (ValueError("can't decide"), "ValueError: can't decide"),
        (asyncio.CancelledError(), "the approver was cancelled"),
    ],
)
async def test_call_fails_if_its_approver_raises_or_is_cancelled(asking: Asking, failure: BaseException, reason: str):
    requests: list[ApprovalRequest] = []

    async def fail(request: ApprovalRequest) -> None:
        requests.append(request)
        if len(requests) == 1:
            raise failure
        await request.accept()

    async with asking(fail) as call:
        decision = await call()
        assert not decision.accepted
        assert (decision.by, decision.reason) == ("nobody", f"the approver failed: {reason}")
        assert (await requests[0].decided()).reason == decision.reason
        assert requests[0].state == "rejected"
        assert not await requests[0].accept()
        assert (await call()).accepted


@pytest.mark.parametrize("answer", [True, False])
async def test_call_fails_immediately_if_its_approver_returns_an_answer_instead_of_deciding(
    asking: Asking, answer: bool
):
    async def returns(request: ApprovalRequest) -> bool:
        return answer

    async with asking(returns) as call:
        decided = await call()

    assert isinstance(decided, NoDecision)
    assert f"the approver returned {answer} without deciding: call `await request.accept()`" in str(decided.reason)


async def test_response_is_whether_the_call_was_accepted_and_a_request_has_a_kind(asking: Asking):
    async def accept(request: ApprovalRequest) -> bool:
        assert request.kind == "tool"
        response = asyncio.create_task(request.response())
        counts = await request.accept()
        assert await response is True
        return counts

    async with asking(accept) as call:
        assert await call()


async def test_names_of_arguments_can_not_look_like_others_in_the_text():
    forged = " " * 4000 + "files.delete(path='scratch.txt', force"
    request = ApprovalRequest("files", "delete", {"path": "report.txt", forged: False, "new\nline": 1}, None)
    assert str(request) == f"files.delete(path='report.txt', {forged!r}=False, 'new\\nline'=1)"
    pinned = PinnedTool("a", parameters=["path"])
    request = ApprovalRequest("files", "delete", {"path": "a", "p\u0430th": "b", "dry_run": True}, None, pinned=pinned)
    assert str(request) == r"files.delete(path='a', 'p\u0430th' (unknown)='b', dry_run (unknown)=True)"


async def test_approver_that_fails_after_its_decision_changes_nothing(asking: Asking, caplog: pytest.LogCaptureFixture):
    ended = asyncio.Event()

    async def fail(request: ApprovalRequest) -> None:
        await request.accept()
        ended.set()
        raise ValueError("after the decision")

    async with asking(fail) as call:
        assert await call() == ApprovalDecision(True, "application")
        await ended.wait()
    assert "ValueError: after the decision" in caplog.text
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "the approval callback failed on server.tool(a=1)"
    ]


@pytest.mark.parametrize("ending", ["expired", "cancelled"])
async def test_approver_is_cancelled_when_its_request_ends_without_a_decision(asking: Asking, ending: str):
    requests: asyncio.Queue[ApprovalRequest] = asyncio.Queue()
    cancelled = asyncio.Event()

    async def wait(request: ApprovalRequest) -> None:
        requests.put_nowait(request)
        try:
            await forever()
        finally:
            cancelled.set()

    async with asking(wait, 0.1 if ending == "expired" else WAIT) as call:
        calling = call()
        request = await requests.get()
        if ending == "cancelled":
            calling.cancel()
        await cancelled.wait()
        assert request.state == ending


async def test_call_does_not_wait_for_an_approver_that_goes_on_after_a_decision(asking: Asking):
    requests: asyncio.Queue[ApprovalRequest] = asyncio.Queue()
    cancelled, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def decide(request: ApprovalRequest) -> None:
        requests.put_nowait(request)
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        done.set()

    async with asking(decide) as call:
        calling = call()
        assert await (await requests.get()).accept()  # another part of the application
        assert (await calling).accepted
        go_on.set()
        await done.wait()
        calling = call()
        go_on.clear()
        await (await requests.get()).accept()
        await calling
    await cancelled.wait()  # it ends with the connection
