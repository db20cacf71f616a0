import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from ipybox.mcp_client.transport import stdio_transport
from ipybox.support.bounded_json import ExcessError, MessageLimit
from tests import servers
from tests.servers import WAIT

LONG = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="x" * 1_000_000))


@asynccontextmanager
async def transport(code: str, ended: list[ExcessError | None] | None = None) -> AsyncGenerator[tuple[Any, Any]]:
    """The transport to a server that is no more than some Python, without its guard."""
    server = stdio_transport(
        [sys.executable, "-S", "-c", code],
        env=os.environ,
        cwd=None,
        stderr=sys.__stderr__,
        limit=MessageLimit(),
        on_noise=lambda text: None,
        on_end=(ended if ended is not None else list[ExcessError | None]()).append,
    )
    async with asyncio.timeout(WAIT), server as streams:
        yield streams


async def test_what_was_sent_reaches_a_server_before_its_stdin_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ipybox.mcp_client.transport._FLUSH_TIMEOUT", servers.WAIT)  # Python starts slowly under load
    file = tmp_path / "received"
    async with transport(f"import sys; data = sys.stdin.read(); open({str(file)!r}, 'w').write(data)") as (_, outgoing):
        await outgoing.send(LONG)

    assert file.read_text() == LONG.message.model_dump_json(exclude_unset=True) + "\n"


async def test_a_server_that_neither_reads_nor_exits_is_killed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ipybox.mcp_client.transport._EXIT_TIMEOUT", 0.2)
    before = servers.descendants()
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('{}', flush=True); time.sleep(1000)"
    )
    async with transport(code) as (_, outgoing):
        await outgoing.send(LONG)

    assert servers.descendants() == before


async def test_the_messages_of_a_server_end_when_it_no_longer_reads():
    async with transport("import os, time; os.close(0); time.sleep(1000)") as (messages, outgoing):
        await outgoing.send(LONG)
        assert [message async for message in messages] == []


async def test_the_messages_of_a_server_end_when_it_had_stopped_reading_before(tmp_path: Path):
    file = tmp_path / "closed"
    code = f"import os, time; os.close(0); open({str(file)!r}, 'w').close(); time.sleep(1000)"
    async with transport(code) as (messages, outgoing):
        while not file.exists():
            time.sleep(0.01)  # noqa: ASYNC251 - it blocks the loop: what is closed shows only when the write fails
        await outgoing.send(LONG)
        assert [message async for message in messages] == []


async def test_a_line_that_is_too_long_ends_the_messages_before_its_end_is_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ipybox.mcp_client.transport.MAX_MESSAGE_BYTES", 1000)
    line = '{"jsonrpc": "2.0", "id": 1, "method": "m"}\n'
    ended: list[ExcessError | None] = []
    code = f"import time; print({line!r} + 'x' * 1000, end='', flush=True); time.sleep(1000)"
    async with transport(code, ended) as (messages, _):
        assert [each.message.method async for each in messages] == ["m"]
    assert [*map(str, ended)] == ["it sent a message larger than the limit of 1,000 bytes"]


async def test_the_last_words_of_a_server_need_no_reader(tmp_path: Path):
    file = tmp_path / "exited"
    code = f"import sys; sys.stdin.read(); print('x' * 1_000_000, flush=True); open({str(file)!r}, 'w').close()"
    async with transport(code):
        pass

    assert file.exists()


@pytest.mark.parametrize("line", ["", '{"jsonrpc":"2.0","method":"m"}'])
async def test_other_tasks_run_between_lines_that_are_not_needed(line: str, monkeypatch: pytest.MonkeyPatch):
    begun, checked = asyncio.Event(), list[bytes]()

    async def check(_: MessageLimit, line: bytes) -> None:
        checked.append(line)
        begun.set()

    monkeypatch.setattr(MessageLimit, "check", check)
    async with transport(f"print({line + chr(10)!r} * 5000, flush=True); input()"):
        await begun.wait()
        turns = 0
        while len(checked) < 5000:
            await asyncio.sleep(0)
            turns += 1

    assert turns >= 1000
