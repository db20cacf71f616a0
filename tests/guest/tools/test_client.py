"""`ToolRunner` in a kernel, where generated packages use it: threads, tasks, forks and interrupts."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutionResult, CodeExecutor
from ipybox.errors import ToolRunnerError
from ipybox.guest.tools.client import ToolRunner, reset
from ipybox.guest.tools.models import wire
from ipybox.support.tokens import find_token, publish_token
from ipybox.tool_exec.server import ToolServer
from tests import servers
from tests.conftest import Mode, both_modes
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

ECHO = {"command": sys.executable, "args": [str(Path(__file__).parents[2] / "echo_server.py")]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def caller(tmp_path_factory: pytest.TempPathFactory, mode: Mode, shared: None) -> AsyncIterator[CodeExecutor]:
    """An executor whose kernel has `echo`, a runner of the SDK's server, `scripted`, one that misbehaves, and others
    that can't be started."""
    directory = tmp_path_factory.mktemp("caller")
    servers.register(
        directory,
        echo=ECHO,
        scripted=servers.scripted(),
        missing={"command": "no-such-command"},
        variable={"command": "${NO_SUCH_VARIABLE}"},
        shape={"nothing": 1},
    )
    async with CodeExecutor(working_dir=directory, sandbox=mode.sandbox) as executor:
        await executor.execute("""
import asyncio, json, os
from ipybox.guest.tools.client import ToolRunner, ToolRunnerError
from registered import echo, missing, scripted, shape, variable
def call(text): return echo.run_sync("echo", {"text": str(text)})["result"]
async def acall(text): return (await echo.run("echo", {"text": str(text)}))["result"]
""")
        yield executor


async def printed(executor: CodeExecutor, code: str) -> Any:
    """Returns what the last line of the output holds as JSON."""
    text = (await executor.execute(code, timeout=60)).text
    assert text is not None
    return json.loads(text.splitlines()[-1])


async def test_results_are_structured_content_or_text_or_none(caller: CodeExecutor):
    code = """
results = [
    echo.run_sync("echo", {"text": "ä\\U0001f600"}),
    scripted.run_sync("echo", {"text": "plain"}),
    scripted.run_sync("many_blocks", {"text": True}),
    scripted.run_sync("many_blocks", {}),
    echo.run_structured("echo", {"text": "b"}),
]
print(json.dumps(results))
"""
    result = await caller.execute(code)

    assert json.loads(result.text or "") == [
        *({"result": "ä\U0001f600"}, "plain", "one\ntwo", None),
        {"result": "b"},
    ]
    assert len(result.images) == 2


async def test_top_level_await_works(caller: CodeExecutor):
    code = """
first = await acall("a")
both = await asyncio.gather(acall("b"), acall("c"))
print(json.dumps([first, *both]))
"""
    assert await printed(caller, code) == ["a", "b", "c"]


async def test_blocking_calls_work_within_tasks_and_asyncio_in_threads(caller: CodeExecutor):
    code = """
async def blocking(): return call("a")
in_thread = await asyncio.to_thread(lambda: asyncio.run(acall("b")))
print(json.dumps([await blocking(), in_thread, await acall("c")]))
"""
    assert await printed(caller, code) == ["a", "b", "c"]


async def test_threads_and_tasks_at_once_each_get_their_own_answer_in_any_order_of_approvals(caller: CodeExecutor):
    code = """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(20)
loop = asyncio.get_running_loop()
threads = [loop.run_in_executor(pool, call, f"thread {i}") for i in range(20)]
tasks = [acall(f"task {i}") for i in range(20)]
print(json.dumps(await asyncio.gather(*threads, *tasks)))
"""
    requests: list[ApprovalRequest] = []
    async for item in caller.stream(code, timeout=WAIT):
        if isinstance(item, ApprovalRequest):
            requests.append(item)
            if len(requests) == 40:
                for request in reversed(requests):
                    await request.accept()
        elif isinstance(item, CodeExecutionResult):
            assert json.loads(item.text or "") == [f"{kind} {i}" for kind in ("thread", "task") for i in range(20)]

    assert len(requests) == 40


@pytest.mark.parametrize("how", ["fork", "multiprocessing"])
async def test_calls_of_a_forked_child_and_its_parent_do_not_mix(caller: CodeExecutor, how: str):
    code = """
import multiprocessing, warnings
call("there is a connection to inherit")
await acall("and one of asyncio")
def calls(name): return [call(f"{name} {i}") for i in range(20)]
def child(out): os.write(out, json.dumps(calls("child")).encode())
receive, send = os.pipe()
"""
    fork = """
pid = os.fork()
if pid == 0:
    try:
        child(send)
    finally:
        os._exit(0)
of_parent = calls("parent")
os.waitpid(pid, 0)
"""
    process = """
process = multiprocessing.get_context("fork").Process(target=child, args=(send,))
process.start()
of_parent = calls("parent")
process.join()
"""
    code += (fork if how == "fork" else process) + "print(json.dumps([of_parent, json.loads(os.read(receive, 65536))]))"

    assert await printed(caller, code) == [[f"{name} {i}" for i in range(20)] for name in ("parent", "child")]
    assert await printed(caller, "print(json.dumps([call('sync'), await acall('async')]))") == ["sync", "async"]


@pytest.mark.parametrize(
    "blocking",
    ["scripted.run_sync('block', {})", "await scripted.run('block', {})"],
    ids=["run_sync", "run"],
)
async def test_after_an_interrupt_during_a_call_the_next_one_gets_its_own_answer(caller: CodeExecutor, blocking: str):
    await printed(caller, "print(json.dumps(scripted.run_sync('echo', {'text': 'warm'})))")
    with pytest.raises(TimeoutError, match="interrupted and keeps its state"):
        await caller.execute(blocking, timeout=0.5)

    code = "print(json.dumps([scripted.run_sync('echo', {'text': 'a'}), await scripted.run('echo', {'text': 'b'})]))"
    assert await printed(caller, code) == ["a", "b"]


async def test_a_cancelled_task_does_not_disturb_the_others(caller: CodeExecutor):
    code = """
blocked = asyncio.create_task(scripted.run("block", {}))
first = await acall("a")
blocked.cancel()
try:
    await blocked
except asyncio.CancelledError:
    print(json.dumps([first, await acall("b"), await scripted.run("echo", {"text": "c"})]))
"""
    assert await printed(caller, code) == ["a", "b", "c"]


async def test_a_server_that_crashes_fails_the_call_and_is_started_again_by_the_next_one(caller: CodeExecutor):
    with pytest.raises(CodeExecutionError) as error:
        await caller.execute("scripted.run_sync('crash', {'code': 3})")

    last = str(error.value).splitlines()
    assert any(line.startswith("ToolRunnerError: MCP server 'scripted'") for line in last)
    assert await printed(caller, "print(json.dumps(scripted.run_sync('echo', {'text': 'again'})))") == "again"


async def test_errors_of_calls_can_be_caught_and_name_the_cause(caller: CodeExecutor):
    code = """
messages = []
for runner, tool, args in (
    (scripted, "fail", {"text": "it broke"}),
    (scripted, "refuse", {}),
    (echo, "nothing", {}),
    (missing, "x", {}),
    (variable, "x", {}),
    (shape, "x", {}),
):
    try:
        runner.run_sync(tool, args)
    except ToolRunnerError as exc:
        messages.append(str(exc))
print(json.dumps(messages))
"""
    messages = await printed(caller, code)

    assert len(messages) == 6
    for message, part in zip(
        messages,
        ("it broke", "no such repository", "nothing", "no-such-command", "NO_SUCH_VARIABLE", "command"),
        strict=True,
    ):
        assert part in message


@both_modes
async def test_parameters_that_were_not_registered_are_for_kernels_without_a_sandbox(caller: CodeExecutor, mode: Mode):
    code = f"ToolRunner.from_env('scripted', {servers.scripted()!r}).run_sync('echo', {{'text': 'unsealed'}})"
    if mode.sandbox:
        with pytest.raises(CodeExecutionError, match="MCP server 'scripted' is not registered in this workspace"):
            await caller.execute(code)
    else:
        assert (await caller.execute(code)).text == "'unsealed'"


async def test_arguments_that_utf8_can_not_encode_are_refused_and_the_next_call_works(caller: CodeExecutor):
    with pytest.raises(CodeExecutionError, match=r"can.t send the arguments of echo: text is not valid Unicode"):
        await caller.execute("call(chr(0xd800))")
    assert await printed(caller, "print(json.dumps(call('fine')))") == "fine"


async def test_arguments_that_json_can_not_hold_are_refused_and_the_next_call_works(caller: CodeExecutor):
    with pytest.raises(
        CodeExecutionError, match=r"can.t send the arguments of echo: text is -inf, which JSON can't represent"
    ):
        await caller.execute("scripted.run_sync('echo', {'text': float('-inf')})")
    assert await printed(caller, "print(json.dumps(call('fine')))") == "fine"


async def test_a_traceback_ends_at_the_users_code(caller: CodeExecutor):
    for blocking in ("scripted.run_sync('fail', {'text': 'x'})", "await scripted.run('fail', {'text': 'x'})"):
        with pytest.raises(CodeExecutionError) as error:
            await caller.execute(f"def f():\n    pass\n{blocking}")

        assert f"----> 3 {blocking}" in str(error.value)
        assert str(error.value).endswith("ToolRunnerError: x")
        assert "tool_exec/client.py" not in str(error.value)


async def test_code_in_the_kernel_can_not_reset_the_tool_server(caller: CodeExecutor):
    with pytest.raises(CodeExecutionError, match="the tool server refused to reset: HTTP 404"):
        await caller.execute("await echo.reset()")


async def test_the_guest_can_not_reach_more_than_its_face(caller: CodeExecutor):
    code = """
import http.client
def ask(method, path, headers):
    connection = http.client.HTTPConnection(os.environ["TOOL_SERVER_HOST"], int(os.environ["TOOL_SERVER_PORT"]))
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    connection.close()
    return response.status
token = {"Authorization": "token " + os.environ["TOOL_SERVER_TOKEN"]}
print(json.dumps([ask(m, p, h) for h in ({}, token) for m, p in
    (("PUT", "/reset"), ("GET", "/status"), ("GET", "/approval"), ("POST", "/run"))]))
"""
    assert await printed(caller, code) == [401, 401, 401, 401, 404, 404, 404, 400]


# Outside of a kernel


async def test_a_tool_server_that_is_not_there_is_an_error_that_names_its_address():
    with socket.create_server(("127.0.0.1", 0)) as freed:
        port = freed.getsockname()[1]
    runner = ToolRunner("server", {"command": "x"}, "127.0.0.1", port)
    message = f"no response from the tool server at 127.0.0.1:{port}: "

    with pytest.raises(ToolRunnerError, match=message):
        await runner.run("tool", {})
    with pytest.raises(ToolRunnerError, match=message):
        runner.run_sync("tool", {})
    for resetting in (runner.reset(), reset("127.0.0.1", port)):
        with pytest.raises(ToolRunnerError, match=message):
            await resetting


async def test_what_is_no_tool_server_is_an_error_with_its_answer():
    async with servers.http_page(status=418, body="I'm a teapot") as url:
        runner = ToolRunner("server", {}, "127.0.0.1", int(url.rpartition(":")[2]))
        with pytest.raises(ToolRunnerError, match="the tool server answered with HTTP 418: I'm a teapot"):
            await runner.run("tool", {})
    async with servers.http_page(body="{}") as url:
        runner = ToolRunner("server", {}, "127.0.0.1", int(url.rpartition(":")[2]))
        with pytest.raises(ToolRunnerError, match="the tool server made none of the calls"):
            await asyncio.to_thread(runner.run_many, "tool", [{}])


async def both_ways(runner: ToolRunner) -> list[dict[str, Any] | str | None]:
    arguments = {"text": "x"}
    return [await runner.run("echo", arguments), await asyncio.to_thread(runner.run_sync, "echo", arguments)]


async def test_a_runner_finds_the_token_of_a_tool_server_that_was_restarted():
    async with ToolServer(port=0) as server:
        runner = ToolRunner("scripted", servers.scripted(), port=server.port or 0)
        assert await both_ways(runner) == ["x", "x"]
    async with ToolServer(port=server.port):
        assert await both_ways(runner) == ["x", "x"]
        await runner.reset()


async def test_a_runner_looks_a_token_up_again_that_was_refused_but_not_one_that_was_given():
    refused = "the request's token is missing or wrong"
    async with ToolServer(port=0) as server:
        port = server.port or 0
        token = find_token("tool-server", port)
        assert token is not None
        runner = ToolRunner("scripted", servers.scripted(), port=port)
        publish_token("tool-server", port, "of another one")
        for _ in range(2):
            with pytest.raises(ToolRunnerError, match=refused):
                await runner.run("echo", {"text": "x"})
            with pytest.raises(ToolRunnerError, match=refused):
                await asyncio.to_thread(runner.run_sync, "echo", {"text": "x"})
        publish_token("tool-server", port, token)
        assert await both_ways(runner) == ["x", "x"]
        with pytest.raises(ToolRunnerError, match=refused):
            await ToolRunner("scripted", servers.scripted(), port=port, token="given").run("echo", {"text": "x"})


async def test_a_runner_takes_its_address_and_token_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        heads.append(head)
        writer.write(b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 18\r\n\r\n{"structured": {}}')
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        monkeypatch.setenv("TOOL_SERVER_HOST", "127.0.0.1")
        monkeypatch.setenv("TOOL_SERVER_PORT", str(server.sockets[0].getsockname()[1]))
        monkeypatch.setenv("TOOL_SERVER_TOKEN", "from the environment")
        assert await ToolRunner.from_env("server", {}).run("tool", {}) == {}

    assert b"Authorization: token from the environment\r\n" in heads[0]


async def test_arguments_that_are_no_params_are_an_error_that_says_so():
    with pytest.raises(TypeError, match=r"^the argument is a dict: pass Params\(\.\.\.\) from the tool's module$"):
        wire({"timezone": "UTC"})  # pyright: ignore[reportArgumentType] - as agents do
