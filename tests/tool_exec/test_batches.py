"""Batches at the tool server: real MCP servers that fail and die, limits, and kernels that forge requests."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ipybox.audit.recorder import SessionRecorder
from ipybox.guest.tools.client import ToolRunner
from ipybox.guest.tools.protocol import RUN_MANY_PATH, RunReply
from ipybox.tool_exec import dispatch
from ipybox.tool_exec.approval.approvals import Approvals
from ipybox.tool_exec.approval.client import ApprovalClient, ApprovalRequest
from ipybox.tool_exec.approval.request import accepts_batches
from ipybox.tool_exec.approval.server import ApprovalChannel
from ipybox.tool_exec.dispatch import ToolCaller
from ipybox.tool_exec.function_tools import FunctionTools
from ipybox.tool_exec.server import ToolServer
from ipybox.workspace.registrations import PinnedTool, locked_registration, record_file
from ipybox.workspace.seal import SealVerifier, seal
from tests import servers
from tests.servers import WAIT
from tests.tool_exec.test_server import ROOT, WORKSPACE, ask, guest_face


@pytest.fixture
async def server() -> AsyncIterator[ToolServer]:
    async with ToolServer(port=0) as running:
        yield running


def runner(server: ToolServer, *flags: str) -> ToolRunner:
    return ToolRunner("scripted", servers.scripted(*flags), port=server.port or 0)


async def replies(server: ToolServer, tool: str, calls: list[dict[str, Any]], *flags: str) -> list[RunReply]:
    async with asyncio.timeout(WAIT):
        return await runner(server, *flags).arun_many(tool, calls)


NO_CALL: dict[str, Any] = {}


def request(calls: Any, tool: Any = "echo", **others: Any) -> dict[str, Any]:
    named = {"server_name": "scripted", "server_params": servers.scripted(), "seal": None, "tool_name": tool}
    return {**named, "params_list": calls, "concurrency": None, "output_mark": 0, **others}


async def test_calls_in_flight_when_their_server_dies_are_not_repeated(server: ToolServer, tmp_path: Path):
    log = tmp_path / "log"
    calls = [{"text": "a"}, {"text": "b", "dies": True}, {"text": "c"}]
    first, lost, last = await replies(server, "record", calls, "--log", str(log))

    assert first.get("content") == [{"type": "text", "text": "a"}]
    assert last.get("content") == [{"type": "text", "text": "c"}]
    assert "lost the connection" in lost.get("error", ""), lost
    assert [line for line in log.read_text().splitlines() if line.startswith("call")] == ["call a", "call b", "call c"]


async def test_a_server_that_can_not_start_is_an_error_of_each_call(server: ToolServer):
    calls = [{"text": "a"}] * 2
    broken = ToolRunner("broken", {"command": "/nonexistent"}, port=server.port or 0)
    async with asyncio.timeout(WAIT):
        errors = [reply.get("error", "") for reply in await broken.arun_many("echo", calls)]
    assert len(errors) == 2
    assert all("MCP server 'broken'" in error for error in errors)


async def test_ten_thousand_calls_are_made_in_order():
    made: list[int] = []

    async def put(number: int) -> int:
        made.append(number)
        return number

    async with ToolServer(port=0, functions=FunctionTools([put])) as server, asyncio.timeout(2 * WAIT):
        app = ToolRunner("app", {}, port=server.port or 0)
        answers = await app.arun_many("put", [{"number": number} for number in range(10_000)])
    assert made == [*range(10_000)]
    assert [answer.get("structured") for answer in answers] == [{"result": number} for number in range(10_000)]


async def test_reads_run_concurrently_and_writes_one_after_the_other(tmp_path: Path):
    together = asyncio.Barrier(3)

    async def meet() -> int:
        return await together.wait()

    running: list[int] = []

    async def alone(number: int) -> int:
        running.append(number)
        await asyncio.sleep(0)
        running.remove(number)
        return len(running)

    root = tmp_path / "mcptools"
    sealed = seal("app", {}, root)
    with locked_registration(record_file(root.resolve() / "app")) as registration:
        registration.write(b"", "", sealed, {}, {"meet": PinnedTool("m", ("read_only",))})
    caller = ToolCaller(
        token="t" * 32,
        approvals=ApprovalChannel(),
        recorder=SessionRecorder(),
        registrations=SealVerifier(tmp_path),
    )
    functions = FunctionTools([meet, alone])
    async with ToolServer(port=0, caller=caller, functions=functions) as server, asyncio.timeout(WAIT):
        app = ToolRunner("app", {}, port=server.port or 0, seal=sealed)
        met = await app.arun_many("meet", [{}] * 3)
        apart = await app.arun_many("alone", [{"number": number} for number in range(3)])
    assert sorted(str(answer.get("structured")) for answer in met) == [f"{{'result': {n}}}" for n in range(3)]
    assert [answer.get("structured") for answer in apart] == [{"result": 0}] * 3


async def test_no_call_of_an_accepted_batch_starts_after_its_cell():
    approvals, made, begun, ended = Approvals(), list[int](), asyncio.Event(), asyncio.Event()

    async def put(number: int) -> int:
        made.append(number)
        if number == 1:
            begun.set()
            await ended.wait()
        return number

    @accepts_batches
    async def accept(request: ApprovalRequest) -> None:
        await request.accept()

    caller = ToolCaller(token="t" * 32, approvals=approvals, recorder=SessionRecorder())
    async with ToolServer(port=0, caller=caller, functions=FunctionTools([put])) as server, asyncio.timeout(WAIT):
        app = ToolRunner("app", {}, port=server.port or 0)
        async with approvals.cell(accept):
            batch = asyncio.create_task(app.arun_many("put", [{"number": number} for number in range(3)]))
            await begun.wait()
        async with approvals.cell(accept):  # the next cell, whose approver has not seen them
            ended.set()
            first, second, third = await batch
    assert (made, first.get("structured"), second.get("structured")) == ([0, 1], {"result": 0}, {"result": 1})
    assert third.get("error") == "call to app.put was not made: the batch was cancelled before this call"


async def test_answers_take_bounded_memory(server: ToolServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dispatch, "MAX_RESULT_BYTES", 10_000)
    first, second, third = await replies(server, "echo", [{"text": "x" * 6000}, {"text": "y" * 6000}, {"text": "z"}])

    assert first.get("content") == [{"type": "text", "text": "x" * 6000}]
    assert second.get("error") == (
        "scripted.echo was called, but its answer is omitted, because the batch's answers exceed 9.8 KiB: don't repeat "
        "the call if it writes"
    )
    assert third.get("content") == [{"type": "text", "text": "z"}]


@pytest.mark.parametrize(
    "forged",
    [
        request(NO_CALL),
        request([1]),
        request([NO_CALL] * 10_001),
        request([NO_CALL], concurrency=0),
        request([NO_CALL], concurrency=65),
        request([NO_CALL], concurrency=1.5),
        request([NO_CALL], tool=7),
        {"server_name": "scripted"},
    ],
)
async def test_a_request_that_no_client_sends_is_refused(server: ToolServer, forged: dict[str, Any]):
    before = servers.descendants()
    status, reply = await ask(guest_face(server), "POST", RUN_MANY_PATH, forged)
    assert (status, reply) == (400, {"error": "not a tool call: see ipybox.guest.tools.protocol"})
    assert servers.descendants() == before


async def test_a_batch_needs_the_seal_of_its_server():
    async with ToolServer(port=None, sealed_workspace=WORKSPACE) as server:
        calls = [{"text": "a"}, {"text": "b"}]
        status, reply = await ask(guest_face(server), "POST", RUN_MANY_PATH, request(calls))
        assert (status, "not registered in this workspace" in reply["error"]) == (403, True)
        sealed = servers.registered("scripted", servers.scripted(), ROOT)
        status, reply = await ask(guest_face(server), "POST", RUN_MANY_PATH, request(calls, seal=sealed))
        assert (status, [each["content"][0]["text"] for each in reply["replies"]]) == (200, ["a", "b"])


async def test_an_approval_client_decides_on_each_call():
    seen: list[str] = []

    async def decide(request: ApprovalRequest) -> None:
        seen.append(request.tool_args["text"])
        await (request.accept() if request.tool_args["text"] != "b" else request.reject("no"))

    async with (
        ToolServer(port=0, approval_required=True) as server,
        ApprovalClient(decide, port=server.port or 0),
    ):
        a, b, c = await replies(server, "echo", [{"text": text} for text in "abc"])
    assert seen == ["a", "b", "c"]
    assert ("error" in a, b.get("error"), "error" in c) == (False, "call to scripted.echo was rejected: no", False)


async def test_a_request_that_expires_rejects_all_calls_of_a_batch():
    @accepts_batches
    async def wait(_: ApprovalRequest) -> None:
        await asyncio.Event().wait()

    approvals = Approvals(timeout=0.1)
    caller = ToolCaller(token="t" * 32, approvals=approvals, recorder=SessionRecorder())
    async with ToolServer(port=0, caller=caller) as server, approvals.cell(wait):
        answers = await replies(server, "echo", [{"text": "a"}, {"text": "b"}])
    assert {each.get("error") for each in answers} == {
        "call to scripted.echo was not approved: the approval request expired after 0.1 s"
    }
