import asyncio
import json
import logging
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ipybox.bounded_json import MAX_MESSAGE_BYTES, MAX_VALUES
from ipybox.errors import MCPConnectionLost, MCPServerError, MissingVariableError, ToolRunnerError
from ipybox.mcp_client import MCPClient
from ipybox.workspace.programs import host_path
from ipybox.workspace.writable import WritablePlaces
from tests import servers
from tests.servers import WAIT


@pytest.fixture(autouse=True)
async def nothing_is_left_behind() -> AsyncIterator[None]:
    processes, files = servers.descendants(), len(os.listdir("/proc/self/fd"))
    yield
    assert servers.descendants() - processes == set()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert len(os.listdir("/proc/self/fd")) == files


@pytest.fixture(params=["stdio", "http", "sse"])
async def everything(request: pytest.FixtureRequest) -> AsyncIterator[dict[str, Any]]:
    if request.param == "stdio":
        yield servers.everything()
        return
    async with servers.http_everything("streamableHttp" if request.param == "http" else "sse") as url:
        yield {"url": url}


async def failure(params: dict[str, Any], connect_timeout: float = WAIT) -> str:
    """Return the message of the error with which connecting fails."""
    with pytest.raises(MCPServerError) as error:
        await MCPClient(params, connect_timeout).__aenter__()
    assert not isinstance(error.value.__cause__, BaseExceptionGroup)
    return str(error.value)


async def test_tools_are_listed_and_run_over_every_transport(everything: dict[str, Any]):
    async with asyncio.timeout(WAIT), MCPClient(everything) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}

        assert tools["echo"].input_schema["required"] == ["message"]
        assert await client.run("echo", {"message": "hello"}) == "Echo: hello"
        structured = await client.run("get-structured-content", {"location": "Chicago"})
        assert isinstance(structured, dict)
        assert set(structured) == {"temperature", "conditions", "humidity"}


async def test_twenty_calls_run_at_once_over_every_transport(everything: dict[str, Any]):
    async with asyncio.timeout(WAIT), MCPClient(everything) as client:
        results = await asyncio.gather(*(client.run("echo", {"message": str(i)}) for i in range(20)))

    assert results == [f"Echo: {i}" for i in range(20)]


async def test_errors_of_tools_carry_the_text_of_the_server_over_every_transport(everything: dict[str, Any]):
    async with asyncio.timeout(WAIT), MCPClient(everything) as client:
        with pytest.raises(ToolRunnerError, match="nope not found"):
            await client.run("nope", {})
        with pytest.raises(ToolRunnerError, match="expected string, received number at message"):
            await client.run("echo", {"message": 1})
        assert await client.run("echo", {"message": "still there"}) == "Echo: still there"


async def test_reference_servers_work(tmp_path: Path):
    (tmp_path / "file.txt").write_text("content")
    git = await asyncio.create_subprocess_exec("git", "init", "-q", str(tmp_path))
    await git.wait()
    path = str(tmp_path / "file.txt")

    async def run(params: dict[str, Any], tool: str, args: dict[str, Any]) -> str:
        async with MCPClient(params, WAIT) as client:
            return json.dumps(await client.run(tool, args))

    async with asyncio.timeout(2 * WAIT):
        results = await asyncio.gather(
            run(servers.filesystem(tmp_path), "read_text_file", {"path": path}),
            run(servers.memory(tmp_path / "memory.json"), "read_graph", {}),
            run(servers.git(tmp_path), "git_status", {"repo_path": str(tmp_path)}),
            run(servers.time_(), "get_current_time", {"timezone": "UTC"}),
        )

    for result, expected in zip(results, ["content", "entities", "file.txt", "UTC"], strict=True):
        assert expected in result


async def test_all_pages_of_tools_are_listed():
    async with MCPClient(servers.paged(3), WAIT) as client:
        tools = await client.list_tools()

    assert [tool.name for tool in tools] == [f"tool_{page}_{i}" for page in (1, 2, 3) for i in (1, 2)]


@pytest.mark.parametrize(
    ("pages", "message"), [("endless", "more than 20 pages"), ("repeating", "comes back to the same page")]
)
async def test_a_paginator_that_never_ends_is_an_error(pages: Any, message: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ipybox.mcp_client.PAGE_LIMIT", 20)
    async with asyncio.timeout(WAIT), MCPClient(servers.paged(pages), WAIT) as client:
        with pytest.raises(MCPServerError, match=message):
            await client.list_tools()


async def test_a_call_needs_no_list_of_the_tools_and_returns_what_the_server_gave(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, "ipybox")
    async with MCPClient(servers.paged(3), WAIT) as client:
        assert await client.run("tool_3_2", {}) == {"page": 3}
        assert await client.run("tool_3_2", {"wrong": True}) == {"page": "not a number"}

    assert not [message for message in caplog.messages if "tools/list" in message]


@pytest.mark.parametrize(
    "structured",
    [
        pytest.param({"text": "a" * 60 + "!"}, id="pattern"),
        pytest.param({"items": [*range(20_000), *map(str, range(20_000))]}, id="unique_items"),
        pytest.param({"remote": 1}, id="reference_to_a_url"),
        pytest.param({"endless": 1}, id="reference_without_end"),
    ],
)
async def test_no_output_schema_of_a_server_holds_up_the_application(structured: dict[str, Any]):
    params = {"command": sys.executable, "args": ["-S", str(servers.ROOT / "tests" / "giving_server.py")]}
    async with asyncio.timeout(WAIT), MCPClient(params, WAIT) as client:
        await client.list_tools()
        args: dict[str, Any] = {"result": {"content": [], "structuredContent": structured}}
        assert await client.run("give_hostile", args) == structured


@pytest.mark.parametrize(
    ("args", "expected"),
    [pytest.param({"text": True}, "one\ntwo", id="text"), pytest.param({}, None, id="no_text")],
)
async def test_text_blocks_are_joined_by_newlines(args: dict[str, Any], expected: str | None):
    async with MCPClient(servers.scripted()) as client:
        assert await client.run("many_blocks", args) == expected


async def test_a_failed_tool_is_a_result_for_call_and_an_error_for_run():
    async with MCPClient(servers.scripted()) as client:
        assert (await client.call("fail", {"text": "no luck"})).is_error
        with pytest.raises(ToolRunnerError, match=r"^no luck$"):
            await client.run("fail", {"text": "no luck"})


async def test_an_error_code_that_the_sdk_uses_too_is_no_lost_connection():
    async with MCPClient(servers.scripted()) as client:
        with pytest.raises(ToolRunnerError, match=r"^no such repository$"):
            await client.run("refuse", {})
        assert not client.closed


async def test_an_answer_before_the_end_is_the_answer():
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted()) as client:
        with pytest.raises(ToolRunnerError, match=r"^these are my last words$"):
            await client.run("last_words", {})
        await client.wait_closed()


@pytest.mark.parametrize("era", ["--strict", "--modern"])
async def test_servers_of_every_era_are_connected_to(era: str):
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted(era)) as client:
        assert await client.run("echo", {"text": "hi"}) == "hi"


async def test_noise_on_stdout_is_ignored_when_the_server_answers():
    async with MCPClient(servers.scripted("--noisy")) as client:
        assert await client.run("echo", {"text": "hi"}) == "hi"


async def test_a_result_of_40_mib_is_read_in_time():
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted()) as client:
        result = await client.call("big", {"size": 40 << 20})

    (block,) = result.content
    assert block.model_dump()["text"] == "x" * (40 << 20)


@pytest.mark.parametrize(
    ("args", "limit"),
    [
        pytest.param({"size": MAX_MESSAGE_BYTES}, "134,217,728 bytes", id="bytes"),
        pytest.param({"values": MAX_VALUES}, "3,000,000 values", id="values"),
    ],
)
async def test_a_server_that_sends_too_much_is_stopped_and_the_calls_in_flight_say_why(
    args: dict[str, int], limit: str
):
    params = servers.scripted()
    lost = (
        f"lost the connection to `{params['command']} -S {params['args'][1]}`: it sent a message of more than {limit}"
    )
    async with asyncio.timeout(WAIT), MCPClient(params) as client:
        blocked = asyncio.create_task(client.run("block", {}))
        assert await client.run("echo", {"text": "hi"}) == "hi"
        for call in (client.run("big", args), blocked):
            with pytest.raises(MCPConnectionLost, match=re.escape(lost)):
                await call
        assert client.closed


async def test_a_server_that_writes_much_to_stderr_never_blocks_and_its_last_lines_are_kept(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
):
    caplog.set_level(logging.INFO, "ipybox")
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted()) as client:
        assert await client.run("chatter", {}) == "done"
        with pytest.raises(MCPConnectionLost) as error:
            await client.run("crash", {"code": 1})

    assert "line 199999\n" in str(error.value)
    assert len(str(error.value).splitlines()) == 11
    assert capfd.readouterr() == ("", "")


async def test_stderr_is_logged_at_debug(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, "ipybox")
    async with MCPClient(servers.scripted()) as client:
        with pytest.raises(MCPConnectionLost):
            await client.run("crash", {"code": 1})

    assert any("about to crash" in message for message in caplog.messages)


async def test_a_server_gets_the_default_environment_and_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_TOKEN", "s3cret-value")
    params = {**servers.scripted(), "env": {"TOKEN": "Bearer ${SECRET_TOKEN}"}}
    async with MCPClient(params) as client:
        env = json.loads(str(await client.run("env", {})))

    assert env["TOKEN"] == "Bearer s3cret-value"
    assert env["PATH"] == host_path(WritablePlaces(Path.cwd()))
    assert "SECRET_TOKEN" not in env


@pytest.mark.parametrize("method", ["crash", "kill"])
async def test_a_call_whose_server_dies_fails_and_says_how(method: str):
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted()) as client:
        pid = int(str(await client.run("pid", {})))
        blocked = asyncio.create_task(client.run("block", {}))
        if method == "crash":
            with pytest.raises(MCPConnectionLost, match=r"exited with code 7; .* stderr:\n    about to crash$"):
                await client.run("crash", {"code": 7})
        else:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(MCPConnectionLost, match=r"exited with code 7|killed by signal 9"):
            await blocked
        assert client.closed
        with pytest.raises(MCPConnectionLost, match=r"exited with code 7|killed by signal 9"):
            await client.run("echo", {"text": "hi"})


async def test_a_stdio_server_that_dies_between_calls_is_noticed():
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted()) as client:
        os.kill(int(str(await client.run("pid", {}))), signal.SIGKILL)
        await client.wait_closed()
        assert client.closed


@pytest.mark.parametrize("transport", ["streamableHttp", "sse"])
async def test_a_remote_server_that_dies_is_noticed_at_the_next_call(transport: Any):
    async with asyncio.timeout(WAIT), servers.http_everything(transport) as url:
        client = await MCPClient({"url": url}).__aenter__()
        await client.run("echo", {"message": "hi"})
    async with asyncio.timeout(WAIT):
        with pytest.raises(MCPConnectionLost, match=f"lost the connection to {url}: .*"):
            await client.run("echo", {"message": "hi"})
        assert client.closed
        await client.close()


@pytest.mark.parametrize("transport", ["streamableHttp", "sse"])
async def test_a_call_whose_remote_server_dies_fails(transport: Any):
    async with asyncio.timeout(WAIT):
        async with servers.http_everything(transport) as url:
            client = await MCPClient({"url": url}).__aenter__()
            await client.list_tools()
            operation = {"duration": 1000, "steps": 2}
            blocked = asyncio.create_task(client.run("trigger-long-running-operation", operation))
            await client.run("echo", {"message": "the call before has arrived"})
        with pytest.raises(MCPConnectionLost):
            await blocked
        assert client.closed
        await client.close()


async def test_a_remote_server_that_was_restarted_and_lost_the_session_is_noticed():
    async with asyncio.timeout(WAIT):
        async with servers.http_everything("streamableHttp") as url:
            client = await MCPClient({"url": url}).__aenter__()
            await client.run("echo", {"message": "hi"})
        async with servers.http_everything("streamableHttp", int(url.split(":")[2].split("/")[0])):
            with pytest.raises(MCPConnectionLost, match=r"no longer knows the session \(HTTP 400\)"):
                await client.run("echo", {"message": "hi"})
            assert client.closed
            await client.close()


async def test_cancelling_a_call_cancels_only_that_call(tmp_path: Path):
    log = tmp_path / "log"
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted("--log", str(log))) as client:
        blocked = asyncio.create_task(client.run("block", {}))
        assert await client.run("echo", {"text": "hi"}) == "hi"
        blocked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await blocked
        assert await client.run("echo", {"text": "hi"}) == "hi"

    assert log.read_text().split("\n")[1:3] == ["block", "cancelled"]


async def test_closing_fails_calls_in_flight_with_the_reason():
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted()) as client:
        await client.list_tools()
        blocked = asyncio.create_task(client.run("block", {}))
        await client.run("echo", {"text": "hi"})
        await client.close("time to go")
        with pytest.raises(MCPConnectionLost, match=r"time to go$"):
            await blocked


async def test_a_client_may_be_closed_by_another_task():
    async with asyncio.timeout(WAIT):
        client = await asyncio.create_task(MCPClient(servers.scripted()).__aenter__())
        await asyncio.create_task(client.close())
    assert client.closed


async def test_using_a_client_in_the_wrong_state_is_a_runtime_error():
    client = MCPClient(servers.scripted())
    with pytest.raises(RuntimeError, match="not entered"):
        await client.run("echo", {})
    async with client:
        with pytest.raises(RuntimeError, match="only once"):
            await client.__aenter__()


async def test_a_cancelled_start_stops_the_server(tmp_path: Path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = f"import sys, time; open({str(fifo)!r}, 'w').close(); time.sleep(1000)"
    start = asyncio.create_task(MCPClient(servers.python(code), WAIT).__aenter__())
    await asyncio.to_thread(fifo.read_bytes)

    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start


# What can be wrong with a server


async def test_a_command_that_does_not_exist_is_not_found():
    assert await failure({"command": "no-such-command", "args": ["x"]}) == (
        "can't start `no-such-command x`: command not found: no-such-command"
    )


async def test_a_command_is_looked_up_on_the_path_of_the_server(tmp_path: Path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "my-server").symlink_to("/bin/true")

    assert "not found" in await failure({"command": "my-server"})
    assert "exited with code 0" in await failure({"command": "my-server", "env": {"PATH": str(tmp_path / "bin")}})
    assert "exited with code 0" in await failure({"command": "bin/my-server", "cwd": str(tmp_path)})


async def test_a_directory_that_does_not_exist_is_named(tmp_path: Path):
    assert "no such directory: " in await failure({**servers.scripted(), "cwd": str(tmp_path / "nope")})


async def test_a_command_that_is_no_program_says_why(tmp_path: Path):
    (tmp_path / "server").write_text("#!/no/such/interpreter\n")
    (tmp_path / "server").chmod(0o755)

    message = await failure({"command": str(tmp_path / "server")})

    assert "can't be started: No such file or directory" in message


async def test_a_server_that_dies_at_its_start_gives_exit_code_and_stderr():
    message = await failure(servers.python("import sys; sys.exit('no configuration')"))

    assert "it exited with code 1 before answering; its last lines on stderr:\n    no configuration" in message


NODE = "function f(n) { if (n) f(n - 1); throw new Error('API_KEY is not set', {cause: new TypeError('none')}); } f(9)"
PYTHON = "def f(n): return n and f(n - 1) or int('nothing')\n"
PYTHON_TASKS = (
    "import asyncio\nasync def fail(): raise ValueError('API_KEY is not set')\nasync def run():\n"
    "    async with asyncio.TaskGroup() as group: group.create_task(fail())\nasyncio.run(run())"
)


@pytest.mark.parametrize(
    ("params", "said", "frame"),
    [
        ({"command": "node", "args": ["-e", NODE]}, ["Error: API_KEY is not set", "[cause]: TypeError: none"], "  at "),
        ({"command": "node", "args": ["--input-type=module", "-e", NODE]}, ["Error: API_KEY is not set"], "  at "),
        (servers.python(f"{PYTHON}f(9)"), ["Traceback (", "ValueError: invalid literal for int()"], "  File "),
        (servers.python(f"import sys; print('a', 'b', sep='\\n', file=sys.stderr)\n{PYTHON}f(9)"), ["b\n"], "  File "),
        (servers.python(PYTHON_TASKS), ["ExceptionGroup: unhandled", "| ValueError: API_KEY is not set"], "  File "),
    ],
)
async def test_a_server_that_fails_shows_its_error_and_no_frames(params: dict[str, Any], said: list[str], frame: str):
    message = await failure(params)

    for text in said:
        assert text in message
    assert frame not in message


async def test_a_server_that_is_killed_at_its_start_gives_the_signal():
    assert "it was killed by signal 9 before" in await failure({"command": "sh", "args": ["-c", "kill -9 $$"]})


async def test_a_program_that_is_no_mcp_server_shows_what_it_wrote():
    assert "it wrote 'usage' where an MCP message belongs" in await failure(servers.python("print('usage')"))


async def test_a_server_that_hangs_is_given_up_and_stopped_in_time():
    started = time.monotonic()

    message = await failure(servers.python("import time; time.sleep(1000)"), 0.5)

    assert "no answer within 0.5 s" in message
    assert time.monotonic() - started < 3


async def test_a_url_that_nobody_serves_is_refused():
    async with servers.http_page() as url:
        pass

    for path in ("mcp", "sse"):
        assert await failure({"url": f"{url}/{path}"}) == f"can't connect to {url}/{path}: connection refused"


@pytest.mark.parametrize("kind", ["http", "sse"])
@pytest.mark.parametrize(
    ("status", "problem"), [(200, "not an MCP server: .*text/html"), (404, "HTTP 404"), (501, "HTTP 501")]
)
async def test_a_url_of_something_else_says_what_it_got(kind: str, status: int, problem: str):
    async with servers.http_page(status) as url:
        message = await failure({"url": url, "type": kind})

    assert re.search(problem, message)


async def test_a_url_that_never_answers_is_given_up():
    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(ignore, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for kind in ("http", "sse"):
            assert "no answer within 0.5 s" in await failure({"url": url, "type": kind}, 0.5)


async def test_a_missing_variable_is_named_and_nothing_is_started(tmp_path: Path):
    params = servers.scripted("--log", str(tmp_path / "log"), "${NO_SUCH_VARIABLE}")

    with pytest.raises(MissingVariableError, match=r"\$\{NO_SUCH_VARIABLE\}"):
        await MCPClient(params).__aenter__()

    assert not (tmp_path / "log").exists()


async def test_messages_show_placeholders_and_never_their_values(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv("SECRET_TOKEN", "s3cret-value")
    caplog.set_level(logging.DEBUG, "ipybox")
    code = "import sys; print(sys.argv[1]); sys.exit('bad token: ' + sys.argv[1])"
    params = servers.python(code)
    params["args"].append("${SECRET_TOKEN}")

    message = await failure(params)

    assert "bad token: ${SECRET_TOKEN}" in message
    assert "it wrote '${SECRET_TOKEN}'" in message
    assert "s3cret-value" not in message + "".join(caplog.messages)


async def test_credentials_of_a_url_are_not_shown():
    message = await failure({"url": "http://user:password@127.0.0.1:1/mcp?key=s3cret"})

    assert message == "can't connect to http://127.0.0.1:1/mcp: connection refused"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        pytest.param({}, "neither", id="nothing"),
        pytest.param({"command": "a", "url": "http://b/mcp"}, "not both", id="command_and_url"),
        pytest.param({"command": 1}, "'command'", id="command_is_no_string"),
        pytest.param({"command": ""}, "'command'", id="command_is_empty"),
        pytest.param({"command": "a", "args": "b"}, "'args'", id="args_is_no_list"),
        pytest.param({"command": "a", "args": [1]}, "'args'", id="args_with_a_number"),
        pytest.param({"command": "a", "env": {"X": 1}}, r"'env'\]\['X'", id="env_with_a_number"),
        pytest.param({"command": "a", "env": []}, "'env'", id="env_is_no_dict"),
        pytest.param({"command": "a", "cwd": 1}, "'cwd'", id="cwd_is_no_string"),
        pytest.param({"command": "a", "timeout": 1}, "'timeout'", id="unknown_key"),
        pytest.param({"command": "a", "headers": {}}, "'headers'", id="headers_of_a_command"),
        pytest.param({"command": "a", "type": "http"}, "'type'", id="type_of_a_url"),
        pytest.param({"url": "http://a/mcp", "type": "stdio"}, "'type'", id="type_of_a_command"),
        pytest.param({"url": "http://a/mcp", "type": "websocket"}, "'type'", id="unknown_type"),
        pytest.param({"url": "http://a/mcp", "headers": {"X": 1}}, "'headers'", id="header_is_a_number"),
        pytest.param({"url": "http://mcp.example.org/"}, "give 'type'", id="url_without_a_hint"),
        pytest.param({"url": "ftp://a/mcp"}, "http://", id="url_of_another_scheme"),
        pytest.param({"url": "http://[a/mcp"}, "'url'", id="url_is_none"),
        pytest.param([], "dict", id="no_dict"),
    ],
)
def test_parameters_of_a_wrong_shape_are_refused_by_key(params: Any, message: str):
    with pytest.raises(ValueError, match=message):
        MCPClient(params)


# Nothing outlives its application


APPLICATION = f"""
import asyncio, json, sys
sys.path.insert(0, {str(servers.ROOT)!r})
from ipybox.mcp_client import MCPClient
from tests import servers

async def main():
    log = sys.argv[1]
    async with (
        MCPClient(servers.everything(), 30),
        MCPClient(servers.scripted("--log", log), 30),
        MCPClient(servers.scripted("--stubborn", "--daemon", "--log", log), 30) as stubborn,
        MCPClient({{"command": "sh", "args": ["-c", "node $0 stdio; true", servers.everything()["args"][0]]}}, 30),
    ):
        task = asyncio.create_task(stubborn.run("block", {{}}))
        print("ready", flush=True)
        await task

asyncio.run(main())
"""


async def test_no_server_outlives_an_application_that_is_killed(tmp_path: Path):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", APPLICATION, str(tmp_path / "log"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(2 * WAIT):
        assert await process.stdout.readline() == b"ready\n"
    running = servers.descendants(process.pid)
    assert len(running) >= 9

    process.kill()
    await process.wait()

    assert await servers.until_dead(running, timeout=2) == set()


async def test_stopping_a_stubborn_server_is_bounded_and_leaves_nothing():
    async with asyncio.timeout(WAIT):
        client = await MCPClient(servers.scripted("--stubborn", "--daemon"), WAIT).__aenter__()
        running = servers.descendants()
        started = time.monotonic()
        await client.close()

    assert time.monotonic() - started < 2
    assert len(running) >= 4
    assert await servers.until_dead(running, timeout=2) == set()


async def test_a_server_that_crashes_leaves_nothing():
    async with asyncio.timeout(WAIT), MCPClient(servers.scripted("--daemon"), WAIT) as client:
        running = servers.descendants()
        with pytest.raises(MCPConnectionLost, match="exited with code 3"):
            await client.run("crash", {"code": 3})
        assert await servers.until_dead(running, timeout=2) == set()
