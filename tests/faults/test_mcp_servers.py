"""MCP servers with faults, called by code in a kernel: the call fails or not, and nothing else is lost.

More of them, without a kernel, in `tests/mcp_client/client` and `tests/tool_exec/test_server_connections.py`.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ipybox import CodeExecutionError
from ipybox.errors import ExecutionTimeoutError
from tests import servers
from tests.faults.conftest import Family
from tests.faults.http_faults import Fault, FaultyHTTPServer, faulty_http_server
from tests.faults.processes import until_there
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOST = "MCP server 'faulty': lost the connection to "


def faulty(fault: str, state: Path) -> dict[str, Any]:
    script = Path(__file__).with_name("faulty_server.py")
    return {"command": sys.executable, "args": ["-S", str(script), fault, str(state)]}


async def register(family: Family, params: dict[str, Any]) -> None:
    seal = servers.registered("faulty", params, family.directory / "mcptools")
    code = f"faulty = ToolRunner.from_env('faulty', {params!r}, seal={seal!r})"
    await family.executor.execute(f"from ipybox.tool_exec.client import ToolRunner\n{code}", timeout=WAIT)


async def call(family: Family, tool: str, timeout: float = WAIT, **args: Any) -> str | None:
    code = f"print(faulty.run_sync({tool!r}, {args!r}))"
    async with asyncio.timeout(2 * WAIT):
        return (await family.executor.execute(code, timeout)).text


@pytest.mark.parametrize(
    "fault",
    [
        "floods_stderr",
        "prints_banners",
        "prints_garbage",
        "answers_twice",
        "answers_with_a_wrong_id",
    ],
)
async def test_a_server_that_writes_too_much_is_understood_all_the_same(family: Family, tmp_path: Path, fault: str):
    await register(family, faulty(fault, tmp_path / "state"))
    for number in range(2):
        assert await call(family, "call") == "called"
        assert await call(family, "echo", text=f"echo {number}") == f"echo {number}"
    await family.check()


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (
            "exits",
            r"it exited with code 1; last lines on stderr:\n +gone fishing\n\[ipybox\] Before this error: ",
        ),
        ("closes_stdout", "it closed its stdout"),
        ("answers_in_part", "it exited with code 0"),
    ],
)
async def test_a_server_that_goes_in_mid_call_fails_that_call_and_is_started_again(
    family: Family, tmp_path: Path, fault: str, error: str
):
    await register(family, faulty(fault, tmp_path / "state"))
    with pytest.raises(CodeExecutionError, match=f"{LOST}.*{error}"):
        await call(family, "call")
    assert await call(family, "call") == "called"
    await family.check()


async def test_a_malformed_result_is_what_the_server_meant(family: Family, tmp_path: Path):
    await register(family, faulty("answers_a_malformed_result", tmp_path / "state"))
    assert await call(family, "call") == "not a list"
    assert await call(family, "echo", text="hello") == "hello"
    await family.check()


async def test_a_server_that_no_longer_has_a_tool_says_so(family: Family, tmp_path: Path):
    await register(family, faulty("changes_its_tools", tmp_path / "state"))
    assert await call(family, "call") == "called"
    with pytest.raises(CodeExecutionError, match=r"ToolRunnerError: .*Unknown tool: call"):
        await call(family, "call")
    assert await call(family, "echo", text="hello") == "hello"
    await family.check()


async def test_a_late_answer_is_nobody_elses(family: Family, tmp_path: Path):
    state = tmp_path / "state"
    await register(family, faulty("answers_late", state))
    with pytest.raises(ExecutionTimeoutError, match="was interrupted and keeps its state"):
        await call(family, "call", timeout=1)
    await until_there(state)
    state.unlink()
    assert [await call(family, "echo", text=str(number)) for number in range(3)] == ["0", "1", "2"]
    await family.check()


async def test_a_server_that_hangs_costs_the_time_of_its_calls_and_a_reset_ends_it(family: Family, tmp_path: Path):
    params = faulty("hangs", tmp_path / "state")
    await register(family, params)
    for tool in ("call", "echo"):
        with pytest.raises(ExecutionTimeoutError, match="was interrupted and keeps its state"):
            await call(family, tool, timeout=1, text="hello")
    await family.check()
    await family.executor.reset()
    await register(family, params)
    assert await call(family, "echo", text="hello") == "hello"


# HTTP


@pytest_asyncio.fixture(loop_scope="module")
async def http() -> AsyncIterator[FaultyHTTPServer]:
    async with faulty_http_server() as server:
        yield server


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("redirects", "Redirect to http://.*/elsewhere not followed"),
        ("answers_500", "HTTP 500: out of luck"),
        ("drops_the_connection", "was sent to .*, but its outcome is unknown: Server disconnected without"),
        ("answers_html", "text/html"),
    ],
)
async def test_an_http_server_with_a_fault_fails_the_call_and_the_next_one_works(
    family: Family, http: FaultyHTTPServer, fault: Fault, error: str
):
    await register(family, {"url": http.url})
    assert await call(family, "echo", text="before") == "before"
    http.fault = fault
    with pytest.raises(CodeExecutionError, match=error):
        await call(family, "echo", text="lost")
    http.fault = None
    assert await call(family, "echo", text="after") == "after"
    await family.check()


async def test_an_http_server_that_forgets_a_session_gets_the_call_in_a_new_one(family: Family, http: FaultyHTTPServer):
    await register(family, {"url": http.url})
    assert await call(family, "echo", text="before") == "before"
    http.fault = "forgets_sessions"
    assert await call(family, "echo", text="after") == "after"
    await family.check()


async def test_an_http_server_that_hangs_costs_the_time_of_its_call(family: Family, http: FaultyHTTPServer):
    await register(family, {"url": http.url})
    http.fault = "hangs"
    with pytest.raises(ExecutionTimeoutError, match="was interrupted and keeps its state"):
        await call(family, "echo", timeout=1, text="lost")
    http.fault = None
    assert await call(family, "echo", text="after") == "after"
    await family.check()


async def test_an_http_server_that_is_restarted_fails_calls_only_while_it_is_down(family: Family):
    async with servers.http_everything("streamableHttp") as url:
        await register(family, {"url": url})
        assert await call(family, "echo", message="hi") == "Echo: hi"
    with pytest.raises(CodeExecutionError, match=r"can't reach .*: connection refused; the request was not sent$"):
        await call(family, "echo", message="hi")
    async with servers.http_everything("streamableHttp", int(url.split(":")[2].split("/")[0])):
        assert await call(family, "echo", message="hi") == "Echo: hi"
        await family.check()
