"""`ipybox approvals`: terminals show and decide on the calls that wait in the user's MCP servers."""

import asyncio
import json
import os
import pty
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import ElicitRequestParams, ElicitResult

from tests import servers
from tests.cli.test_attach import Command
from tests.mcp_server.test_server import text_of
from tests.servers import WAIT

CALL = "from registered import scripted; print(scripted.run_sync('echo', {'text': 'hello\\x1b[2J'}))"
SHOWN = r"(?m)^([0-9a-f]{6})  \d\d:\d\d:\d\d  (.*)\nCode calls scripted.echo\n  text: \"hello\\u001b\[2J\"\n"

pytestmark = pytest.mark.kernel


@asynccontextmanager
async def approvals(*arguments: str, stdin: int | None = None) -> AsyncGenerator[Command]:
    """Runs `ipybox approvals`; its end is awaited."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ipybox", "approvals", *arguments),
        stdin=asyncio.subprocess.DEVNULL if stdin is None else stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Command(process)
    finally:
        if process.returncode is None and arguments[:1] not in (("accept",), ("decline",)):
            process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), WAIT)


async def printed(*arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ipybox", "approvals", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), WAIT)
    return output.decode()


@asynccontextmanager
async def serving(workspace: Path, **options: Any) -> AsyncGenerator[Client]:
    servers.register(workspace, scripted=servers.scripted())
    names = ("PATH", "XDG_STATE_HOME", "JUPYTER_RUNTIME_DIR")
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "ipybox", "--workspace", str(workspace), "--approve", "ask"],
        env={name: os.environ[name] for name in names},
    )
    async with Client(server, **options) as client:
        yield client


async def run(client: Client) -> str:
    async with asyncio.timeout(WAIT):
        return text_of(await client.call_tool("execute_ipython_cell", {"code": CALL}))


async def test_a_client_without_forms_gets_its_answers_from_a_terminal(tmp_path: Path):
    async with serving(tmp_path) as client:
        assert "this client can't ask its user" in await run(client)
        async with approvals("--watch", "--workspace", str(tmp_path)) as watching, asyncio.TaskGroup() as tasks:
            await watching.until("waiting for calls")
            for arguments, expected, state in (
                (["accept"], r"^hello", "accepted"),
                (["decline"], r"was rejected$", "rejected"),
                (["decline", "not", "on Friday"], r"was rejected: not on Friday$", "rejected"),
            ):
                watching.text = ""
                cell = tasks.create_task(run(client))
                call_id, place = (await watching.until(SHOWN)).groups()
                assert place == str(tmp_path)
                decision, *reason = arguments
                assert await printed(decision, call_id, *reason) == (
                    "accepted\n" if decision == "accept" else "declined\n"
                )
                assert re.search(expected, await cell, re.MULTILINE)
                await watching.until(f"{call_id}  {state}")
            waits = tasks.create_task(run(client))
            await watching.until(SHOWN)
            watching.process.send_signal(signal.SIGINT)
            assert "this client can't ask its user" in await waits


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_the_first_decision_counts(tmp_path: Path, era: Any):
    shown, closed = asyncio.Event(), asyncio.Event()

    async def slow(_: object, form: ElicitRequestParams) -> ElicitResult:
        shown.set()
        try:
            # Only the earlier revision lets the server withdraw a form.
            await closed.wait()
        finally:
            closed.set()
        return ElicitResult(action="decline")

    async with serving(tmp_path, elicitation_callback=slow, mode=era) as client, asyncio.TaskGroup() as tasks:
        cell = tasks.create_task(run(client))
        async with asyncio.timeout(WAIT):
            await shown.wait()
        waiting = re.search(SHOWN, await printed())
        assert waiting is not None
        listed = json.loads(await printed("--json"))
        assert [each["workspace"] for each in listed] == [str(tmp_path)]
        assert await printed("accept", waiting[1]) == "accepted\n"
        assert "no call with the id" in await printed("decline", waiting[1])
        if era == "auto":
            closed.set()
        assert "hello" in await cell
        assert closed.is_set()
        assert await printed() == "No call is waiting for your decision.\n"


async def test_a_terminal_decides_what_a_client_dismissed_by_itself(tmp_path: Path):
    async def dismiss(_: object, form: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="cancel")

    noted = tmp_path.with_name("noted.json")
    notify = f"{sys.executable} -c \"import sys; open({str(noted)!r}, 'w').write(sys.stdin.read())\""
    person, terminal = pty.openpty()
    try:
        async with (
            serving(tmp_path, elicitation_callback=dismiss) as client,
            approvals("--notify", notify, stdin=terminal) as watching,
            asyncio.TaskGroup() as tasks,
        ):
            await watching.until("waiting for calls")
            for entered, answer in (("x", None), ("d because I say so", "because I say so"), ("a", "hello")):
                watching.text = ""
                if answer is None:
                    os.write(person, f"{entered}\n".encode())
                    await watching.until("enter `a` to accept")
                    continue
                cell = tasks.create_task(run(client))
                await watching.until(SHOWN)
                os.write(person, f"{entered}\n".encode())
                assert answer in await cell
            assert json.loads(noted.read_text())["call"].startswith("Code calls scripted.echo")
    finally:
        os.close(person)
        os.close(terminal)
