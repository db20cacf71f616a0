"""Calls of an application's functions through the tool server: approval, forged requests, and no function at all."""

import asyncio
from typing import Any

from ipybox.tool_exec.approval.client import ApprovalClient, ApprovalRequest
from ipybox.tool_exec.function_tools import FunctionTools
from ipybox.tool_exec.server import ToolServer
from tests import servers
from tests.servers import WAIT
from tests.tool_exec.test_server import ROOT, WORKSPACE, ask, guest_face, tcp_face

FORGED = "'app' stands for the application's functions and takes no server parameters"


def double(x: int) -> int:
    return 2 * x


def call(tool: str = "double", params: dict[str, Any] | None = None, sealed: str | None = None, **args: Any):
    return {"server_name": "app", "server_params": params or {}, "seal": sealed, "tool_name": tool, "tool_args": args}


async def test_a_function_is_called_on_both_faces_and_no_process_is_started():
    async with ToolServer(port=0, functions=FunctionTools([double])) as server:
        before = servers.descendants()
        for face in (guest_face, tcp_face):
            assert await ask(face(server), "POST", "/run", call(x=2)) == (
                200,
                {"structured": {"result": 4}, "content": []},
            )
        assert servers.descendants() == before


async def test_a_call_needs_an_approval_which_shows_what_will_be_called():
    shown: list[str] = []

    async def decide(request: ApprovalRequest) -> None:
        shown.append(str(request))
        await (request.accept() if request.tool_args["x"] < 3 else request.reject("too much"))

    functions = FunctionTools([double])
    async with (
        ToolServer(port=0, approval_required=True, functions=functions) as server,
        ApprovalClient(decide, port=server.port or 0),
    ):
        accepted = await ask(guest_face(server), "POST", "/run", call(x=2))
        rejected = await ask(guest_face(server), "POST", "/run", call(x=3))

    assert accepted[1]["structured"] == {"result": 4}
    assert rejected == (200, {"error": "call to app.double was rejected: too much"})
    assert shown == ["app.double(x=2)", "app.double(x=3)"]


async def test_a_server_that_code_chooses_can_not_answer_for_functions():
    async with ToolServer(port=None, functions=FunctionTools([double])) as server:
        before = servers.descendants()
        forged = call("echo", servers.scripted(), text="forged")
        assert await ask(guest_face(server), "POST", "/run", forged) == (403, {"error": FORGED})
        assert servers.descendants() == before


async def test_a_confined_kernel_needs_the_seal_of_the_functions():
    functions = FunctionTools([double])
    async with ToolServer(port=None, sealed_workspace=WORKSPACE, functions=functions) as server:
        sealed = servers.registered("app", {}, ROOT)
        status, reply = await ask(guest_face(server), "POST", "/run", call(x=2))
        assert (status, "not registered in this workspace" in reply["error"]) == (403, True)
        status, reply = await ask(guest_face(server), "POST", "/run", call(x=2, sealed=sealed))
        assert (status, reply.get("structured")) == (200, {"result": 4})
        status, reply = await ask(guest_face(server), "POST", "/run", call("echo", servers.scripted(), sealed, text=""))
        assert (status, reply) == (403, {"error": FORGED})


async def test_an_application_without_functions_says_so_and_may_have_a_server_of_that_name():
    async with ToolServer(port=None) as server:
        status, reply = await ask(guest_face(server), "POST", "/run", call(x=2))
        assert status == 200
        assert "the application provides no functions: pass them to CodeExecutor as `tools`" in reply["error"]
        status, reply = await ask(guest_face(server), "POST", "/run", call("echo", servers.scripted(), text="a server"))
        assert (status, reply["content"]) == (200, [{"type": "text", "text": "a server"}])


async def test_a_function_is_cancelled_when_the_connection_of_its_call_ends():
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.sleep(WAIT)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with ToolServer(port=None, functions=FunctionTools([wait])) as server, asyncio.timeout(WAIT):
        asking = asyncio.create_task(ask(guest_face(server), "POST", "/run", call("wait")))
        await begun.wait()
        asking.cancel()
        await cancelled.wait()
        await asyncio.wait([asking])
