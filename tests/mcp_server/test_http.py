"""`--transport http`: real clients, several at once, on a real server; what is not let in; how all of it ends."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    ElicitRequestParams,
    ElicitResult,
    Implementation,
    TextContent,
    TextResourceContents,
)
from starlette.types import Receive, Scope, Send

from ipybox.code_exec.config import ExecutorConfig
from ipybox.code_exec.executor import CodeExecutor
from ipybox.mcp_server.http import HTTPServerInfo
from ipybox.mcp_server.http_gate import MAX_CLIENTS, TokenMiddleware, accepted_names
from ipybox.mcp_server.kernel_sessions import KernelSessions
from ipybox.mcp_server.metrics import ServerMetrics
from ipybox.mcp_server.server import MCPServer
from tests import servers
from tests.conftest import Fifo, Mode
from tests.http_server import Server, serving
from tests.servers import NODE_MODULES, WAIT, descendants, until_dead

#: How a client speaks: with sessions, or by requests that stand alone.
Era = Literal["legacy", "auto"]
ERAS: tuple[Era, ...] = ("legacy", "auto")

ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
NEWEST = "2026-07-28"

# Most of these are about the way to the kernel, which is the same in every mode; the session of an agent shows that.
pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, shared: None) -> Iterator[Server]:
    """A server that tests share, each with sessions of its own."""
    with serving(tmp_path_factory.mktemp("http"), "--max-sessions=30") as running:
        yield running


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> Era:
    return request.param


@asynccontextmanager
async def client_of(server: Server, era: Era = "auto", name: str = "test", **options: Any) -> AsyncGenerator[Client]:
    info = Implementation(name=name, version="1")
    async with httpx2.AsyncClient(headers=server.headers, timeout=WAIT) as http:
        transport = streamable_http_client(server.url, http_client=http)
        async with Client(transport, mode=era, client_info=info, **options) as client:
            yield client


async def run(client: Client, code: str, session: str = "default", **arguments: Any) -> str:
    async with asyncio.timeout(2 * WAIT):
        result = await client.call_tool("execute_ipython_cell", {"code": code, "session": session, **arguments})
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def message(method: str, era: Era = "auto", **params: Any) -> dict[str, Any]:
    """Returns a request as it is on the wire."""
    if era == "auto":
        meta = "io.modelcontextprotocol/"
        params["_meta"] = {f"{meta}protocolVersion": NEWEST, f"{meta}clientCapabilities": {}}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def initialize() -> dict[str, Any]:
    info = {"name": "test", "version": "1"}
    return message("initialize", "legacy", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)


async def test_session_of_an_agent(tmp_path: Path, mode: Mode):
    with serving(tmp_path, *mode.options) as server:
        for number, era in enumerate(ERAS):
            async with client_of(server, era) as client:
                assert [tool.name for tool in (await client.list_tools()).tools][-1] == "reset"
                assert await run(client, f"x = {number}; x + 1") == f"{number + 1}"
                assert "ZeroDivisionError" in await run(client, "1 / 0")
                with pytest.raises(MCPError, match="not an output address"):
                    await client.read_resource("file:///etc/passwd")
            async with client_of(server, era) as client:
                assert await run(client, "x") == f"{number}", "kernels stay for the next client"
        await asyncio.to_thread(server.process.terminate)
        assert await asyncio.to_thread(server.process.wait, WAIT) == 143
    assert not server.token_file.exists()


@pytest.mark.parametrize(
    ("headers", "challenge"),
    [
        ({}, "Bearer"),
        ({"Authorization": "Bearer " + "0" * 64}, 'Bearer error="invalid_token"'),
        ({"Authorization": "Bearer"}, 'Bearer error="invalid_token"'),
        ({"Authorization": "Bearer é"}, 'Bearer error="invalid_token"'),
        ({"Authorization": "token TOKEN"}, "Bearer"),
    ],
    ids=["none", "wrong", "empty", "no_ascii", "other_scheme"],
)
@pytest.mark.parametrize("path", ["", "/other"], ids=["endpoint", "elsewhere"])
def test_request_without_the_token_is_refused(server: Server, headers: dict[str, str], challenge: str, path: str):
    given = {
        name.encode(): value.replace("TOKEN", server.token).encode() for name, value in {**ACCEPT, **headers}.items()
    }
    answer = httpx2.post(server.url + path, json=initialize(), headers=given)

    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == challenge
    assert server.token not in answer.text


async def test_client_without_the_token_fails(server: Server):
    with pytest.RaisesGroup(MCPError, flatten_subgroups=True):
        async with Client(server.url, mode="auto"):
            raise AssertionError("unreachable")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost.evil.example:8910"}, 421),
        ({"Host": "127.0.0.1:1@evil.example"}, 421),
        ({"Host": "localhost:.evil.example"}, 421),
        ({"Host": "[::1]:1.evil.example"}, 421),
        ({"Origin": "http://localhost:1.evil.example"}, 403),
        ({"Origin": "http://localhost:@evil.example:80"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:6274"}, 200),
        ({"Host": "localhost:8910"}, 200),
    ],
    ids=str,
)
@pytest.mark.parametrize("request_", [initialize(), message("tools/list")], ids=["session", "stateless"])
def test_names_of_other_machines_are_refused(
    server: Server, headers: dict[str, str], status: int, request_: dict[str, Any]
):
    version = {"MCP-Protocol-Version": NEWEST, "Mcp-Method": "tools/list"} if "_meta" in request_["params"] else {}
    given = {**ACCEPT, **server.headers, **version, **headers}

    assert httpx2.post(server.url, json=request_, headers=given).status_code == status


def test_all_names_of_the_machine_are_accepted_where_all_its_addresses_are():
    hosts, origins = accepted_names("0.0.0.0", "0.0.0.0", ())

    assert {"127.0.0.1", "[::1]", "localhost", socket.gethostname()} <= hosts
    assert not any("*" in name for name in hosts)
    assert "http://0.0.0.0" not in origins


def test_larger_requests_are_for_uploads_alone(server: Server, tmp_path: Path):
    large = message("tools/list", cursor="x" * (5 << 20))
    assert httpx2.post(server.url, json=large, headers={**ACCEPT, **server.headers}).status_code == 413


async def test_files_are_uploaded_as_on_stdio(tmp_path: Path):
    with serving(tmp_path, "--allowed-dir=.") as server:
        for era in ERAS:
            async with client_of(server, era) as client:
                result = await client.call_tool("upload_file", {"path": era, "content": "x" * (10 << 20)})
                assert not result.is_error
            assert (tmp_path / era).stat().st_size == 10 << 20


async def test_clients_share_kernels_and_cells_of_different_sessions_run_at_once(server: Server, fifo: Fifo):
    async with client_of(server, "legacy") as one, client_of(server, "auto") as other:
        await run(one, "shared = 'yes'")
        assert await run(other, "shared") == "'yes'"

        waiting = asyncio.create_task(run(one, f"open({str(fifo.path)!r}).readline()", "waiting"))
        assert await run(other, "1 + 1", "busy") == "2"
        assert not waiting.done()
        fifo.send("now")
        assert await waiting == "'now\\n'"
        for session in ("waiting", "busy"):
            await one.call_tool("reset", {"session": session})


async def test_progress_is_told_to_the_client_that_waits_for_it(server: Server):
    told: dict[Era, list[str]] = {"legacy": [], "auto": []}

    async def wait(client: Client, era: Era) -> None:
        async def note(progress: float, total: float | None, message: str | None) -> None:
            told[era].append(message or "")

        code = f"import time; print('line of {era}', flush=True); time.sleep(1.5)"
        await client.call_tool("execute_ipython_cell", {"code": code, "session": era}, progress_callback=note)

    async with client_of(server, "legacy") as one, client_of(server, "auto") as other:
        await asyncio.gather(run(one, "", "legacy"), run(one, "", "auto"))
        await asyncio.gather(wait(one, "legacy"), wait(other, "auto"))
        await asyncio.gather(*(one.call_tool("reset", {"session": name}) for name in ("legacy", "auto")))
    assert told == {"legacy": ["line of legacy"], "auto": ["line of auto"]}


CELL = """
import time
begun = True
with open({fifo!r}, "w") as file:
    try:
        print("begun", file=file, flush=True)
        time.sleep(300)
    except KeyboardInterrupt:
        print("interrupted", file=file, flush=True)
        raise
"""


async def test_cancelling_interrupts_the_cell_and_no_other(server: Server, era: Era, fifo: Fifo):
    async with client_of(server, era) as one, client_of(server, era) as other:
        await run(other, "x = 1", "other")
        busy = asyncio.create_task(run(other, "import time; time.sleep(3); x", "other"))
        cell = asyncio.create_task(run(one, CELL.format(fifo=str(fifo.path)), "cancelled"))
        await fifo.until("begun")
        cell.cancel()
        await fifo.until("interrupted")
        assert await run(other, "begun", "cancelled") == "True"
        assert await busy == "1"
        for session in ("other", "cancelled"):
            await other.call_tool("reset", {"session": session})


@pytest.mark.parametrize(
    ("era", "goes"),
    [("legacy", "disconnects"), ("auto", "disconnects"), ("legacy", "ends_its_session")],
    ids=["legacy_disconnects", "auto_disconnects", "legacy_ends_its_session"],
)
async def test_cell_of_a_client_that_goes_is_interrupted(server: Server, era: Era, goes: str, fifo: Fifo):
    headers = {**ACCEPT, **server.headers}
    code = CELL.format(fifo=str(fifo.path))
    execute = message(
        "tools/call", era, name="execute_ipython_cell", arguments={"code": code, "session": "gone", "timeout": 300}
    )
    async with httpx2.AsyncClient(timeout=WAIT) as http:
        if era == "legacy":
            begun = await http.post(server.url, json=initialize(), headers=headers)
            headers |= {"Mcp-Session-Id": begun.headers["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-11-25"}
        else:
            headers |= {"MCP-Protocol-Version": NEWEST, "Mcp-Method": "tools/call", "Mcp-Name": "execute_ipython_cell"}
        cell = asyncio.create_task(http.post(server.url, json=execute, headers=headers))
        await fifo.until("begun")
        if goes == "disconnects":
            cell.cancel()  # which closes the connection, as the end of its process would
        else:
            assert (await http.delete(server.url, headers=headers)).status_code == 200
        await fifo.until("interrupted")
        await asyncio.wait([cell])
    async with client_of(server) as client:
        assert await run(client, "begun", "gone") == "True"
        await client.call_tool("reset", {"session": "gone"})


async def test_client_that_does_not_read_keeps_no_other_waiting(server: Server, fifo: Fifo):
    code = f"open({str(fifo.path)!r}, 'w').write('printed\\n'); print('x' * 30_000_000)"
    body = json.dumps(
        message(
            "tools/call",
            name="execute_ipython_cell",
            arguments={"code": code, "max_output_chars": 30_000_000, "session": "unread"},
        )
    )
    url = httpx2.URL(server.url)
    head = ["POST /mcp HTTP/1.1", f"Host: {url.host}:{url.port}", f"Content-Length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in {**ACCEPT, **server.headers}.items()]
    head += [f"MCP-Protocol-Version: {NEWEST}", "Mcp-Method: tools/call", "Mcp-Name: execute_ipython_cell"]
    with socket.create_connection((url.host, url.port or 0)) as unread:
        unread.sendall(("\r\n".join(head) + "\r\n\r\n" + body).encode())
        await fifo.until("printed")
        async with client_of(server) as client:
            assert await run(client, "6 * 7") == "42"
            await client.call_tool("reset", {"session": "unread"})


async def test_long_output_is_a_resource_for_those_who_know_of_them(server: Server, era: Era):
    async with client_of(server, era) as one, client_of(server, era, name="claude-code") as other:
        cut = [await run(client, "print('y' * 100_000)", max_output_chars=100) for client in (one, other)]
        assert "ipybox://" not in cut[1]
        (uri,) = re.findall(r"ipybox://\w+/\w+", cut[0])
        (page, *_) = (await one.read_resource(uri)).contents
        assert isinstance(page, TextResourceContents)
        assert page.text.startswith("yyy")
        assert (one.server_capabilities.resources, other.server_capabilities.resources) != (None, None)
        assert other.server_capabilities.resources is None


async def test_forms_and_output_of_a_waiting_cell_are_for_its_own_client(tmp_path: Path, era: Era):
    servers.register(tmp_path, scripted=servers.scripted())
    code = "print('begun'); open({0!r}).read()\nfrom registered import scripted\nprint(scripted.run_sync('pid', {{}}))"
    os.mkfifo(gate := str(tmp_path / "gate"))
    asked: list[str] = []

    def user(name: str, action: Literal["accept", "decline"]) -> Any:
        async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            asked.append(name)
            return ElicitResult(action=action, content={"scope": "only this call"} if action == "accept" else None)

        return answer

    with serving(tmp_path, "--approve=ask") as server:
        own, other = user("own", "accept"), user("other", "decline")
        async with (
            client_of(server, era, "own", elicitation_callback=own) as one,
            client_of(server, era, "other", elicitation_callback=other) as two,
            client_of(server, era, "own") as three,
        ):
            assert "still running" in await run(one, code.format(gate), wait=0)
            await asyncio.to_thread(lambda: open(gate, "w").close())
            for client in (two, three):
                assert "the session has another client's cell" in await run(client, "", wait=WAIT)
            assert re.search(r"^\d+$", await run(one, "", wait=WAIT), re.MULTILINE)
            assert await run(two, "1 + 1") == "2"
    assert asked == ["own"]


class Silent:
    """A user who does not answer."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self.asked.set()
        await asyncio.sleep(3600)
        raise AssertionError("unreachable")


async def test_each_user_is_asked_and_none_waits_for_another_ones_answer(tmp_path: Path):
    servers.register(tmp_path, scripted=servers.scripted())
    code = "from registered import scripted; print(scripted.run_sync('echo', {'text': 'hello'}))"
    forms: list[str] = []

    async def accept(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        forms.append(params.message)
        return ElicitResult(action="accept", content={"scope": "only this call"})

    with serving(tmp_path, "--approve=ask") as server:
        for era in ERAS:
            silent = Silent()
            async with (
                client_of(server, era, elicitation_callback=silent) as one,
                client_of(server, era, elicitation_callback=accept) as other,
            ):
                unanswered = asyncio.create_task(run(one, code, f"unanswered-{era}"))
                await silent.asked.wait()
                assert await run(other, code) == "hello"
                unanswered.cancel()
    # Of an unknown client, which may render Markdown.
    assert forms == ['```\nCode calls scripted.echo\n| text: "hello"\n```'] * len(ERAS)


async def test_requests_under_way_are_told_that_the_server_stops():
    begun = asyncio.Event()

    async def hang(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await asyncio.sleep(3600)

    gate = TokenMiddleware("token", ["localhost"], [])
    gate.app = hang
    headers = {"Authorization": "Bearer token"}
    transport = httpx2.ASGITransport(gate)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
        hanging = asyncio.create_task(http.post("/mcp"))
        await begun.wait()
        gate.close()
        for answer in (await hanging, await http.post("/mcp")):
            assert (answer.status_code, answer.text) == (503, "ipybox is shutting down")


def test_claude_code_connects(server: Server, tmp_path: Path):
    # As a new user, whom no settings of this machine reach.
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}

    def claude(*arguments: str) -> str:
        command = [str(NODE_MODULES / ".bin" / "claude"), "mcp", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    header = f"Authorization: {server.headers['Authorization']}"
    claude("add", "--transport", "http", "ipybox", server.url, "--header", header)
    claude("add", "--transport", "http", "stranger", server.url, "--header", "Authorization: Bearer x")
    listed = {name: line for line in claude("list").splitlines() for name in ("ipybox", "stranger") if name in line}
    assert "Connected" in listed["ipybox"]
    assert "Connected" not in listed["stranger"]


def test_number_of_clients_is_bounded(tmp_path: Path):
    # The refusal is a warning.
    with (
        serving(tmp_path, "--log-level=ERROR") as server,
        httpx2.Client(headers={**ACCEPT, **server.headers}) as http,
    ):
        answers = [http.post(server.url, json=initialize()) for _ in range(MAX_CLIENTS + 1)]
        assert [answer.status_code for answer in answers] == [200] * MAX_CLIENTS + [503]
        assert answers[-1].json()["error"]["message"] == (
            "the limit of 64 MCP sessions is reached: end a session (DELETE), wait until one has been idle for 30 "
            "minutes, or start ipybox with a higher --max-sessions"
        )

        headers = {"Mcp-Session-Id": answers[0].headers["Mcp-Session-Id"]}
        assert http.delete(server.url, headers=headers).status_code == 200
        assert http.post(server.url, json=initialize()).status_code == 200


async def until_stopping(server: Server) -> None:
    """Returns when a server that got a signal accepts no more calls."""
    async with asyncio.timeout(WAIT), httpx2.AsyncClient() as http:
        while (await http.get(health(server))).status_code == 200:
            pass


def health(server: Server) -> str:
    return server.url.removesuffix("/mcp") + "/health"


@pytest.mark.parametrize("path", ["/health", "/health?x=y"])
@pytest.mark.parametrize("host", ["localhost", "10.0.0.7:8910", "evil.example"])
def test_health_needs_no_token_and_tells_nothing_else(server: Server, path: str, host: str):
    answer = httpx2.get(server.url.removesuffix("/mcp") + path, headers={"Host": host})
    assert (answer.status_code, answer.text, answer.headers["Connection"]) == (200, "ok", "close")
    assert httpx2.get(health(server) + "/x", headers={"Host": host}).status_code == 401


async def test_calls_in_progress_end_before_the_server_does_and_new_ones_are_refused(tmp_path: Path, fifo: Fifo):
    go = tmp_path / "go"
    waits = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n'done'"
    code = f"open({str(fifo.path)!r}, 'w').write('begun\\n')\n{waits}"
    with serving(tmp_path, "--log-level=INFO") as server:
        async with client_of(server, "legacy", name="worker") as one, client_of(server, "auto") as other:
            await run(one, "1")
            method = {"MCP-Protocol-Version": NEWEST, "Mcp-Method": "server/discover"}
            async with httpx2.AsyncClient(headers={**server.headers, **ACCEPT, **method}, timeout=WAIT) as unnamed:
                answer = await unnamed.post(server.url, json=message("server/discover"))
                assert answer.status_code == 200
            cells = [
                asyncio.create_task(run(client, code, session)) for client, session in ((one, "default"), (other, "b"))
            ]
            for _ in cells:
                await fifo.until("begun")
            server.process.terminate()
            await until_stopping(server)
            for client in (one, other):
                with pytest.raises(MCPError, match="ipybox is shutting down and accepts no new calls"):
                    await run(client, "2")
            go.touch()
            assert [await cell for cell in cells] == ["'done'"] * 2
        assert await asyncio.to_thread(server.process.wait, WAIT) == 143
        assert server.process.stderr is not None
        log = server.process.stderr.read()
    assert "client connected: worker 1, from 127.0.0.1" in log
    assert "client connected: without a name, from 127.0.0.1" in log
    assert "session default started" in log
    assert "session default ended with the server" in log


async def test_calls_that_do_not_end_are_told_why(tmp_path: Path, fifo: Fifo):
    with serving(tmp_path) as server:
        async with client_of(server, "legacy") as client:
            cell = asyncio.create_task(run(client, CELL.format(fifo=str(fifo.path))))
            await fifo.until("begun")
            server.process.terminate()
            await until_stopping(server)
            server.process.terminate()
            said = await asyncio.gather(cell, return_exceptions=True)
            assert "shutting down" in str(said[0]) or "ended early" in str(said[0])
            assert "reset" not in str(said[0])


@contextmanager
def hangups_end() -> Generator[None]:
    """Has processes that are started within end when their terminal does, even if this one ignores that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_token_file_goes_when_the_terminal_does(tmp_path: Path):
    with hangups_end(), serving(tmp_path) as server:
        server.process.send_signal(signal.SIGHUP)
        assert server.process.wait(WAIT) == 128 + signal.SIGHUP
        assert not server.token_file.exists()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "box.example.org"}, 200),
        ({"Host": "box.example.org:8443", "Origin": "https://box.example.org"}, 200),
        ({"Host": "[fd00::1]"}, 200),
        ({"Host": "box.example.org.evil.example"}, 421),
        ({"Host": "evil.box.example.org"}, 421),
        ({"Host": "other.example.org"}, 421),
        ({"Host": "box.example.org", "Origin": "https://other.example.org"}, 403),
        ({"Host": "localhost"}, 200),
    ],
)
def test_a_proxy_may_have_a_name_of_its_own(proxied: Server, headers: dict[str, str], status: int):
    answer = httpx2.post(proxied.url, json=initialize(), headers={**ACCEPT, **proxied.headers, **headers})
    assert answer.status_code == status


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory, shared: None) -> Iterator[Server]:
    """A server behind a proxy with two names."""
    with serving(
        tmp_path_factory.mktemp("proxied"), "--allowed-host=box.example.org", "--allowed-host=[fd00::1]"
    ) as running:
        yield running


PARTS = {
    "nothing": b"",
    "part of a line": b"GET /metr",
    "part of the headers": b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
    "a whole request": b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "part of a body": b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n\r\nx",
    "health": b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
}


@pytest.mark.parametrize("part", PARTS)
def test_connections_without_the_token_leave_room_for_those_with_it(server: Server, part: str):
    address = httpx2.URL(server.url)
    with ExitStack() as opened:
        for _ in range(700):
            connection = opened.enter_context(socket.create_connection((address.host, address.port or 0), WAIT))
            with suppress(ConnectionError):  # it was closed in favor of a newer one
                connection.sendall(PARTS[part])
        answer = httpx2.post(server.url, json=initialize(), headers={**ACCEPT, **server.headers}, timeout=WAIT)
        assert answer.status_code == 200


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda ending: ending.name)
async def test_nothing_is_left_when_the_server_ends(ending: signal.Signals, tmp_path: Path, mode: Mode, fifo: Fifo):
    with serving(tmp_path, *mode.options) as server:
        async with client_of(server, "legacy") as client:  # which keeps a stream open
            await run(client, "1")
            cell = asyncio.create_task(run(client, CELL.format(fifo=str(fifo.path))))
            await fifo.until("begun")
            children = descendants(server.process.pid)
            assert len(children) >= 2  # gateway and kernel
            server.process.send_signal(ending)
            if ending == signal.SIGTERM:  # the second one ends what still runs
                await until_stopping(server)
                server.process.send_signal(ending)
            status = await asyncio.to_thread(server.process.wait, WAIT)
            assert status == (-9 if ending == signal.SIGKILL else 128 + ending)
            assert not await until_dead(children, timeout=2)
            cell.cancel()
    assert server.token_file.exists() == (ending == signal.SIGKILL)


def test_port_that_is_taken_is_an_error_at_once(server: Server, tmp_path: Path):
    port = httpx2.URL(server.url).port
    done = started(tmp_path, "--transport=http", f"--port={port}")

    assert done.returncode == 1
    assert done.stderr == (
        f"ipybox: can't listen on 127.0.0.1 port {port}: the port is already in use: "
        "stop the program that uses it, or choose another port\n"
    )
    assert server.token_file.exists()


@pytest.mark.parametrize(
    ("options", "token", "said"),
    [
        (["--port=1"], None, "ipybox: --host, --port and --allowed-host apply to HTTP only"),
        (["--transport=http", "--allowed-host=https://x"], None, "ipybox: --allowed-host: 'https://x' is not a host"),
        (["--transport=http", "--allowed-host=x:443"], None, "ipybox: --allowed-host: 'x:443' is not a host name"),
        (["--transport=http", "--allowed-host=*.x"], None, "ipybox: --allowed-host: '*.x' is not a host name"),
        (["--transport=http", "--port=0"], "", "ipybox: IPYBOX_TOKEN: the token must be at least 16 characters"),
        (["--transport=http", "--port=0"], "with space in it", "ipybox: IPYBOX_TOKEN: the token must be"),
        (["--transport=http", "--port=99999"], None, "ipybox: --port: 99999 is not in the range 0<=x<=65535"),
    ],
    ids=["without_transport", "scheme", "port", "pattern", "empty_token", "bad_token", "bad_port"],
)
def test_options_that_are_wrong_say_so(options: list[str], token: str | None, said: str, tmp_path: Path):
    done = started(tmp_path, *options, **({} if token is None else {"IPYBOX_TOKEN": token}))

    assert done.returncode == 2
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == 2


def test_host_that_does_not_exist_is_an_error(tmp_path: Path):
    done = started(tmp_path, "--transport=http", "--port=0", "--host=no.such.host.invalid")

    assert done.returncode == 1
    assert done.stderr.startswith("ipybox: can't listen on no.such.host")
    assert len(done.stderr.splitlines()) == 1


def started(workspace: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ipybox", "--workspace", str(workspace), *options],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )


async def test_token_can_be_given_and_reaches_no_mcp_server(tmp_path: Path):
    with serving(tmp_path, IPYBOX_TOKEN="given-by-the-user") as server:
        assert server.headers == {"Authorization": "Bearer given-by-the-user"}
        assert server.token_file.stat().st_mode & 0o777 == 0o600
        async with client_of(server) as client:
            params = {"command": "x", "env": {"TOKEN": "${IPYBOX_TOKEN}"}}
            result = await client.call_tool("register_mcp_server", {"server_name": "s", "server_params": params})
            assert "IPYBOX_TOKEN" in str(result.content)
            assert result.is_error


@pytest.mark.sandbox
async def test_code_in_the_sandbox_reaches_neither_server_nor_token(tmp_path: Path):
    code = """
import urllib.request
for attempt in (lambda: open({file!r}).read(), lambda: urllib.request.urlopen({url!r}, timeout=5)):
    try: print(attempt())
    except OSError as exc: print("refused")
"""
    with serving(tmp_path, "--sandbox") as server:
        async with client_of(server) as client:
            said = await run(client, code.format(file=str(server.token_file), url=server.url))
    assert said.splitlines()[:2] == ["refused", "refused"]
    assert "token" not in said


async def test_application_serves_http_and_its_functions_by_itself_and_keeps_its_signals(tmp_path: Path):
    def triple(x: int) -> int:
        return 3 * x

    listening: asyncio.Future[HTTPServerInfo] = asyncio.get_running_loop().create_future()
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    server = MCPServer(ExecutorConfig(working_dir=tmp_path, tools=[triple]))
    serving = asyncio.create_task(server.run_http(port=0, on_listening=listening.set_result))
    async with asyncio.timeout(WAIT):
        where = await listening
        headers = {"Authorization": f"Bearer {where.token}"}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(where.url, http_client=http)) as client,
        ):
            code = "from mcptools.app import triple\ntriple.run(triple.Params(x=14)).result"
            assert await run(client, code) == "42"
            assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
    assert not where.token_file.exists()


def metrics_of(server: Server) -> dict[str, float]:
    """Returns all samples, by their names and labels."""
    answer = httpx2.get(server.url.removesuffix("/mcp") + "/metrics", headers=server.headers)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    lines = [line.rpartition(" ") for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


async def test_metrics_count_sessions_cells_calls_and_decisions(tmp_path: Path, mode: Mode):
    servers.register(tmp_path, scripted=servers.scripted())
    with serving(tmp_path, *mode.options, "--max-sessions=70", "--log-level=ERROR") as server:  # the death is a warning
        before = metrics_of(server)
        assert before['ipybox_sessions{state="running"}'] == 0
        assert before["ipybox_sessions_limit"] == 70
        async with client_of(server) as client:
            code = "from registered import scripted; print(scripted.run_sync('echo', {'text': 'private-text'}))"
            assert await run(client, code, session="private-name") == "private-text"
            await run(client, "1 / 0", session="private-name")
            await run(client, "import os; os._exit(1)")
            assert "are lost" in await run(client, "1")
        after = metrics_of(server)
    assert after['ipybox_sessions{state="running"}'] == 2
    assert after['ipybox_sessions{state="queued"}'] == 0
    assert after[f'ipybox_kernels{{node="{socket.gethostname()}"}}'] == 2
    assert after['ipybox_cell_duration_seconds_count{outcome="ok"}'] == 2
    assert after['ipybox_cell_duration_seconds_count{outcome="error"}'] == 2
    assert after['ipybox_tool_call_duration_seconds_count{outcome="ok"}'] == 1
    assert after['ipybox_approval_duration_seconds_count{accepted="true",by="auto"}'] == 1
    assert after["ipybox_kernel_deaths_total"] == 1
    assert not [name for name in after if "private" in name or "scripted" in name or "echo" in name]


def test_metrics_count_denials_idle_sessions_and_jobs():
    metrics = ServerMetrics(KernelSessions(CodeExecutor, 1))
    for event, fields in (
        ("denial", {"by": "tool_server"}),
        ("session", {"action": "idle"}),
        ("session", {"action": "start"}),
        ("job", {"action": "started", "waited": 2.0}),
        ("job", {"action": "ended", "waited": None}),
        ("another", {}),
    ):
        metrics.observe(event, fields)
    lines = metrics.exposition("")[0].decode().splitlines()
    assert {
        'ipybox_denials_total{by="tool_server"} 1.0',
        "ipybox_idle_sessions_stopped_total 1.0",
        "ipybox_kernel_deaths_total 0.0",
        'ipybox_jobs_total{action="ended"} 1.0',
        'ipybox_job_start_duration_seconds_sum{result="started"} 2.0',
    } <= {*lines}
    assert not any('result="ended"' in line for line in lines)


def test_metrics_are_refused_as_the_endpoint_is(server: Server):
    url = server.url.removesuffix("/mcp") + "/metrics"
    assert httpx2.get(url).status_code == 401
    assert httpx2.get(url, headers={"Authorization": "Bearer " + "0" * 64}).status_code == 401
    assert httpx2.get(url, headers={**server.headers, "Host": "evil.example"}).status_code == 421
    assert httpx2.get(url, headers={**server.headers, "Origin": "http://evil.example"}).status_code == 403
    assert httpx2.post(url, headers=server.headers).status_code == 405
