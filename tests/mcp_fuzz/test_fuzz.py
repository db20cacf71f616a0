"""Malformed messages break nothing: each request is answered, the server goes on, and says nothing it should not.

`FUZZ_MESSAGES` sets how many are sent on each transport; `SEED` makes other ones.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.mcp_fuzz.answers import Requests, Secrets, parsed
from tests.mcp_fuzz.conversation import INITIALIZE, OUTPUT, Era, message
from tests.mcp_fuzz.messages import Message, Messages
from tests.mcp_fuzz.wires import HONEST, Wire, http, stdio
from tests.seed import SEED
from tests.servers import ROOT

MESSAGES = int(os.environ.get("FUZZ_MESSAGES", "1500"))

#: Messages that are under way at once, before an honest client asks something.
BATCH = 250

#: Seconds in which all of them are answered.
BOUND = 60

Transport = Callable[..., AbstractAsyncContextManager[Wire]]

SECRET = "s3cr3t-of-the-environment"


class Fuzz:
    """A server that is being fuzzed.

    Args:
        wire: The connection to it.
        era: What its honest client speaks.
        secrets: What it must not say.
    """

    def __init__(self, wire: Wire, era: Era, secrets: Secrets):
        self._wire = wire
        self._era: Era = era
        self._secrets = secrets
        self._requests = Requests()
        self._asked = 0

    async def send(self, messages: list[Message]) -> None:
        """Sends messages and waits until all that must be answered are."""
        try:
            async with asyncio.timeout(BOUND), self._sending(messages):
                while self._requests.unanswered:
                    await self._receive()
        except TimeoutError:
            waiting = [str(asked) for _, asked in self._requests.unanswered]
            pytest.fail(f"no answer to {[one for one in messages if any(asked in str(one) for asked in waiting)]}")

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Asks as an honest client does, and returns the result."""
        self._asked += 1
        asked = f"{HONEST}{self._asked}"
        request = Message(json.dumps({**message(self._era, method, params), "id": asked}).encode())
        async with asyncio.timeout(BOUND), self._sending([request]):
            while (answer := await self._receive()).get("id") != asked:
                pass
        assert "result" in answer, answer
        return answer["result"]

    @asynccontextmanager
    async def _sending(self, messages: list[Message]) -> AsyncGenerator[None]:
        """Sends meanwhile; both sides would wait for each other else."""
        self._requests.sent(messages)
        sending = asyncio.create_task(self._wire.send(message.data for message in messages))
        try:
            yield
            await sending
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError):
                await sending

    async def _receive(self) -> dict[str, Any]:
        line = await self._wire.receive()
        assert line, "the server has gone"
        self._secrets.check(line.decode())
        answer = parsed(line)
        self._requests.answered(answer)
        return answer


@asynccontextmanager
async def fuzzed(transport: Transport, era: Era, tmp_path: Path, *options: str) -> AsyncGenerator[tuple[Fuzz, Wire]]:
    """Runs a server among secrets, and checks in the end that it has logged none of them."""
    home, state, temporary, other = (tmp_path / name for name in ("home", "state", "temporary", "other"))
    workspace = tmp_path / "workspace"
    outputs = other / ".ipybox" / "outputs"
    for directory in (home, state, temporary, workspace / "files", outputs):
        directory.mkdir(parents=True)
    (workspace / ".env").write_text(f"DOTENV={SECRET}\n")
    (outputs / f"{OUTPUT}.txt").write_text(SECRET)
    env = {
        "HOME": home,
        "XDG_STATE_HOME": state,
        "TMPDIR": temporary,
        "FUZZ_SECRET": SECRET,
        "PATH": os.environ["PATH"],
    }
    secrets = Secrets(SECRET, home, state, temporary, other, sys.prefix, ROOT)
    log = tmp_path / "log"
    options = ("--allowed-dir", "files", "--max-sessions", "1", *options)
    async with transport(workspace, log, {name: str(value) for name, value in env.items()}, *options) as wire:
        yield Fuzz(wire, era, secrets), wire
    secrets.check(log.read_text())


@pytest.mark.parametrize("transport", [stdio, http])
@pytest.mark.parametrize(
    ("era", "options"),
    [("2025-11-25", []), ("2026-07-28", ["--approve", "ask"])],
    ids=["legacy", "modern"],
)
async def test_malformed_messages_break_nothing(
    transport: Transport, era: Era, options: list[str], tmp_path: Path
) -> None:
    messages = Messages(SEED, era)
    numbers = iter(range(MESSAGES // 2))
    async with fuzzed(transport, era, tmp_path, *options) as (fuzz, wire):
        if era == "2025-11-25":
            if transport is stdio:
                await fuzz.ask("ping")  # the first request tells the era
            await fuzz.send([messages[number] for number in islice(numbers, BATCH)])
            await fuzz.ask("initialize", **INITIALIZE)
        memory = 0
        while batch := list(islice(numbers, BATCH)):
            await fuzz.send([messages[number] for number in batch])
            listed = await fuzz.ask("tools/list")
            assert len(listed["tools"]) == 6
            memory = memory or psutil.Process(wire.pid).memory_info().rss
        done = await fuzz.ask("tools/call", name="execute_ipython_cell", arguments={"code": "print('u' + 'p')"})
        assert done["content"][0]["text"] == "up"
        assert psutil.Process(wire.pid).memory_info().rss < memory + (200 << 20)


def test_messages_are_the_same_for_the_same_seed() -> None:
    some = [Messages(1, "2025-11-25")[n] for n in range(500)]
    assert some == [Messages(1, "2025-11-25")[n] for n in range(500)]
    assert some != [Messages(2, "2025-11-25")[n] for n in range(500)]
