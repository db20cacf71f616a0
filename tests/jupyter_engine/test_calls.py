"""Messages of a kernel that is not trusted, to `IncomingCalls`: forged, out of order, repeated, oversized, too many."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from ipybox.audit.recorder import SessionRecorder
from ipybox.guest.tools.protocol import RunRequest
from ipybox.jupyter_engine import calls as module
from ipybox.jupyter_engine.calls import IncomingCalls
from ipybox.tool_exec.approval.request import ApprovalRequest
from ipybox.tool_exec.caller import ToolCaller
from ipybox.tool_exec.server import ToolServer
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio

ID = "0" * 32


class Kernel:
    """The messages that a kernel gets, and the approval requests of its calls."""

    def __init__(self) -> None:
        self.got: asyncio.Queue[tuple[dict[str, Any], bytes]] = asyncio.Queue()
        self.requests: list[ApprovalRequest] = []
        self.calls: IncomingCalls

    async def send(self, data: dict[str, Any], buffer: bytes) -> None:
        await self.got.put((data, buffer))

    async def decide(self, request: ApprovalRequest) -> None:
        self.requests.append(request)
        await request.reject("seen")

    def say(self, *buffers: bytes, **data: Any) -> None:
        self.calls.take(data, tuple(map(memoryview, buffers)))

    async def next(self) -> tuple[dict[str, Any], bytes]:
        async with asyncio.timeout(WAIT):
            return await self.got.get()

    async def reply(self) -> tuple[int, dict[str, Any]]:
        """Returns status and content of the next reply, which has one part."""
        data, buffer = await self.next()
        while data["op"] == "ack":
            data, buffer = await self.next()
        return data["status"], json.loads(buffer)


@pytest_asyncio.fixture
async def kernel() -> AsyncIterator[Kernel]:
    """A kernel whose calls go to a real tool server, which rejects them after it has seen them."""
    kernel = Kernel()
    caller = ToolCaller(token="t", approver=kernel.decide, recorder=SessionRecorder())
    async with ToolServer(port=None, approval_required=True, caller=caller) as server:
        kernel.calls = IncomingCalls(server.accept_kernel_connection, "t", kernel.send)
        yield kernel
        await kernel.calls.close()


def body(text: str = "x") -> bytes:
    call = RunRequest(server_name="s", server_params={}, seal=None, tool_name="t", tool_args={"text": text})
    return json.dumps(call).encode()


async def test_a_call_in_parts_runs_once_whatever_is_repeated(kernel: Kernel) -> None:
    whole = body()
    for _ in range(3):
        kernel.say(whole[10:], op="call", id=ID, n=1, of=2)
    assert kernel.got.empty()
    kernel.say(whole[:10], op="call", id=ID, n=0, of=2)
    for _ in range(3):
        kernel.say(whole, op="call", id=ID, n=0, of=1)

    status, reply = await kernel.reply()
    assert (status, "rejected: seen" in reply["error"]) == (200, True)
    kernel.say(whole, op="call", id=ID, n=0, of=1)  # a replay, after the end
    assert (await kernel.next())[0] == {"op": "ack", "id": ID}
    assert len(kernel.requests) == 1


@pytest.mark.parametrize(
    "data",
    [
        {"op": "call", "id": "../x", "n": 0, "of": 1},
        {"op": "call", "id": ["0"], "n": 0, "of": 1},
        {"op": "call", "id": ID, "n": -1, "of": 1},
        {"op": "call", "id": ID, "n": 1, "of": 1},
        {"op": "call", "id": ID, "n": True, "of": 2},
        {"op": "call", "id": ID, "n": 0, "of": 10**9},
        {"op": "call", "id": ID, "n": 0.0, "of": 1},
        {"op": "call", "id": ID},
        {"op": "withdraw", "id": ID},
        {"op": "got", "id": ID},
        {"op": "reply", "id": ID, "n": 0, "of": 1, "status": 200},
        {"op": ["call"], "id": ID},
        {},
    ],
)
async def test_what_is_not_valid_does_nothing(kernel: Kernel, data: dict[str, Any]) -> None:
    kernel.calls.take(data, (memoryview(body()),))
    kernel.calls.take({**data, "id": ID, "n": 0, "of": 1}, ())  # without its bytes
    kernel.say(b"x" * (module.PART_BYTES + 1), op="call", id=ID, n=0, of=2)

    kernel.say(body(), op="call", id="1" * 32, n=0, of=1)
    await kernel.reply()  # the only one
    assert len(kernel.requests) == 1
    assert kernel.got.empty()


async def test_incomplete_calls_hold_no_more_than_a_limit(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HELD_BYTES", 200)
    monkeypatch.setattr(module, "MAX_CALLS", 3)
    kernel.say(b"x" * 190, op="call", id=ID, n=0, of=2)
    kernel.say(b"x" * 190, op="call", id="1" * 32, n=0, of=2)
    status, reply = await kernel.reply()
    assert (status, "incomplete calls have more than" in reply["error"]) == (429, True)

    for digit in "234":
        kernel.say(b"x", op="call", id=digit * 32, n=0, of=2)
    status, reply = await kernel.reply()
    assert (status, "3 calls at a time" in reply["error"]) == (429, True)

    kernel.say(op="withdraw", id=ID)  # makes room
    kernel.say(body()[:90], op="call", id="5" * 32, n=0, of=2)
    kernel.say(body()[90:], op="call", id="5" * 32, n=1, of=2)
    assert (await kernel.reply())[0] == 200


async def test_what_is_no_call_is_refused_by_the_tool_server(kernel: Kernel) -> None:
    kernel.say(b'{"server_name": 1}', op="call", id=ID, n=0, of=1)
    status, reply = await kernel.reply()

    assert (status, "not a tool call" in reply["error"]) == (400, True)
    assert kernel.requests == []


async def test_a_result_is_sent_again_until_it_has_arrived(kernel: Kernel) -> None:
    kernel.say(body(), op="call", id=ID, n=0, of=1)
    first = await kernel.reply()
    kernel.calls.resend()
    assert await kernel.reply() == first

    kernel.say(op="got", id=ID)
    kernel.calls.resend()
    kernel.say(body(), op="call", id=ID, n=0, of=1)
    assert (await kernel.next())[0]["op"] == "ack"
    assert kernel.got.empty()
