"""Cells that outlast a request: `wait` returns what they printed, and empty code waits for the rest."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, TextContent

from ipybox import ExecutorConfig
from ipybox.mcp_server import MCPServer, progress
from ipybox.mcp_server import approver as approver_module
from tests import servers
from tests.mcp_server.in_process import connected
from tests.servers import WAIT

Era = Literal["legacy", "auto"]

STILL = (
    r"\[ipybox\] The cell is still running after \d+ s. To get its output, call execute_ipython_cell with empty code"
)

#: Prints lines, each when a file of its name appears.
GATED = """
import os, time
def gate(name):
    while not os.path.exists(name): time.sleep(0.01)
    print(name)
print("begun")
gate("a"); gate("b")
"""
ASKS = "from registered import scripted\nprint(scripted.run_sync('echo', {'text': 'hello'}))"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approver_module, "READING_TIME", 0)


@asynccontextmanager
async def client_of(workspace: Path, **options: Any) -> AsyncGenerator[Client]:
    user = options.pop("user", None)
    era: Era = options.pop("era", "auto")
    server = MCPServer(ExecutorConfig(working_dir=workspace), **options)
    async with connected(server, elicitation_callback=user, mode=era) as client:
        yield client


async def result(client: Client, code: str, **arguments: Any) -> CallToolResult:
    async with asyncio.timeout(2 * WAIT):
        return await client.call_tool("execute_ipython_cell", {"code": code, **arguments})


async def run(client: Client, code: str, **arguments: Any) -> list[str]:
    """Returns the blocks of a result, of which the second is ipybox's."""
    content = (await result(client, code, **arguments)).content
    return [block.text for block in content if isinstance(block, TextContent)]


async def begun(client: Client, code: str, session: str = "default", **arguments: Any) -> list[str]:
    """Starts a cell, and returns the blocks of the first result with output."""
    blocks = await run(client, code, wait=0.2, session=session, **arguments)
    while len(blocks) == 1:
        assert re.match(STILL, blocks[0])
        blocks = await run(client, "", wait=0.2, session=session)
    return blocks


async def waiter(client: Client, session: str) -> "asyncio.Task[list[str]]":
    """Returns a request that waits for the session's cell, after another one was refused because of it."""
    requests = [asyncio.create_task(run(client, "", session=session)) for _ in range(2)]
    (refused,), (waiting,) = await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
    assert refused.result()[0].startswith("another request is waiting for the cell: ")
    return waiting


async def test_each_wait_returns_new_output_and_the_last_one_the_result_once(tmp_path: Path):
    async with client_of(tmp_path) as client:
        printed, told = await begun(client, GATED)
        assert printed == "begun"
        assert re.match(STILL, told)
        (nothing,) = await run(client, "", wait=0)
        assert re.match(STILL, nothing)
        (tmp_path / "a").touch()
        blocks = [""]
        while len(blocks) == 1:
            blocks = await run(client, "", wait=0.2)
        assert blocks[0] == "a"
        refused = await result(client, "print('other')")
        assert refused.is_error
        said = refused.content[0]
        assert isinstance(said, TextContent)
        assert re.search(r"'import os, time', started at \d\d:\d\d:\d\d", said.text)
        assert await run(client, "6 * 7", session="another") == ["42"], "other sessions go on"
        (tmp_path / "b").touch()
        assert await run(client, " \n") == ["b"]
        assert await run(client, "") == ["(no output)"], "the result comes once, and empty code is a cell again"
        assert await run(client, "print('next')", wait=WAIT) == ["next"]


async def test_finished_cell_keeps_its_result_and_an_error_what_was_not_seen(tmp_path: Path):
    code = f"{GATED}\nfrom IPython.display import clear_output\nprint('last')\n1 / 0"
    async with client_of(tmp_path) as client:
        assert (await begun(client, code))[0] == "begun"
        for name in "ab":
            (tmp_path / name).touch()
        waiting = await result(client, "", wait=WAIT)
        assert waiting.is_error
        said = waiting.content[0]
        assert isinstance(said, TextContent)
        assert said.text.startswith("a\nb\nlast\n")
        assert "ZeroDivisionError" in said.text
        assert await run(client, "print('alive')") == ["alive"]


async def test_cleared_output_is_returned_as_it_is_in_the_end(tmp_path: Path):
    code = GATED.replace('gate("b")', "from IPython.display import clear_output; clear_output(); print('bigger')")
    async with client_of(tmp_path) as client:
        assert (await begun(client, code))[0] == "begun"
        (tmp_path / "a").touch()
        assert await run(client, "") == ["bigger"]


@pytest.mark.parametrize("session", ["default", "other"])
async def test_reset_and_cancelling_end_a_cell_and_its_calls_are_told(tmp_path: Path, session: str):
    servers.register(tmp_path, scripted=servers.scripted())
    loops = "from registered import scripted\nscripted.run_sync('echo', {'text': 'a'})\nprint('in')\nwhile True: pass"
    async with client_of(tmp_path) as client:
        assert (await begun(client, loops, session=session))[0] == "in"
        waiting = await waiter(client, session)
        await client.call_tool("reset", {"session": session})
        assert "reset" in " ".join(await waiting)
        if session == "default":
            printed, notice = await run(client, "print('new')")
            assert printed == "new"
            assert notice == "[ipybox] Before the last cell was cancelled: scripted.echo ×1 done."

        assert (await begun(client, "print('in')\nwhile True: pass"))[0] == "in"
        waiting = await waiter(client, "default")
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (await run(client, "print('free')"))[0] == "free"


async def test_timeout_ends_a_cell_that_nobody_waits_for(tmp_path: Path):
    async with client_of(tmp_path) as client:
        assert (await begun(client, "print('in')\nwhile True: pass", timeout=1))[0] == "in"
        assert "exceeded 2 s" in (await run(client, "while True: pass", timeout=2, session="clock"))[0]
        assert "the execution exceeded 1 s" in (await run(client, ""))[0]


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_question_between_two_requests_waits_and_is_shown_by_the_next(tmp_path: Path, era: Era):
    forms: list[ElicitRequestParams] = []

    async def accept(_: ClientRequestContext, form: ElicitRequestParams) -> ElicitResult:
        forms.append(form)
        return ElicitResult(action="accept", content={"scope": "only this call"})

    servers.register(tmp_path, scripted=servers.scripted())
    code = f"{GATED}\n{ASKS}\n{ASKS}"
    async with client_of(tmp_path, user=accept, era=era, approve="ask") as client:
        assert (await begun(client, code, timeout=WAIT))[0] == "begun"
        for name in "ab":
            (tmp_path / name).touch()
        # Meanwhile, another session of the same client asks.
        assert await run(client, ASKS, session="other") == ["hello"]
        assert len(forms) == 1
        assert await run(client, "", wait=WAIT) == ["a\nb\nhello\nhello"]
        assert len(forms) == 3


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_question_is_shown_to_a_client_that_only_looks(tmp_path: Path, era: Era):
    async def accept(_: ClientRequestContext, form: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"scope": "only this call"})

    servers.register(tmp_path, scripted=servers.scripted())
    async with client_of(tmp_path, user=accept, era=era, approve="ask") as client, asyncio.timeout(WAIT):
        blocks = await run(client, ASKS, wait=0)
        while "still running" in blocks[-1]:
            blocks += await run(client, "", wait=0)
    assert "hello" in blocks


@pytest.mark.parametrize(
    ("era", "others", "said"),
    [
        ("legacy", False, "reset"),
        ("auto", False, "reset"),
        ("auto", True, "the cell that showed this form has ended"),
    ],
)
async def test_answer_to_a_form_whose_cell_has_ended_has_no_effect(tmp_path: Path, era: Era, others: bool, said: str):
    forms: list[ElicitRequestParams] = []
    shown, late = asyncio.Event(), asyncio.Event()

    async def accept(_: ClientRequestContext, form: ElicitRequestParams) -> ElicitResult:
        forms.append(form)
        if len(forms) == 1:
            shown.set()
            await late.wait()
        return ElicitResult(action="accept", content={"scope": "only this call"})

    servers.register(tmp_path, scripted=servers.scripted())
    async with client_of(tmp_path, user=accept, era=era, approve="ask") as client:
        ended = asyncio.create_task(run(client, ASKS))
        await shown.wait()
        await client.call_tool("reset", {})
        if others:
            assert await run(client, ASKS, session="other") == ["hello"]
        late.set()
        assert said in (await ended)[0]


async def test_progress_of_a_cell_is_told_to_the_request_that_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(progress, "PAUSE", 0.01)
    told: asyncio.Queue[str | None] = asyncio.Queue()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.put_nowait(message)

    async with client_of(tmp_path) as client, asyncio.timeout(2 * WAIT):
        assert (await begun(client, GATED))[0] == "begun"
        rest = client.call_tool("execute_ipython_cell", {"code": ""}, progress_callback=note)
        waiting = asyncio.create_task(rest)
        (tmp_path / "a").touch()
        while await told.get() != "a":
            pass
        (tmp_path / "b").touch()
        assert not (await waiting).is_error


async def test_server_that_stops_ends_cells_that_nobody_waits_for(tmp_path: Path):
    async with client_of(tmp_path) as client:
        assert (await begun(client, "print('in')\nwhile True: pass"))[0] == "in"
