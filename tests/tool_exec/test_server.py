"""The two faces of the tool server, asked through connections of kernels and over TCP."""

import asyncio
import json
import socket
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ipybox.audit.recorder import SessionRecorder
from ipybox.guest.tools.client import ToolRunner, ToolRunnerError, reset
from ipybox.guest.tools.protocol import INSTALL_PATH, MAX_REQUEST_BYTES, SHELL_PATH
from ipybox.support.endpoint import Endpoint
from ipybox.support.tokens import find_token, token_file
from ipybox.tool_exec import http_api, kernel_requests
from ipybox.tool_exec.approval.client import ApprovalClient, ApprovalRequest
from ipybox.tool_exec.approval.server import ApprovalChannel
from ipybox.tool_exec.dispatch import ToolCaller
from ipybox.tool_exec.server import ToolServer
from ipybox.workspace.seal import seal
from tests import servers
from tests.conftest import Fifo
from tests.servers import WAIT, registered

WORKSPACE = Path("/workspace")
ROOT = WORKSPACE / "mcptools"

Face = Callable[[ToolServer], Endpoint]


def guest_face(server: ToolServer, token: str | None = None) -> Endpoint:
    """The way of kernel code: through connections that the server is given."""

    def dial() -> socket.socket:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        server.accept_kernel_connection(theirs)
        return ours

    return Endpoint("tool-server", token=token or server.kernel_token, dial=dial)


def tcp_face(server: ToolServer) -> Endpoint:
    return Endpoint("tool-server", "localhost", server.port)


@pytest.fixture
async def server() -> AsyncIterator[ToolServer]:
    async with ToolServer(port=0) as running:
        yield running


@pytest.fixture(params=[guest_face, tcp_face], ids=["guest", "tcp"])
def face(request: pytest.FixtureRequest) -> Face:
    return request.param


def call(
    tool: str = "echo", params: dict[str, Any] | None = None, sealed: str | None = None, **args: Any
) -> dict[str, Any]:
    return {
        "server_name": "scripted",
        "server_params": servers.scripted() if params is None else params,
        "seal": sealed,
        "tool_name": tool,
        "tool_args": args,
    }


async def ask(
    endpoint: Endpoint,
    method: str,
    path: str,
    json: object = None,
    headers: dict[str, str] | None = None,
    data: bytes = b"",
) -> tuple[int, Any]:
    async with (
        asyncio.timeout(WAIT),
        endpoint.session() as session,
        session.request(method, path, json=json, headers=headers, data=data or None) as response,
    ):
        return response.status, await response.json(content_type=None) if response.status != 404 else None


async def test_a_tool_runs_on_every_face(server: ToolServer, face: Face):
    status, reply = await ask(face(server), "POST", "/run", call(text="ä"))

    assert status == 200
    assert reply == {"structured": None, "content": [{"type": "text", "text": "ä"}]}


async def test_an_error_of_a_tool_is_a_reply(server: ToolServer):
    assert await ask(guest_face(server), "POST", "/run", call("fail", text="broken")) == (200, {"error": "broken"})


async def test_a_server_that_can_not_be_started_is_a_reply(server: ToolServer):
    status, reply = await ask(guest_face(server), "POST", "/run", call(params={"command": "no-such-command"}))

    assert status == 200
    assert "'scripted'" in reply["error"]
    assert "no-such-command" in reply["error"]


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/reset"), ("GET", "/status"), ("GET", "/approval"), ("GET", "/")]
)
async def test_the_guest_can_do_nothing_else(server: ToolServer, method: str, path: str):
    assert (await ask(guest_face(server), method, path))[0] == 404


async def test_the_application_sees_the_status_and_resets(server: ToolServer):
    endpoint = tcp_face(server)
    assert await ask(endpoint, "GET", "/status") == (200, {"servers": [], "approval_client": False})
    await ask(endpoint, "POST", "/run", call(text="x"))
    assert await ask(endpoint, "GET", "/status") == (200, {"servers": ["scripted"], "approval_client": False})
    assert await ask(endpoint, "PUT", "/reset") == (200, {})
    assert await ask(endpoint, "GET", "/status") == (200, {"servers": [], "approval_client": False})


async def test_each_face_has_a_token_of_its_own(server: ToolServer):
    guest, application = server.kernel_token, find_token("tool-server", server.port or 0)
    assert application is not None
    assert guest != application

    for token in ("wrong", application):
        assert (await ask(guest_face(server, token), "POST", "/run", call(text="x")))[0] == 401
    for token in ("wrong", guest):
        endpoint = Endpoint("tool-server", "localhost", server.port, token)
        for method, path in (("POST", "/run"), ("PUT", "/reset"), ("GET", "/status"), ("GET", "/approval")):
            assert (await ask(endpoint, method, path))[0] == 401


async def test_a_request_without_a_token_is_refused(server: ToolServer):
    async with aiohttp.ClientSession() as session:
        for headers in ({}, {"Authorization": ""}, {"Authorization": "token "}, {"Authorization": "token \udcff"}):
            async with session.get(f"http://localhost:{server.port}/status", headers=headers) as response:
                assert response.status == 401
                assert "token is missing or wrong" in await response.text()


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost.evil.example"},
        {"Host": "10.0.0.1"},
        {"Host": ""},
        {"Host": "[::"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost"},
    ],
    ids=str,
)
async def test_what_a_web_page_could_send_is_refused_even_with_the_token(
    server: ToolServer, face: Face, headers: dict[str, str]
):
    for method, path in (("POST", "/run"), ("PUT", "/reset"), ("GET", "/approval")):
        assert (await ask(face(server), method, path, headers=headers))[0] == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "localhost:1234", "127.0.0.1:1234"])
async def test_all_names_of_this_machines_loopback_are_accepted(server: ToolServer, host: str):
    assert (await ask(tcp_face(server), "GET", "/status", headers={"Host": host}))[0] == 200


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"no JSON", id="no_json"),
        pytest.param(b"\xff\xfe", id="no_text"),
        pytest.param(b"[" * 100_000, id="nested_too_deeply"),
        pytest.param(b"[]", id="no_object"),
        pytest.param(b"{}", id="empty"),
        *(pytest.param(json.dumps({**call(), key: 1}).encode(), id=key) for key in call()),
        pytest.param(json.dumps(call() | {"tool_name": "\ud800"}).encode(), id="half_a_pair"),
        pytest.param(
            json.dumps(call() | {"tool_args": {"\udfff": ""}}, ensure_ascii=False).encode(errors="surrogatepass"),
            id="half_a_pair_as_it_is",
        ),
    ],
)
async def test_what_is_no_tool_call_is_refused(server: ToolServer, data: bytes):
    status, reply = await ask(
        guest_face(server), "POST", "/run", data=data, headers={"Content-Type": "application/json"}
    )
    assert (status, reply) == (400, {"error": "not a tool call: see ipybox.guest.tools.protocol"})


@pytest.mark.parametrize(
    ("headers", "data", "status", "error"),
    [
        pytest.param({"Content-Encoding": "gzip"}, b"{}", 415, "the request is compressed", id="compressed"),
        pytest.param({}, b" " * 3000, 413, "the request is 2.9 KiB; the limit is 2 KiB", id="large"),
    ],
)
async def test_a_call_that_could_cost_too_much_is_refused_with_the_reason(
    server: ToolServer,
    face: Face,
    headers: dict[str, str],
    data: bytes,
    status: int,
    error: str,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(http_api, "MAX_REQUEST_BYTES", 2048)
    answered, reply = await ask(face(server), "POST", "/run", data=data, headers=headers)

    assert answered == status
    assert reply["error"].startswith(f"the tool server refused the call: {error}")


@pytest.mark.parametrize(
    ("number", "reason"),
    [(number, f"{number} is not a finite number") for number in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999")]
    + [("9" * 4301, "a number has more than 4,300 digits")],
    ids=lambda text: text[:10],
)
async def test_a_number_that_rules_can_not_compare_is_refused(server: ToolServer, face: Face, number: str, reason: str):
    data = json.dumps(call(amounts=[0.5, "NUMBER"])).replace('"NUMBER"', number).encode()

    assert await ask(face(server), "POST", "/run", data=data) == (
        400,
        {"error": f"the tool server refused the call: {reason}: pass it as text"},
    )


@pytest.mark.parametrize(("text", "valid"), [("\U0001f600", True), ("\ud83d", False)])
async def test_escaped_characters_are_accepted_and_halves_of_them_are_not(server: ToolServer, text: str, valid: bool):
    data = json.dumps(call(text=text)).encode()
    assert b"\\ud83d" in data

    status, reply = await ask(guest_face(server), "POST", "/run", data=data)

    assert status == (200 if valid else 400)
    assert (text in json.dumps(reply, ensure_ascii=False)) == valid


async def test_packages_are_installed_only_where_that_is_offered(server: ToolServer):
    async with (
        asyncio.timeout(WAIT),
        guest_face(server).session() as session,
        session.post(INSTALL_PATH, json={"package_name": "x"}) as response,
    ):
        reply = await response.json()

    assert response.status == 404
    assert reply["error"].endswith("installing packages from cells is not enabled")


async def test_shell_commands_are_requested_only_where_approvals_of_them_are_enabled(server: ToolServer):
    body = {"tool_name": "shell", "tool_args": {"cmd": "id"}, "output_mark": 0}
    assert await ask(guest_face(server), "POST", SHELL_PATH, body) == (404, None)
    status, reply = await ask(guest_face(server), "POST", SHELL_PATH, {**body, "tool_name": "echo"})
    assert (status, reply) == (400, {"error": "not a shell command: see ipybox.guest.tools.protocol"})


async def test_a_package_is_named_in_few_words(server: ToolServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_api, "MAX_REQUEST_BYTES", 1000)
    data = json.dumps({"package_name": "x" * 2000}).encode()

    status, reply = await ask(guest_face(server), "POST", INSTALL_PATH, data=data)

    assert status == 413
    assert "; the limit is " in reply["error"]


async def test_a_call_of_unknown_length_is_refused(server: ToolServer):
    async with guest_face(server).session() as session, session.post("/run", data=b"{}", chunked=True) as response:
        assert response.status == 411
        assert await response.json() == {
            "error": "the tool server refused the call: the request does not state its length"
        }


async def test_a_call_with_values_without_end_is_refused(server: ToolServer):
    runner = ToolRunner("scripted", servers.scripted(), port=server.port or 0)
    with pytest.raises(ToolRunnerError, match="the request contains more than 3,000,000 values: pass them as text"):
        await runner.run("echo", {"text": [0] * 3_000_001})
    assert len(str(await runner.run("echo", {"text": "a,b;" * 800_000}))) == 3_200_000


async def test_a_large_body_that_does_not_arrive_gives_way(server: ToolServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_api, "BODY_TIMEOUT", 0.2)
    head = f"POST /run HTTP/1.1\r\nHost: localhost\r\nAuthorization: token {server.kernel_token}\r\n"
    dial = guest_face(server).dial
    assert dial is not None
    with dial() as connection:
        connection.sendall(f"{head}Content-Length: 1000000\r\n\r\n{{".encode())
        status, reply = await ask(guest_face(server), "POST", "/run", call(text="x" * 100_000))
        assert (status, len(reply["content"][0]["text"])) == (200, 100_000)
        async with asyncio.timeout(WAIT):
            answer = await asyncio.get_running_loop().sock_recv(connection, 1000)
        assert b" 408 " in answer


async def test_large_calls_that_wait_for_a_decision_keep_no_others_waiting():
    asked: list[ApprovalRequest] = []
    all_asked = asyncio.Event()

    async def decide(request: ApprovalRequest) -> None:
        if len(request.tool_args["text"]) > 100_000:
            asked.append(request)
            if len(asked) == 12:
                all_asked.set()
        else:
            await request.accept()

    async with (
        asyncio.timeout(WAIT),
        ToolServer(port=0, approval_required=True) as server,
        ApprovalClient(decide, port=server.port or 0),
        asyncio.TaskGroup() as group,
    ):
        waiting = [
            group.create_task(ask(guest_face(server), "POST", "/run", call(text="x" * 200_000))) for _ in range(12)
        ]
        assert (await ask(guest_face(server), "POST", "/run", call(text="x" * 90_000)))[0] == 200
        await all_asked.wait()
        for request in asked:
            await request.accept()

    assert [each.result()[0] for each in waiting] == [200] * 12


async def test_large_calls_have_a_bound_together_and_run_in_turns(server: ToolServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernel_requests, "MAX_LARGE_BYTES", 250_000)

    async with asyncio.timeout(WAIT), asyncio.TaskGroup() as group:
        calls = [
            group.create_task(ask(guest_face(server), "POST", "/run", call(text="x" * 200_000))) for _ in range(12)
        ]
    assert [each.result()[0] for each in calls] == [200] * 12


async def test_large_bodies_that_do_not_arrive_keep_no_other_session_waiting(server: ToolServer):
    other = ToolCaller(token="other", approvals=ApprovalChannel(False, None), recorder=SessionRecorder())
    head = f"POST /run HTTP/1.1\r\nHost: localhost\r\nAuthorization: token {server.kernel_token}\r\n"
    async with AsyncExitStack() as stack, asyncio.timeout(WAIT):
        await stack.enter_async_context(server.serving(other))
        for _ in range(8):
            dial = guest_face(server).dial
            assert dial is not None
            stack.enter_context(dial()).sendall(f"{head}Content-Length: {MAX_REQUEST_BYTES}\r\n\r\n{{".encode())
        face = guest_face(server, other.token)
        assert (await ask(face, "POST", "/run", call(text="x" * 100_000)))[0] == 200


@pytest.mark.parametrize(
    "changed",
    [
        {"server_name": "x" * 100_000},
        {"seal": "a/" * 50_000},
        {"server_params": {"command": "x", "args": ["x"] * 20_000}},
    ],
    ids=["name", "seal", "parameters"],
)
async def test_only_arguments_may_be_large(server: ToolServer, changed: dict[str, Any]):
    status, reply = await ask(guest_face(server), "POST", "/run", {**call(text="x"), **changed})

    assert (status, reply) == (413, {"error": "names and server parameters exceed 64 KiB"})


async def test_unsealed_calls_of_guests_are_refused_where_seals_are_required():
    params = servers.scripted()
    async with ToolServer(port=0, sealed_workspace=WORKSPACE) as server:
        for sealed in (None, "", "0" * 64, seal("other", params, ROOT), seal("scripted", {**params, "args": []}, ROOT)):
            status, reply = await ask(guest_face(server), "POST", "/run", call(text="x", sealed=sealed))
            assert status == 403
            assert reply["error"] == (
                "MCP server 'scripted' is not registered in this workspace with these parameters: register it (again) "
                "from outside the sandbox"
            )
        assert (await ask(tcp_face(server), "GET", "/status"))[1]["servers"] == []
        status, _ = await ask(
            guest_face(server), "POST", "/run", call(text="x", sealed=registered("scripted", params, ROOT))
        )
        assert status == 200


async def test_the_application_needs_no_seal():
    async with ToolServer(port=0, sealed_workspace=WORKSPACE) as server:
        status, reply = await ask(tcp_face(server), "POST", "/run", call(text="x"))

    assert (status, reply["content"][0]["text"]) == (200, "x")


async def test_no_request_for_an_unsealed_call_reaches_the_application():
    requests: list[ApprovalRequest] = []

    async def decide(request: ApprovalRequest) -> None:
        requests.append(request)
        await request.accept()

    async with (
        ToolServer(port=0, sealed_workspace=WORKSPACE, approval_required=True) as server,
        ApprovalClient(decide, port=server.port or 0),
    ):
        assert (await ask(guest_face(server), "POST", "/run", call(text="x")))[0] == 403

    assert requests == []


async def test_a_kernel_gets_some_connections_whatever_others_hold(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_api, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(http_api, "CONNECTIONS_PER_CALLER", 2)
    other = ToolCaller(token="other", approvals=ApprovalChannel(), recorder=SessionRecorder())
    async with ToolServer(port=None) as server, server.serving(other), AsyncExitStack() as stack:
        for token, statuses in ((None, (400, 400, 400, 503)), ("other", (400, 400, 503))):
            sessions = [await stack.enter_async_context(guest_face(server, token).session()) for _ in statuses]
            for session, status in zip(sessions, statuses, strict=True):
                async with session.post("/run", json={}) as response:
                    assert response.status == status
            await sessions[0].close()
            async with asyncio.timeout(WAIT):
                status = 503
                while status != 400:  # the server may not have noticed yet that there is room
                    async with sessions[-1].post("/run", json={}) as response:
                        status = response.status


async def is_closed(sock: socket.socket) -> bool:
    """Waits until the server closes a connection, or sends something."""
    with sock, suppress(ConnectionResetError):
        return await asyncio.get_running_loop().sock_recv(sock, 1) == b""
    return True


async def test_connections_without_a_valid_request_make_room_for_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_api, "MAX_UNAUTHENTICATED", 3)
    async with ToolServer(port=None) as server, asyncio.timeout(WAIT):
        face = guest_face(server)
        assert face.dial is not None
        silent = [face.dial() for _ in range(3)]
        for each in silent:
            await asyncio.get_running_loop().sock_sendall(each, b"POST /run HTTP/1.1\r\n")
        assert (await ask(face, "POST", "/run", {}))[0] == 400
        assert await is_closed(silent[0])
        for each in silent:
            each.close()

    monkeypatch.setattr(http_api, "AUTH_TIMEOUT", 0.01)
    async with ToolServer(port=None) as server, asyncio.timeout(WAIT):
        dial = guest_face(server).dial
        assert dial is not None
        assert await is_closed(dial())


async def test_a_kernel_may_call_as_many_tools_at_once_as_it_may_have_connections():
    async with ToolServer(port=None) as server, asyncio.timeout(WAIT):
        face = guest_face(server)
        sockets = [face.dial() for _ in range(http_api.MAX_CONNECTIONS) if face.dial is not None]
        headers = f"Host: localhost\r\nAuthorization: token {face.token}\r\nContent-Length: 2"
        request = f"POST /run HTTP/1.1\r\n{headers}\r\n\r\n{{}}"
        loop = asyncio.get_running_loop()
        for each in sockets:
            await loop.sock_sendall(each, request.encode())
        answers = [await loop.sock_recv(each, 12) for each in sockets]
        assert set(answers) == {b"HTTP/1.1 400"}
        for each in sockets:
            each.close()


async def test_who_hangs_up_withdraws_the_call(server: ToolServer, fifo: Fifo):
    params = servers.scripted("--log", str(fifo.path))
    asking = asyncio.create_task(ask(guest_face(server), "POST", "/run", call("block", params)))
    await fifo.until("block")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await fifo.until("cancelled")

    assert (await ask(guest_face(server), "POST", "/run", call("echo", params, text="x")))[0] == 200


# Over TCP, as other processes use it


async def test_the_token_can_be_read_by_the_same_user_only(server: ToolServer):
    assert stat.S_IMODE(token_file("tool-server", server.port or 0).stat().st_mode) == 0o600


async def test_a_runner_needs_host_and_port_only(server: ToolServer):
    runner = ToolRunner("scripted", servers.scripted(), port=server.port or 0)

    assert await runner.run("echo", {"text": "a"}) == "a"
    assert await asyncio.to_thread(runner.run_sync, "echo", {"text": "b"}) == "b"
    with pytest.raises(ToolRunnerError, match=r"^broken$"):
        await runner.run("fail", {"text": "broken"})


async def test_a_runner_and_the_function_reset_the_servers(server: ToolServer):
    runner = ToolRunner("scripted", servers.scripted(), port=server.port or 0)
    pids = [await runner.run("pid", {})]
    await runner.reset()
    pids.append(await runner.run("pid", {}))
    await reset(port=server.port or 0)
    pids.append(await runner.run("pid", {}))

    assert len(set(map(str, pids))) == 3


async def test_a_taken_port_is_an_error_at_once_that_names_it(server: ToolServer):
    other = ToolServer(port=server.port)
    with pytest.raises(OSError, match=f"can't listen on localhost port {server.port}: the port is already in use"):
        await other.start()
    await other.stop()


async def test_starting_and_stopping_twice(caplog: pytest.LogCaptureFixture):
    server = ToolServer(port=0)
    await server.stop()
    await server.start()
    port = server.port or 0
    path = token_file("tool-server", port)
    assert path.exists()
    with pytest.raises(RuntimeError, match="the tool server is already running"):
        await server.start()
    assert "error" not in (await ask(tcp_face(server), "POST", "/run", call(text="x")))[1]
    await server.stop()
    await server.stop()
    async with asyncio.timeout(WAIT):
        await server.join()

    assert not path.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    with pytest.raises(aiohttp.ClientError):
        await ask(tcp_face(server), "GET", "/status")
    guest = guest_face(server)
    with pytest.raises(aiohttp.ClientError):
        await ask(guest, "POST", "/run", call(text="x"))

    await server.start()
    assert "error" not in (await ask(tcp_face(server), "POST", "/run", call(text="x")))[1]
    await server.stop()


async def test_stopping_ends_calls_under_way(server: ToolServer, fifo: Fifo):
    params = servers.scripted("--log", str(fifo.path))
    runner = ToolRunner("scripted", params, port=server.port or 0)
    running = asyncio.create_task(runner.run("block", {}))
    await fifo.until("block")
    async with asyncio.timeout(WAIT):
        await server.stop()
        with pytest.raises(ToolRunnerError):
            await running


async def test_stopping_closes_connections_that_are_not_served_yet():
    server = ToolServer(port=None)
    await server.start()
    ours, theirs = socket.socketpair()
    server.accept_kernel_connection(theirs)
    await server.stop()
    with ours:
        assert ours.recv(1) == b""


async def test_a_log_goes_to_stderr_if_asked_for(capsys: pytest.CaptureFixture[str]):
    async with ToolServer(port=None, log_to_stderr=True, sealed_workspace=WORKSPACE) as server:
        await ask(guest_face(server), "POST", "/run", call(text="x"))
    async with ToolServer(port=None, sealed_workspace=WORKSPACE) as server:
        await ask(guest_face(server), "POST", "/run", call(text="x"))

    assert capsys.readouterr().err.count("refused a call to 'scripted'") == 1


@pytest.mark.parametrize("turns", range(1, 5))
async def test_a_start_that_is_cancelled_leaves_no_port(turns: int):
    server = ToolServer(port=0)
    starting = asyncio.create_task(server.start())
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    if not starting.cancelled():  # it was at its end
        await server.stop()
    assert server.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port)).close()
    assert not token_file("tool-server", server.port).exists()
