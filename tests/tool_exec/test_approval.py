"""Approvals: a real tool server, a real client of it, and a callback that decides."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from ipybox.guest.tools.client import ToolRunner, ToolRunnerError
from ipybox.support.endpoint import Endpoint
from ipybox.support.tokens import token_file
from ipybox.tool_exec.approval.client import ApprovalClient, ApprovalRequest
from ipybox.tool_exec.approval.protocol import ApprovalDecision, NoDecision, answer, approve_request, parse_answer
from ipybox.tool_exec.approval.server import ApprovalChannel
from ipybox.tool_exec.server import ToolServer
from tests import servers
from tests.servers import WAIT
from tests.tool_exec.channel import serving_channel
from tests.tool_exec.test_server import tcp_face

Callback = Callable[[ApprovalRequest], Awaitable[object]]

ACCEPTED, REJECTED = ApprovalDecision(True, "application"), ApprovalDecision(False, "application", "why")


async def accept(request: ApprovalRequest) -> None:
    await request.accept()


@asynccontextmanager
async def serving(timeout: float | None = WAIT) -> AsyncGenerator[tuple[ToolServer, ToolRunner]]:
    async with ToolServer(port=0, approval_required=True, approval_timeout=timeout) as server:
        yield server, ToolRunner("scripted", servers.scripted(), port=server.port or 0)


def client(server: ToolServer, callback: Callback) -> ApprovalClient:
    return ApprovalClient(callback, port=server.port or 0)


async def echo(runner: ToolRunner, text: str) -> object:
    async with asyncio.timeout(WAIT):
        return await runner.run("echo", {"text": text})


async def refusal(runner: ToolRunner) -> str:
    with pytest.raises(ToolRunnerError) as error:
        await echo(runner, "refused")
    return str(error.value)


async def test_an_accepted_call_runs():
    async with serving() as (server, runner), client(server, accept):
        assert await echo(runner, "a") == "a"


async def test_a_request_shows_exactly_what_will_be_called():
    requests: list[ApprovalRequest] = []

    async def decide(request: ApprovalRequest) -> None:
        requests.append(request)
        await request.accept()

    args = {"text": "ä\U0001f600", "nested": {"list": [1, 2.5, None, True]}, "big": 2**70}
    async with serving() as (server, runner), client(server, decide):
        await runner.run("echo", args)

    (request,) = requests
    assert (request.server_name, request.tool_name) == ("scripted", "echo")
    assert request.tool_args == args
    assert request.server_params == servers.scripted()


async def test_a_rejected_call_fails_and_the_next_one_works():
    decisions = [ApprovalRequest.reject, ApprovalRequest.accept]

    async def decide(request: ApprovalRequest) -> None:
        await decisions.pop(0)(request)

    async with serving() as (server, runner), client(server, decide):
        assert await refusal(runner) == "call to scripted.echo was rejected"
        assert await echo(runner, "next") == "next"


async def test_a_reason_for_a_rejection_reaches_the_call():
    async def decide(request: ApprovalRequest) -> None:
        await request.reject("not on Sundays")

    async with serving() as (server, runner), client(server, decide):
        assert await refusal(runner) == "call to scripted.echo was rejected: not on Sundays"


async def test_a_rejected_call_starts_no_server():
    async with serving() as (server, runner), client(server, ApprovalRequest.reject):
        await refusal(runner)
        async with tcp_face(server).session() as session, session.get("/status") as response:
            assert await response.json() == {"servers": [], "approval_client": True}


async def test_a_request_without_a_decision_expires_and_the_next_one_is_decided_on():
    requests: list[ApprovalRequest] = []

    async def decide(request: ApprovalRequest) -> None:
        requests.append(request)
        if len(requests) > 1:
            await request.accept()

    async with serving(timeout=0.2) as (server, runner), client(server, decide):
        reason = "call to scripted.echo was not approved: the approval request expired after 0.2 s"
        assert await refusal(runner) == reason
        assert await echo(runner, "next") == "next"


async def test_only_the_first_decision_counts():
    async def decide(request: ApprovalRequest) -> None:
        await request.reject()
        await request.accept()

    async with serving() as (server, runner), client(server, decide):
        assert await refusal(runner) == "call to scripted.echo was rejected"


async def test_requests_need_no_timeout():
    async def decide(request: ApprovalRequest) -> None:
        await request.accept()

    async with serving(timeout=None) as (server, runner), client(server, decide):
        assert await echo(runner, "a") == "a"


async def test_a_callback_that_raises_fails_the_call_with_its_reason(caplog: pytest.LogCaptureFixture):
    fail = True

    async def decide(request: ApprovalRequest) -> None:
        nonlocal fail
        if fail:
            fail = False
            raise ValueError("can't decide")
        await request.accept()

    async with serving() as (server, runner), client(server, decide):
        assert await refusal(runner) == (
            "call to scripted.echo was not approved: the approver failed: ValueError: can't decide"
        )
        assert await echo(runner, "next") == "next"
    assert "the approval callback failed on scripted.echo(text='refused')" in caplog.text


async def test_decisions_come_in_any_order_and_each_reaches_its_call():
    requests: list[ApprovalRequest] = []

    async def decide(request: ApprovalRequest) -> None:
        requests.append(request)
        if len(requests) == 10:
            for each in reversed(requests):
                await (each.accept() if int(each.tool_args["text"]) % 2 else each.reject())

    async with serving() as (server, runner), client(server, decide):
        results = await asyncio.gather(*(echo(runner, str(i)) for i in range(10)), return_exceptions=True)

    assert [str(result) for result in results] == [
        str(i) if i % 2 else "call to scripted.echo was rejected" for i in range(10)
    ]


async def test_a_call_without_a_client_fails_at_once():
    async with serving() as (server, runner):
        reason = "call to scripted.echo was not approved: no approval client is connected"
        assert await refusal(runner) == reason
        async with client(server, accept):
            assert await echo(runner, "next") == "next"
        assert await refusal(runner) == reason


async def test_a_client_that_goes_away_fails_the_requests_it_has():
    asked = asyncio.Event()

    async def ask(_: ApprovalRequest) -> None:
        asked.set()

    async with serving() as (server, runner):
        going = client(server, ask)
        await going.connect()
        call = asyncio.create_task(refusal(runner))
        async with asyncio.timeout(WAIT):
            await asked.wait()
            await going.disconnect()
            assert await call == ("call to scripted.echo was not approved: the approval client disconnected")
        async with client(server, accept):
            assert await echo(runner, "next") == "next"


async def test_a_second_client_is_turned_away_and_the_first_one_stays():
    async with serving() as (server, runner), client(server, accept):
        second = client(server, ApprovalRequest.reject)
        with pytest.raises(RuntimeError, match="another approval client is connected"):
            await second.connect()
        await second.disconnect()

        assert await echo(runner, "a") == "a"


async def test_a_client_connects_once_and_again_after_disconnecting():
    async with serving() as (server, runner):
        again = client(server, accept)
        async with again:
            with pytest.raises(RuntimeError, match="the approval client is already connected"):
                await again.connect()
        await again.disconnect()
        async with again:
            assert await echo(runner, "a") == "a"


async def test_a_client_that_can_not_connect_says_where(monkeypatch: pytest.MonkeyPatch):
    async with serving() as (server, _):
        port = server.port or 0
        token_file("tool-server", port).write_text("wrong")
        with pytest.raises(
            RuntimeError, match=f"can't connect to the approval channel at http://localhost:{port}: 401"
        ):
            await client(server, accept).connect()
    with pytest.raises(RuntimeError, match=f"can't connect to the approval channel at http://localhost:{port}"):
        await ApprovalClient(accept, port=port).connect()


async def test_a_decision_after_the_connection_has_gone_has_no_effect(caplog: pytest.LogCaptureFixture):
    requests: asyncio.Queue[ApprovalRequest] = asyncio.Queue()
    async with serving() as (server, runner):
        async with client(server, requests.put):
            call = asyncio.create_task(refusal(runner))
            async with asyncio.timeout(WAIT):
                request = await requests.get()
        assert "client disconnected" in await call
        assert request.state == "cancelled"
        assert not await request.accept()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_callback_is_cancelled_when_the_connection_has_gone_and_does_no_harm_if_it_raises(
    caplog: pytest.LogCaptureFixture,
):
    asked, failed = asyncio.Event(), asyncio.Event()

    async def decide(_: ApprovalRequest) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            failed.set()
            raise ValueError("too late")

    async with asyncio.timeout(WAIT), serving() as (server, runner), client(server, decide):
        call = asyncio.create_task(refusal(runner))
        await asked.wait()
        await server.stop()
        await failed.wait()
        assert await call
    assert "the approval callback failed" in caplog.text
    assert "a background task failed" not in caplog.text


async def test_messages_that_are_no_answers_are_ignored():
    async with serving() as (server, runner):
        endpoint = Endpoint("tool-server", "localhost", server.port)
        async with endpoint.session() as session, session.ws_connect("/approval") as websocket:
            call = asyncio.create_task(echo(runner, "a"))
            request = await websocket.receive_json(timeout=WAIT)
            for garbage in ("", "no JSON", "[]", "{}", "1", "null", '{"id": 1, "result": true}', "[" * 100_000):
                await websocket.send_str(garbage)
            await websocket.send_bytes(b"\0\xff")
            await websocket.send_json(answer("unknown", ACCEPTED))
            await websocket.send_json({"id": request["id"], "result": "yes"})
            await websocket.send_json(answer(request["id"], ACCEPTED))
            assert await call == "a"


async def test_a_request_on_the_wire_is_json_rpc():
    async with serving() as (server, runner):
        endpoint = Endpoint("tool-server", "localhost", server.port)
        async with endpoint.session() as session, session.ws_connect("/approval") as websocket:
            call = asyncio.create_task(refusal(runner))
            request = await websocket.receive_json(timeout=WAIT)
            await websocket.send_json(
                answer(request["id"], NoDecision(False, "nobody", "the approver failed: no reason"))
            )
            assert await call == "call to scripted.echo was not approved: the approver failed: no reason"
            ended = await websocket.receive_json(timeout=WAIT)

    assert request == {
        "jsonrpc": "2.0",
        "id": request["id"],
        "method": "approve",
        "params": {
            "server_name": "scripted",
            "tool_name": "echo",
            "tool_args": {"text": "refused"},
            "server_params": servers.scripted(),
            "output_mark": 0,
            "kind": "tool",
            "created_at": request["params"]["created_at"],
            "expires_at": request["params"]["expires_at"],
        },
    }
    assert ended == {
        "jsonrpc": "2.0",
        "method": "decided",
        "params": {
            "id": request["id"],
            "state": "rejected",
            "by": "nobody",
            "reason": "the approver failed: no reason",
        },
    }
    created_at, expires_at = (datetime.fromisoformat(request["params"][key]) for key in ("created_at", "expires_at"))
    assert expires_at - created_at == timedelta(seconds=WAIT)
    assert created_at.utcoffset() == timedelta(0)


async def test_a_withdrawn_call_is_forgotten():
    requests: asyncio.Queue[ApprovalRequest] = asyncio.Queue()
    async with serving() as (server, runner), client(server, requests.put):
        call = asyncio.create_task(echo(runner, "withdrawn"))
        async with asyncio.timeout(WAIT):
            withdrawn = await requests.get()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await withdrawn.accept()
            call = asyncio.create_task(echo(runner, "next"))
            await (await requests.get()).accept()
            assert await call == "next"


async def test_a_channel_that_requires_no_approval_asks_nobody():
    assert await ApprovalChannel().request("server", "tool", {})


async def test_a_channel_without_a_client_is_closed():
    channel = ApprovalChannel(approval_required=True)
    assert not channel.open
    await channel.join(timeout=1)
    await channel.disconnect()
    with pytest.raises(RuntimeError, match="no approval client is connected"):
        await channel.request("server", "tool", {})


async def test_a_reason_for_a_rejection_is_the_error_of_the_request():
    async def decide(request: ApprovalRequest) -> None:
        await request.reject("not on Sundays")

    channel = ApprovalChannel(approval_required=True)
    async with serving_channel(channel) as port, asyncio.timeout(WAIT), ApprovalClient(decide, port=port):
        with pytest.raises(ToolRunnerError, match="not on Sundays"):
            await channel.request("server", "tool", {})
        second = ApprovalClient(accept, port=port)
        await second.connect()  # this server leaves it to the channel to turn it away
        with pytest.raises(ToolRunnerError, match="not on Sundays"):
            await channel.request("server", "tool", {})
        await second.disconnect()


async def test_joining_a_channel_waits_until_its_client_has_gone():
    channel = ApprovalChannel(approval_required=True)
    async with serving_channel(channel) as port, asyncio.timeout(WAIT):
        async with ApprovalClient(accept, port=port):
            with pytest.raises(TimeoutError):
                await channel.join(timeout=0.05)
            assert channel.open
            assert channel._websocket is not None  # pyright: ignore[reportPrivateUsage]
            await channel._websocket.send_json({"method": "of a later version"})  # pyright: ignore[reportPrivateUsage]
            assert await channel.request("server", "tool", {"a": 1})
        await channel.join()
    assert not channel.open


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        *((answer("1", decision), decision) for decision in (ACCEPTED, REJECTED, NoDecision(False, "nobody", "why"))),
        (answer("1", ApprovalDecision(True, "user", "because")), ACCEPTED),
        (answer("1", ApprovalDecision(False, "user")), ApprovalDecision(False, "application")),
        ({"id": "1", "error": {}}, NoDecision(False, "nobody", "no reason given")),
    ],
)
def test_answers_are_parsed(message: Any, expected: ApprovalDecision):
    found = parse_answer(message)
    assert found == ("1", expected)
    assert type(found[1]) is type(expected)


@pytest.mark.parametrize(
    "message",
    [None, [], "", 1, {}, {"id": 1, "result": True}, {"id": "1"}, {"id": "1", "result": 1}, {"id": "1", "error": "x"}],
)
def test_what_is_no_answer_is_a_value_error(message: object):
    with pytest.raises(ValueError, match="not an answer"):
        parse_answer(message)


def test_a_request_is_no_answer():
    async def respond(_: object) -> None: ...

    with pytest.raises(ValueError, match="not an answer"):
        parse_answer(approve_request(ApprovalRequest("s", "t", {}, respond)))


def test_a_request_reads_like_a_call():
    async def respond(_: object) -> bool:
        return True

    request = ApprovalRequest("server", "tool", {"a": 1, "b": "x"}, respond)

    assert str(request) == "server.tool(a=1, b='x')"
    assert repr(request) == "ApprovalRequest(server.tool(a=1, b='x'))"
    assert request.server_params is None
