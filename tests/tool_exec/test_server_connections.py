import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from ipybox.errors import MCPConnectionLost, MCPServerError, MissingVariableError, ToolRunnerError
from ipybox.guest.tools.protocol import RunRequest
from ipybox.mcp_client.client import tool_value
from ipybox.support.bounded_json import MAX_VALUES
from ipybox.tool_exec.server_connections import ServerConnections
from tests import servers
from tests.servers import WAIT


@pytest.fixture
async def sessions() -> AsyncIterator[ServerConnections]:
    processes = servers.descendants()
    async with asyncio.timeout(2 * WAIT):
        async with aclosing(ServerConnections(WAIT)) as sessions:
            yield sessions
    assert servers.descendants() - processes == set()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def params(log: Path) -> dict[str, Any]:
    return servers.scripted("--log", str(log))


def starts(log: Path) -> int:
    return log.read_text().count("start")


async def run(sessions: ServerConnections, params: dict[str, Any], tool: str, **args: Any) -> Any:
    return tool_value(await sessions.call("s", params, tool, args))


async def start_blocked(sessions: ServerConnections, params: dict[str, Any]) -> asyncio.Task[Any]:
    """Start a call that gets no answer, and return when the server has it."""
    await run(sessions, params, "echo", text="")
    blocked = asyncio.create_task(run(sessions, params, "block"))
    await run(sessions, params, "echo", text="")  # answered after the other one was read
    return blocked


async def test_a_server_starts_at_its_first_call_and_stays(
    sessions: ServerConnections, params: dict[str, Any], log: Path
):
    assert sessions.status() == []
    pids = [await run(sessions, params, "pid") for _ in range(3)]

    assert len(set(pids)) == 1
    assert sessions.status() == ["s"]
    assert starts(log) == 1


async def test_a_server_that_sent_too_much_starts_again_at_the_next_call(
    sessions: ServerConnections, params: dict[str, Any]
):
    with pytest.raises(MCPConnectionLost, match="it sent a message larger than the limit of 3,000,000 values"):
        await run(sessions, params, "big", values=MAX_VALUES)

    assert await run(sessions, params, "echo", text="hi") == "hi"


async def test_concurrent_first_calls_share_one_start(sessions: ServerConnections, params: dict[str, Any], log: Path):
    results = await asyncio.gather(*(run(sessions, params, "echo", text=str(i)) for i in range(20)))

    assert results == [str(i) for i in range(20)]
    assert starts(log) == 1


async def test_servers_of_all_transports_run_side_by_side(sessions: ServerConnections):
    async with servers.http_everything("streamableHttp") as http, servers.http_everything("sse") as sse:
        everything = {"stdio": servers.everything(), "http": {"url": http}, "sse": {"url": sse}}
        results = await asyncio.gather(
            *(sessions.call(name, params, "echo", {"message": name}) for name, params in everything.items())
        )
        assert [tool_value(result) for result in results] == ["Echo: stdio", "Echo: http", "Echo: sse"]
        assert sessions.status() == ["http", "sse", "stdio"]
        await sessions.reset()


async def test_a_failed_start_fails_all_waiting_calls_and_the_next_call_tries_again(
    sessions: ServerConnections, tmp_path: Path
):
    server = tmp_path / "server"
    params = {"command": str(server), "args": [sys.executable, "-S", servers.SCRIPTED_SERVER]}
    calls = [run(sessions, params, "echo", text="hi") for _ in range(3)]
    errors = await asyncio.gather(*calls, return_exceptions=True)

    for error in errors:
        assert isinstance(error, MCPServerError)
        assert str(error).startswith(f"MCP server 's': can't start `{server} ")
    assert sessions.status() == []

    server.write_text('#!/bin/sh\nexec "$@"\n')
    server.chmod(0o755)
    assert await run(sessions, params, "echo", text="hi") == "hi"


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        pytest.param({"command": "no-such-command"}, MCPServerError, "command not found", id="command_not_found"),
        pytest.param({"command": "a", "b": 1}, ValueError, "unknown keys", id="wrong_shape"),
        pytest.param({"command": "${NO_SUCH}"}, MissingVariableError, r"\$\{NO_SUCH\}", id="missing_variable"),
    ],
)
async def test_errors_name_the_server(
    sessions: ServerConnections, params: dict[str, Any], error: type[Exception], message: str
):
    with pytest.raises(error, match=f"^MCP server 's': .*{message}"):
        await run(sessions, params, "echo")


async def test_errors_of_tools_are_the_server_s_own(sessions: ServerConnections, params: dict[str, Any]):
    assert (await sessions.call("s", params, "fail", {"text": "no luck"})).is_error
    with pytest.raises(ToolRunnerError, match=r"^no such repository$"):
        await run(sessions, params, "refuse")
    assert sessions.status() == ["s"]


async def test_a_server_that_crashed_between_calls_starts_again_at_the_next(
    sessions: ServerConnections, params: dict[str, Any], log: Path
):
    pid = int(await run(sessions, params, "pid"))
    os.kill(pid, signal.SIGKILL)
    assert await servers.until_dead({pid}, WAIT) == set()
    while sessions.status():  # noqa: ASYNC110 - the next turns of the loop notice it, and give no signal
        await asyncio.sleep(0)

    assert int(await run(sessions, params, "pid")) != pid
    assert starts(log) == 2


async def test_calls_in_flight_fail_when_the_server_crashes_and_the_next_call_starts_it_again(
    sessions: ServerConnections, params: dict[str, Any], log: Path
):
    blocked = await start_blocked(sessions, params)

    with pytest.raises(MCPConnectionLost, match=r"^MCP server 's': lost .* exited with code 7; .*\n    about to crash"):
        await run(sessions, params, "crash", code=7)
    with pytest.raises(MCPConnectionLost, match="exited with code 7"):
        await blocked

    assert await run(sessions, params, "echo", text="again") == "again"
    assert starts(log) == 2


async def test_other_parameters_stop_the_old_server_first(
    sessions: ServerConnections, params: dict[str, Any], log: Path
):
    blocked = await start_blocked(sessions, params)
    old = int(await run(sessions, params, "pid"))
    others = {**params, "env": {"X": "1"}}

    new = int(await run(sessions, others, "pid"))

    assert old != new
    assert not servers.is_alive(old)
    with pytest.raises(MCPConnectionLost, match="with other parameters"):
        await blocked
    assert starts(log) == 2


async def test_parameters_are_the_same_whatever_their_order(sessions: ServerConnections, params: dict[str, Any]):
    pid = await run(sessions, params, "pid")

    assert await run(sessions, dict(reversed(params.items())), "pid") == pid


async def test_cancelling_a_call_cancels_only_that_call(sessions: ServerConnections, params: dict[str, Any], log: Path):
    blocked = await start_blocked(sessions, params)
    blocked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await blocked

    assert await run(sessions, params, "echo", text="hi") == "hi"
    assert starts(log) == 1


async def test_cancelling_the_call_that_starts_a_server_leaves_the_start_to_the_others(
    sessions: ServerConnections, params: dict[str, Any], log: Path
):
    first = asyncio.create_task(run(sessions, params, "echo", text="first"))
    second = asyncio.create_task(run(sessions, params, "echo", text="second"))
    await asyncio.sleep(0)
    first.cancel()

    assert await second == "second"
    assert first.cancelled()
    assert starts(log) == 1


async def test_reset_stops_all_servers_and_later_calls_start_them_again(
    sessions: ServerConnections, params: dict[str, Any], log: Path
):
    blocked = await start_blocked(sessions, params)
    pids = {int(str(tool_value(await sessions.call(name, params, "pid", {})))) for name in "abc"}

    await sessions.reset()

    assert not any(servers.is_alive(pid) for pid in pids)
    assert sessions.status() == []
    with pytest.raises(MCPConnectionLost, match=r"the tool server was reset$"):
        await blocked
    assert await run(sessions, params, "echo", text="again") == "again"
    assert starts(log) == 5


async def test_reset_during_a_start_fails_its_calls(sessions: ServerConnections, tmp_path: Path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    hanging = servers.python(f"import time; open({str(fifo)!r}, 'w').close(); time.sleep(1000)")
    call = asyncio.create_task(run(sessions, hanging, "echo"))
    await asyncio.to_thread(fifo.read_bytes)

    await sessions.reset()

    with pytest.raises(MCPConnectionLost, match=r"^MCP server 's': the tool server was reset$"):
        await call


async def test_stopping_stubborn_servers_is_bounded_and_parallel(sessions: ServerConnections):
    stubborn = servers.scripted("--stubborn")
    await asyncio.gather(*(sessions.call(name, stubborn, "pid", {}) for name in "abcd"))
    started = time.monotonic()

    await sessions.aclose()

    assert time.monotonic() - started < 2
    with pytest.raises(MCPConnectionLost, match="stopped"):
        await run(sessions, stubborn, "pid")


def test_importing_sessions_does_not_import_the_sdk():
    imports = "import sys, ipybox.tool_exec.server_connections"
    code = f"{imports}; sys.exit('mcp' in sys.modules or 'ipybox.mcp_client.client' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_call_that_was_decided_on_before_the_server_changed_its_tool_is_not_made(
    sessions: ServerConnections, tmp_path: Path
):
    tools, log = tmp_path / "tools.json", tmp_path / "log"
    params = servers.scripted("--tools", str(tools), "--log", str(log))
    call = RunRequest(server_name="s", server_params=params, seal=None, tool_name="record", tool_args={"text": "a"})

    def lists(description: str) -> None:
        schema = {"type": "object"}
        tools.write_text(json.dumps([{"name": "record", "description": description, "inputSchema": schema}]))

    lists("Reads")
    decided_on = await sessions.definition(call)
    await sessions.call("s", params, "record", {"text": "a"}, decided_on)
    lists("Writes")
    with pytest.raises(MCPConnectionLost):
        await sessions.call("s", params, "record", {"text": "b", "dies": True}, decided_on)
    with pytest.raises(ToolRunnerError, match="MCP server 's' changed 'record' meanwhile: repeat the call"):
        await sessions.call("s", params, "record", {"text": "c"}, decided_on)
    await sessions.call("s", params, "record", {"text": "d"}, await sessions.definition(call))
    assert [line for line in log.read_text().splitlines() if line.startswith("call")] == ["call a", "call b", "call d"]
