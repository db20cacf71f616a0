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

from ipybox.mcp_server.approval_desk import send
from ipybox.mcp_server.attach_socket import bind_private, running_servers, socket_path
from tests import servers
from tests.cli.test_attach import Command
from tests.conftest import Mode, both_modes
from tests.mcp_server.test_server import client_of, output, text_of
from tests.servers import WAIT

CALL = "from registered import scripted; print(scripted.run_sync('echo', {'text': 'hello\\x1b[2J'}))"
SHOWN = r"(?m)^([0-9a-f]{6})  \d\d:\d\d:\d\d  (.*)\nCode calls scripted.echo\n  text: \"hello\\u001b\[2J\"\n"

pytestmark = pytest.mark.kernel


def program(module: str, **values: float) -> list[str]:
    """Returns how `ipybox` starts with other values of a module's constants."""
    set_up = "".join(f"import {module}; {module}.{name} = {value}; " for name, value in values.items())
    return [sys.executable, "-c", f"{set_up}import runpy; runpy.run_module('ipybox', run_name='__main__')"]


@asynccontextmanager
async def approvals(*arguments: str, stdin: int | None = None, **values: float) -> AsyncGenerator[Command]:
    """Runs `ipybox approvals`; its end is awaited."""
    process = await asyncio.create_subprocess_exec(
        *(*program("ipybox.cli.approvals", **values), "approvals", *arguments),
        stdin=asyncio.subprocess.DEVNULL if stdin is None else stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=1 << 24,
    )
    try:
        yield Command(process)
    finally:
        if process.returncode is None and arguments[:1] not in (("accept",), ("decline",)):
            process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), WAIT)


async def printed(*arguments: str, **values: float) -> str:
    process = await asyncio.create_subprocess_exec(
        *(*program("ipybox.cli.approvals", **values), "approvals", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), WAIT)
    return output.decode()


@asynccontextmanager
async def serving(workspace: Path, *, silence: float = 10, **options: Any) -> AsyncGenerator[Client]:
    servers.register(workspace, scripted=servers.scripted())
    names = ("PATH", "XDG_STATE_HOME", "JUPYTER_RUNTIME_DIR")
    command, *start = program("ipybox.mcp_server.approval_desk", SILENCE=silence)
    server = StdioServerParameters(
        command=command,
        args=[*start, "--workspace", str(workspace), "--approve", "ask"],
        env={name: os.environ[name] for name in names},
    )
    async with Client(server, **options) as client:
        yield client


async def run(client: Client, code: str = CALL, session: str = "default") -> str:
    async with asyncio.timeout(WAIT):
        return text_of(await client.call_tool("execute_ipython_cell", {"code": code, "session": session}))


async def test_a_client_without_forms_gets_its_answers_from_a_terminal(tmp_path: Path):
    async with serving(tmp_path) as client:
        assert "this client can't ask its user" in await run(client)
        async with approvals("--watch", "--workspace", str(tmp_path)) as watching, asyncio.TaskGroup() as tasks:
            await watching.until("watching the MCP server in ")
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
        assert waiting[2] == str(tmp_path)
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

    notify = f"{sys.executable} -c 'import sys; print(sys.stdin.read())'"
    person, terminal = pty.openpty()
    try:
        async with (
            serving(tmp_path, elicitation_callback=dismiss) as client,
            approvals("--notify", notify, stdin=terminal) as watching,
            asyncio.TaskGroup() as tasks,
        ):
            await watching.until("waiting for calls until Ctrl-C; enter `a ID`")
            await run(client, "1")
            await watching.until("watching the MCP server in ")
            for entered, answer in (
                ("x 123456", None),
                ("a", None),
                ("d {} because I say so", "because I say so"),
                ("a {}", "hello"),
            ):
                watching.text = ""
                if answer is None:
                    os.write(person, f"{entered}\n".encode())
                    await watching.until("enter `a ID` to accept")
                    continue
                cell = tasks.create_task(run(client))
                call_id = (await watching.until(SHOWN))[1]
                told = json.loads((await watching.until(r'(?m)^(\{"id": .*)\n'))[1])
                assert told["call"].startswith("Code calls scripted.echo")
                os.write(person, f"{entered.format(call_id)}\n".encode())
                assert answer in await cell
            watching.text = ""
            os.write(person, b"\x04")  # end of file
            cell = tasks.create_task(run(client))
            await printed("accept", (await watching.until(SHOWN))[1])
            assert "hello" in await cell
    finally:
        os.close(person)
        os.close(terminal)


async def test_a_decision_is_never_about_another_call_than_the_person_means(tmp_path: Path):
    async def dismiss(_: object, form: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="cancel")

    person, terminal = pty.openpty()
    try:
        async with (
            serving(tmp_path, elicitation_callback=dismiss) as client,
            # The command for the first call never ends.
            approvals("--notify", "tail -f /dev/null", stdin=terminal) as watching,
            asyncio.TaskGroup() as tasks,
        ):
            await run(client, "1")
            await watching.until("watching the MCP server in ")
            first = tasks.create_task(run(client))
            first_id = (await watching.until(SHOWN))[1]
            watching.text = ""
            second = tasks.create_task(run(client, session="second"))
            second_id = (await watching.until(SHOWN))[1]
            assert "at least 6 characters" in await printed("accept", "")
            assert "at least 6 characters" in await printed("accept", first_id[:5])
            for entered, answer in (
                ("a 000000", "no call with the id 000000 is waiting"),
                ("d 000000 no", "no call with the id 000000 is waiting"),
                (f"a {first_id[:5]}", "at least 6 characters"),
                ("a that one", "at least 6 characters"),
            ):
                os.write(person, f"{entered}\n".encode())
                await watching.until(answer)
                watching.text = ""
            assert await printed("decline", first_id) == "declined\n"
            await watching.until(f"{first_id}  rejected")
            assert "was rejected" in await first
            os.write(person, f"a {first_id}\n".encode())
            await watching.until(f"no call with the id {first_id} is waiting")
            os.write(person, f"a {second_id}\n".encode())
            assert "hello" in await second
    finally:
        os.close(person)
        os.close(terminal)


async def test_no_part_of_a_call_looks_like_another_call_where_a_terminal_continues_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "60")
    forged = f"{'漢' * 28}2b3c4d  12:00:01  /home".ljust(88) + "Code calls scripted.read".ljust(60)
    text = f"thanks\n{forged}\n\t{forged[28:]}"
    async with serving(tmp_path) as client, approvals("--watch") as watching, asyncio.TaskGroup() as tasks:
        await watching.until("watching the MCP server in ")
        cell = tasks.create_task(
            run(client, CALL.replace("{'text': 'hello\\x1b[2J'}", f"{{'text': {text!r}, 'to': 'b'}}"))
        )
        shown = (await watching.until(r'(?ms)^(Code calls scripted.echo\n.*  to: "b"\n)'))[1]
        assert "| 2b3c4d  12:00:01  /home" in shown
        for line in shown.splitlines():
            assert sum(2 if each == "漢" else 1 for each in line.expandtabs()) <= 60
        await printed("decline", re.findall(r"(?m)^([0-9a-f]{6})  ", watching.text)[-1])
        await cell


async def test_stopped_processes_block_neither_cells_nor_decisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "100000")  # `until` looks at all lines for each
    large = CALL.replace("hello", "x" * 2_000_000)  # more than a connection takes that nobody reads from
    async with (
        serving(tmp_path, silence=3) as client,
        approvals("--watch") as watching,
        asyncio.TaskGroup() as tasks,
    ):
        await run(client, "1")
        await watching.until("watching the MCP server in ")
        watching.process.send_signal(signal.SIGSTOP)
        try:
            assert "this client can't ask its user" in await run(client, large)
        finally:
            watching.process.send_signal(signal.SIGCONT)
        watching.text = ""
        await watching.until("watching the MCP server in ")
        with bind_private(socket_path(tmp_path, 1)):  # of a server that does not answer
            cell = tasks.create_task(run(client))
            call_id = (await watching.until(SHOWN))[1]
            answer = await printed("accept", call_id, _RESPONSE_TIMEOUT=1)
            assert answer.splitlines() == ["ipybox: the MCP server with process id 1 does not respond", "accepted"]
        assert "hello" in await cell


async def test_ids_that_start_alike_and_decisions_that_are_refused_decide_nothing(tmp_path: Path):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = json.loads(await reader.readline() or "{}")
        if request.get("approvals") == "list":
            for call_id in ("abcdef1", "abcdef2"):
                if call_id.startswith(request["id"]):
                    await send(writer, id=call_id)
        elif request:
            await send(writer, error="the call has ended")
        writer.close()

    with bind_private(socket_path(tmp_path, 1)) as listener:
        async with await asyncio.start_unix_server(serve, sock=listener):
            several = "ipybox: several calls have an id that starts with 'abcdef': abcdef1, abcdef2\n"
            assert await printed("accept", "abcdef") == several
            assert (await printed("accept", "abcdef1")).startswith("ipybox: no call with the id abcdef1 is waiting")


@both_modes
async def test_sandboxed_code_does_not_reach_the_socket(tmp_path: Path, mode: Mode):
    async with client_of(tmp_path, *mode.options, JUPYTER_RUNTIME_DIR=os.environ["JUPYTER_RUNTIME_DIR"]) as client:
        await output(client, "1")
        (path,) = running_servers(tmp_path).values()
        code = f"""
import os, socket
try:
    os.chdir({str(path.parent)!r})
    socket.socket(socket.AF_UNIX).connect({path.name!r})
except OSError as error:
    print("refused")
else:
    print("reached")
"""
        assert await output(client, code) == ("refused" if mode.sandbox else "reached")
