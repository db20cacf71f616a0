"""The processes of an application: what can be killed, and what must not become more."""

import asyncio
import os
import random
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests import servers
from tests.code_exec.test_lifecycle import command_of

KERNEL = "ipybox.guest.kernel"
GATEWAY = "ipybox.guest.gateway"
MCP_SERVER = servers.SCRIPTED_SERVER


def processes(program: str) -> set[int]:
    """Returns the processes below this one that are Python with a module or script."""
    return {pid for pid in servers.descendants() if _runs(command_of(pid).split(), program)}


async def kill(program: str, number: int | None = None) -> None:
    """Kills some of these processes, whichever they are, or all."""
    found = sorted(await asyncio.to_thread(processes, program))
    for pid in random.sample(found, min(len(found), number or len(found))):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _runs(command: Sequence[str], program: str) -> bool:
    """Returns whether a command is Python with this program; what starts a sandbox has that as an argument."""
    return bool(command) and Path(command[0]).name.startswith("python") and program in command[:4]
