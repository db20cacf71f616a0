"""Nothing outlives its application, however that ends. The application is a process of its own here."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ipybox import CodeExecutor
from tests import servers
from tests.conftest import Mode
from tests.servers import WAIT

#: Seconds after the end of an application in which all its processes have to be gone.
GRACE = 2.0

APPLICATION = """
import asyncio, sys
from pathlib import Path
from ipybox import CodeExecutor
from tests import servers

CODE = '''
import subprocess
sleeping = subprocess.Popen(["sleep", "1000"])
from registered import scripted
assert scripted.run_sync("echo", {"text": "x"}) == "x"
print("done")
'''
BUSY = "print('busy', flush=True)\\nwhile True: pass"

async def stay_busy(executor, busy):
    try:
        async for _ in executor.stream(BUSY, timeout=None, chunks=True):
            busy.set()
    except RuntimeError as exc:
        assert str(exc) == "the code executor has been stopped"

async def main(ending, load, mode):
    servers.register(Path.cwd(), scripted=servers.scripted())
    async with CodeExecutor(working_dir=Path.cwd(), sandbox=mode == "sandbox") as executor:
        assert (await executor.execute(CODE)).text == "done"
        if load == "busy":
            busy = asyncio.Event()
            task = asyncio.create_task(stay_busy(executor, busy))
            await busy.wait()
        print("READY", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        if ending == "exception":
            raise ZeroDivisionError("of the application")

asyncio.run(main(*sys.argv[1:]))
"""


def about(pid: int, what: str) -> bytes:
    """Returns what /proc says about a process; nothing of one that has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
    except PermissionError:  # a process that has made itself undumpable
        return b""


def command_of(pid: int) -> str:
    return about(pid, "cmdline").replace(b"\0", b" ").decode()


@dataclass
class Application:
    process: asyncio.subprocess.Process
    #: All its descendants, when it is ready.
    children: set[int]

    def commands(self) -> str:
        return "\n".join(map(command_of, self.children))

    def private_directories(self) -> set[Path]:
        """Returns the directory of each gateway: that of the guest, or in a sandbox the one that this is in."""
        found: set[Path] = set()
        for pid in self.children:
            for variable in about(pid, "environ").split(b"\0"):
                if variable.startswith(b"IPYBOX_RUNTIME_DIR="):
                    directory = Path(os.fsdecode(variable.partition(b"=")[2]))
                    found.add(directory.parent if directory.name == "guest" else directory)
        return found


@asynccontextmanager
async def application(directory: Path, ending: str, load: str, mode: Mode) -> AsyncGenerator[Application]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", APPLICATION, ending, load, mode),
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(servers.ROOT)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    children: set[int] = set()
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WAIT):
            ready = await process.stdout.readline()
        children = servers.descendants(process.pid)
        assert ready == b"READY\n", (await process.communicate())[1].decode()
        yield Application(process, children)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        # They end by themselves, and remove their files; what does not must not outlive the test.
        for pid in await servers.until_dead(children, GRACE):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("ending", "load"),
    [("stop", "idle"), ("stop", "busy"), ("exception", "busy"), ("sigkill", "idle"), ("sigkill", "busy")],
)
async def test_no_process_outlives_the_application(tmp_path: Path, mode: Mode, ending: str, load: str):
    async with application(tmp_path, ending, load, mode) as app:
        for command in ("ipybox.guest.gateway", "ipybox.guest.kernel", "sleep 1000", "scripted_server.py"):
            assert command in app.commands()
        directories = app.private_directories()
        assert len(directories) == 1
        if ending == "sigkill":
            app.process.kill()
            await app.process.wait()
        else:
            async with asyncio.timeout(WAIT):
                _, errors = await app.process.communicate(b"\n")
            assert (b"ZeroDivisionError: of the application" in errors) == (ending == "exception")
            if ending == "stop":
                assert (app.process.returncode, errors) == (0, b"")

        assert await servers.until_dead(app.children, GRACE) == set()
        assert not any(directory.exists() for directory in directories)


async def test_what_the_kernel_has_started_ends_with_the_kernel(tmp_path: Path, mode: Mode):
    async with application(tmp_path, "stop", "idle", mode) as app:
        (sleeping,) = (pid for pid in app.children if command_of(pid).startswith("sleep "))
        kernels = (pid for pid in app.children if "ipybox.guest.kernel" in command_of(pid))
        (kernel,) = (pid for pid in kernels if sleeping in servers.descendants(pid))  # the other one is spare
        os.kill(kernel, signal.SIGKILL)

        assert await servers.until_dead({kernel, sleeping}, GRACE) == set()


async def test_signals_stay_the_applications_own(tmp_path: Path, mode: Mode):
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with CodeExecutor(
        tool_server_port=0, kernel_gateway_port=0, working_dir=tmp_path, sandbox=mode.sandbox
    ) as executor:
        assert (await executor.execute("1")).text == "1"
        assert {number: signal.getsignal(number) for number in before} == before
