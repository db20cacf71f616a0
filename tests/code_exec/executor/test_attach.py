"""People who use the kernel of an executor: what they can do, what they can't, and what the agent learns."""

import asyncio
from typing import Any

import aiohttp
import pytest

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.code_exec.lifecycle import CAME, LEFT
from ipybox.errors import ExecutionCancelledError
from ipybox.kernel_mgr.attach.relay import KernelRelay
from tests.code_exec.cells import begun, text
from tests.code_exec.person import person_at, requests
from tests.conftest import Mode
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: A cell that runs until it is interrupted.
WAITS = "print('begun', flush=True)\nimport time\nwhile True: time.sleep(0.01)"


async def test_a_person_and_the_agent_share_the_state_and_the_agent_learns_of_it_once(executor: CodeExecutor):
    await executor.execute("x = 41")  # takes the notices of earlier tests, too
    async with executor.attach() as relay:
        assert (await executor.execute("x")).notices == []  # nobody has come yet
        async with person_at(relay) as person:
            reply = await person.until("execute_reply", await person.execute("x += 1"))
            assert reply["content"]["status"] == "ok"
            result = await executor.execute("print('seen')\nx")
            assert (result.text, result.notices) == ("seen\n42", [CAME])
            await person.until("stream", text="seen\n")
            async with executor.attach() as second, person_at(second) as other:
                await other.until("execute_reply", await other.execute("x"))
            assert (await executor.execute("x")).notices == []  # one of two is still there
    with pytest.raises(CodeExecutionError) as caught:
        await executor.execute("1/0")
    assert caught.value.notices == [LEFT]
    assert (await executor.execute("x")).notices == []


async def test_only_requests_with_the_token_and_of_no_web_page_are_answered(executor: CodeExecutor):
    await executor.execute("1")  # takes the notices of earlier tests
    async with executor.attach() as relay:
        token = {"Authorization": f"token {relay.token}"}
        channels = f"/api/kernels/{relay.kernel_id}/channels"
        cases: list[tuple[dict[str, str], str, int]] = [
            ({"X-Nothing": ""}, "", 401),
            ({"Authorization": f"token {relay.token[:-1]}"}, "", 401),
            ({"Authorization": "token é"}, "", 401),
            ({"X-Nothing": ""}, f"?token={relay.token}", 200),
            ({"Authorization": f"Bearer {relay.token}"}, "", 200),
            (token | {"Origin": "https://example.org"}, "", 403),
            (token | {"Origin": "http://["}, "", 403),
            (token | {"Host": "example.org"}, "", 403),
        ]
        for headers, query, status in cases:
            async with requests(relay, **headers) as http, http.get(f"/api/kernels{query}") as answer:
                assert answer.status == status, (headers, query)
            if status != 200:
                async with requests(relay, **headers) as http:
                    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                        await http.ws_connect(f"{channels}{query}")
                    assert caught.value.status == status
    assert (await executor.execute("1")).notices == []


async def test_no_client_ends_restarts_or_starts_a_kernel(executor: CodeExecutor):
    await executor.execute("kept = 7")
    async with executor.attach() as relay, person_at(relay) as person:
        for method, path, status in (
            ("POST", f"{person.kernel}/restart", 403),
            ("POST", "/api/contents", 403),
            ("POST", "/api/terminals", 403),
            ("GET", "/api/contents/secret", 404),
            ("GET", "/api/kernels/another", 404),
        ):
            async with person.http.request(method, path) as answer:
                assert answer.status == status, path
                assert (await answer.json())["message"]
        for path in (person.kernel, person.kernel.replace("kernels", "sessions")):  # else JupyterLab would never stop
            async with person.http.delete(path) as answer:
                assert answer.status == 204
        for path in ("/api/kernels", "/api/sessions"):  # the same one: JupyterLab joins only what it has started
            async with person.http.post(path, json={"name": "python3"}) as answer:
                assert (answer.status, (await answer.json())["id"]) == (201, person.kernel.rpartition("/")[2])
        for channel in ("shell", "control"):
            await person.send("shutdown_request", channel, restart=False)
        await person.websocket.send_str("[no message")
        await person.websocket.send_bytes(b"\0" * 100)
        await person.until("kernel_info_reply", await person.send("kernel_info_request"))
    assert await text(executor, "kept") == "7"


async def test_a_cell_of_the_agent_waits_for_the_persons_and_has_not_begun_at_its_time_limit(executor: CodeExecutor):
    async with executor.attach() as relay, person_at(relay) as person:
        await person.execute("mine = 5")
        cell = await person.execute(WAITS)
        await person.until("stream", cell, text="begun\n")
        with pytest.raises(TimeoutError, match="the person"):
            await executor.execute("late = 1", timeout=0.2)

        waiting = asyncio.create_task(executor.execute("'late' in globals(), mine"))
        async with person.http.post(f"{person.kernel}/interrupt") as answer:
            assert answer.status == 204
        reply = await person.until("execute_reply", cell)
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        assert (await waiting).text == "(False, 5)"


async def test_a_person_can_interrupt_the_agents_cell(executor: CodeExecutor):
    async with executor.attach() as relay, person_at(relay) as person:
        task = await begun(executor, WAITS)
        async with person.http.post(f"{person.kernel}/interrupt") as answer:
            assert answer.status == 204
        with pytest.raises(CodeExecutionError, match="KeyboardInterrupt"):
            await task


async def test_a_person_joins_while_the_agents_cell_runs_and_comes_next(executor: CodeExecutor):
    async with executor.attach() as relay:
        task = await begun(executor, WAITS)
        async with person_at(relay) as person:
            cell = await person.execute("next = 1")
            executor.cancel()
            with pytest.raises(ExecutionCancelledError):
                await task
            await person.until("execute_reply", cell)
        assert await text(executor, "next") == "1"


async def test_displays_that_run_in_a_front_end_do_not_leave_the_sandbox(executor: CodeExecutor, mode: Mode):
    async with executor.attach() as relay, person_at(relay) as person:
        code = "from IPython.display import display\ndisplay({'text/html': '<script>', 'text/plain': 'it'}, raw=True)"
        shown = await person.until("display_data", await person.execute(code))
        expected = {"text/plain": "it"} if mode.sandbox else {"text/html": "<script>", "text/plain": "it"}
        assert shown["content"]["data"] == expected
        code = "from comm import create_comm; create_comm(target_name='t')"
        cell = await person.execute(code)
        types: list[str] = []
        state = None
        while state != "idle":  # the kernel's last message on the channel of outputs
            message: dict[str, Any] = await asyncio.wait_for(person.websocket.receive_json(), WAIT)
            if message["parent_header"].get("msg_id") == cell:
                types.append(message["msg_type"])
                state = message["content"].get("execution_state")
        assert ("comm_open" in types) is not mode.sandbox


async def test_clients_are_disconnected_and_the_port_is_closed_at_the_end(executor: CodeExecutor):
    async with executor.attach() as relay, requests(relay) as http:
        websocket = await http.ws_connect(f"/api/kernels/{relay.kernel_id}/channels")
        await relay.close()
        await until_closed(websocket)
    await expect_refused(relay)


@pytest.mark.parametrize("how", ["reset", "death"])
async def test_the_end_of_the_kernel_ends_it(executor: CodeExecutor, how: str):
    async with executor.attach() as relay, person_at(relay) as person:
        if how == "reset":
            await executor.reset()
        else:
            with pytest.raises(CodeExecutionError):
                await executor.execute("import os; os._exit(1)")
        await asyncio.wait_for(relay.ended.wait(), WAIT)
        await until_closed(person.websocket)
        died = "the kernel died: its process exited with code 1"
        assert relay.end_reason == {"reset": "the kernel was reset", "death": died}[how]
        await expect_refused(relay)
    await executor.execute("1")


async def until_closed(websocket: aiohttp.ClientWebSocketResponse) -> None:
    async with asyncio.timeout(WAIT):
        while (await websocket.receive()).type not in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSE):
            pass


async def expect_refused(relay: KernelRelay) -> None:
    async with requests(relay) as http:
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.get("/api")


async def test_no_number_of_cancellations_keeps_the_port_open(executor: CodeExecutor):
    relays: list[KernelRelay] = []

    async def join() -> None:
        async with executor.attach() as relay:
            relays.append(relay)
            joined.set()
            await asyncio.Event().wait()

    for turns in range(6):
        joined = asyncio.Event()
        task = asyncio.create_task(join())
        async with asyncio.timeout(WAIT):
            await joined.wait()
        task.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await executor.execute("1")
    for relay in relays:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", relay.port)
