"""The processes of an executor, and what happens to them in these tests."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from ipybox.guest.descendants import KERNEL_ID
from ipybox.guest.process import PLACEHOLDER
from tests import servers
from tests.code_exec.cells import process_of
from tests.code_exec.test_lifecycle import about, command_of
from tests.faults.conftest import Family
from tests.servers import WAIT


class Victim(StrEnum):
    """A process; those of the sandbox are around the gateway, the first one inside of the next."""

    KERNEL = "kernel"
    GATEWAY = "gateway"
    BUBBLEWRAP = "bwrap"
    SRT = "srt"
    SANDBOX_GUARD = "sandbox_guard"
    MCP_SERVER = "mcp_server"
    MCP_GUARD = "process_guard"


SANDBOX = (Victim.BUBBLEWRAP, Victim.SRT, Victim.SANDBOX_GUARD)

#: What the command lines of the sandbox's processes begin with, or have in them.
_COMMANDS = {Victim.BUBBLEWRAP: "bwrap ", Victim.SRT: "node ", Victim.SANDBOX_GUARD: "sandbox/placeholders.py "}

#: What the environment of a kernel has in it, and that of a forked process up to the moment in which it gets its id.
_ID, _NO_ID = f"{KERNEL_ID}=".encode(), f"{KERNEL_ID}={PLACEHOLDER}".encode()


async def pid_of(victim: Victim, family: Family) -> int:
    """Returns the process of the family's executor, which must be idle."""
    match victim:
        case Victim.KERNEL | Victim.GATEWAY:
            return await process_of(family.executor, victim.value)
        case Victim.MCP_GUARD:
            return servers.parent(await pid_of(Victim.MCP_SERVER, family))
        case Victim.MCP_SERVER:
            code = "from registered import scripted; print(scripted.run_sync('pid', {}))"
            return int((await family.executor.execute(code, timeout=WAIT)).text or "")
        case _:
            pid = await process_of(family.executor, "gateway")
            while _COMMANDS[victim] not in command_of(pid):
                pid = servers.parent(pid)
            return pid


def kernels(gateway: int) -> set[int]:
    """Returns the processes of all kernels of a gateway.

    A forked one counts from the moment on in which it has its id: one that ends before is started again, unnoticed.
    """
    found = {pid for pid in servers.descendants(gateway) if "ipybox.guest.kernel" in command_of(pid)}
    return {pid for pid in found if _has_id(about(pid, "environ"))}


async def until_kernels(gateway: int, condition: Callable[[set[int]], bool]) -> set[int]:
    """Returns the kernels of a gateway as soon as they are as they should be."""
    async with asyncio.timeout(WAIT):
        while not condition(found := await asyncio.to_thread(kernels, gateway)):
            pass
    return found


async def until_there(path: Path) -> None:
    """Waits until a file is there."""
    async with asyncio.timeout(WAIT):
        while not await asyncio.to_thread(path.exists):
            pass


async def kill(pid: int) -> None:
    """Kills a process, and returns when it has ended."""
    os.kill(pid, signal.SIGKILL)
    assert await servers.until_dead({pid}, WAIT) == set()


def _has_id(environment: bytes) -> bool:
    return _ID in environment and _NO_ID not in environment


@contextmanager
def stopped(pid: int) -> Generator[None]:
    """Stops a process, and continues it in the end if it is still there."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if servers.is_alive(pid):
            os.kill(pid, signal.SIGCONT)


async def outcome(work: Awaitable[object]) -> object:
    """Returns what some work returns or raises, within a bound."""
    async with asyncio.timeout(WAIT):
        (result,) = await asyncio.gather(work, return_exceptions=True)
    return result
