"""The spare kernel: the next session or reset gets it, and up to then it belongs to nobody."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.guest import template_client
from ipybox.guest.template_client import Spare
from tests import servers
from tests.code_exec.cells import process_of
from tests.conftest import GRACE, Mode
from tests.guest.spares import kernels_beside, until_spare
from tests.guest.test_template import STATE, answer, without_template
from tests.security.test_siblings import SEARCH, token_halves
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: What a kernel does as it ends.
LEAVES = """
import atexit
left = open("left", "w")
left.write("written")
class Last:
    def __del__(self): open("finalized", "w").close()
last = Last()
atexit.register(lambda: open("at exit", "w").close())
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of `executor`."""
    return tmp_path_factory.mktemp("place")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(place: Path, mode: Mode, shared: None) -> AsyncIterator[CodeExecutor]:
    async with CodeExecutor(working_dir=place, sandbox=mode.sandbox) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def executor(started: CodeExecutor) -> CodeExecutor:
    """An executor that tests share, whose gateway has a spare kernel."""
    await started.execute("mine = 1")
    await until_spare(started)
    return started


async def test_a_reset_gets_the_spare_kernel_and_the_old_one_has_ended(executor: CodeExecutor, place: Path):
    spare, old = await until_spare(executor), await process_of(executor, "kernel")
    token = (await executor.execute("import os; os.environ['TOOL_SERVER_TOKEN']")).text
    await executor.execute(LEAVES)
    await executor.reset()
    assert executor.kernel_id == spare
    assert not servers.is_alive(old)
    assert (place / "left").read_text() == "written"
    assert (place / "finalized").exists()
    assert (place / "at exit").exists()
    assert (await executor.execute("'mine' in globals()")).text == "False"
    assert (await executor.execute("import os; os.environ['TOOL_SERVER_TOKEN']")).text == token
    assert await until_spare(executor) != spare


async def test_a_session_gets_it_and_is_as_one_that_was_started(executor: CodeExecutor, place: Path, mode: Mode):
    spare = await until_spare(executor)
    async with executor.sibling() as sibling:
        assert sibling.kernel_id == spare
        state = await answer(sibling, STATE)
    async with without_template(working_dir=place, sandbox=mode.sandbox) as program:
        expected = await answer(program, STATE)
    assert set(state.pop("start of modules")) >= set(expected.pop("start of modules"))
    assert state == expected


async def test_it_has_the_token_of_its_own_session_only(executor: CodeExecutor):
    await until_spare(executor)
    async with executor.sibling() as sibling:
        await until_spare(executor, sibling)
        async with executor.sibling() as third:
            halves = [await token_halves(each) for each in (executor, sibling, third)]
            assert len({tuple(each) for each in halves}) == 3
            await third.execute(SEARCH)
            found = [(await third.execute(f"len(search(*{each}))")).text for each in halves]
    assert found[:2] == ["0", "0"]
    assert int(found[2] or 0) > 0


async def test_one_that_was_killed_costs_nothing_but_time(executor: CodeExecutor):
    spare = await until_spare(executor)
    pid = kernels_beside(executor)[spare]
    os.kill(pid, signal.SIGKILL)
    assert await servers.until_dead({pid}, GRACE) == set()
    await executor.reset()
    assert executor.kernel_id != spare
    assert (await executor.execute("1")).text == "1"


async def test_one_that_ends_as_soon_as_it_is_used_costs_nothing_but_time(executor: CodeExecutor):
    """Then the kernel before it is still ending."""
    spare, old = await until_spare(executor), await process_of(executor, "kernel")
    pid = kernels_beside(executor)[spare]
    client = executor._kernel.client  # pyright: ignore[reportPrivateUsage] - the moment at which it is used
    assert client is not None
    os.kill(old, signal.SIGSTOP)
    async with asyncio.timeout(WAIT):
        reset = asyncio.create_task(executor.reset())
        while client.remote_kernel.id != spare:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        await reset
    assert not servers.is_alive(old)
    assert executor.kernel_id != spare
    assert (await executor.execute("1")).text == "1"


async def test_a_cancelled_reset_goes_on_with_it(executor: CodeExecutor):
    spare = await until_spare(executor)
    reset = asyncio.create_task(executor.reset())
    await asyncio.sleep(0)
    reset.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reset
    assert (await executor.execute("'mine' in globals()")).text == "False"
    assert executor.kernel_id == spare


async def test_it_ends_with_the_gateway(tmp_path: Path, mode: Mode):
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:
        await executor.execute("1")
        spare = await until_spare(executor)
        pid = kernels_beside(executor)[spare]
        gateway = await process_of(executor, "gateway")
        os.kill(gateway, signal.SIGKILL)
        assert await servers.until_dead({pid}, GRACE) == set()
        with suppress(CodeExecutionError):  # on a busy machine, this cell is sent before the end is noticed
            await executor.execute("2")
        assert (await executor.execute("2")).text == "2"


async def test_it_counts_for_no_limit(tmp_path: Path, mode: Mode):
    """The monitor looks at least twice a second."""
    limits: dict[str, Any] = {"process_limit": 1, "cpu_seconds": 5}
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, **limits) as executor:
        await executor.execute("kept = 1")
        await until_spare(executor)
        assert (await executor.execute("import time; time.sleep(1.5); kept")).text == "1"


@pytest.mark.parametrize("mode", [Mode.PLAIN], indirect=True)
async def test_shell_commands_are_asked_about_in_it(tmp_path: Path, mode: Mode):
    asked: list[str] = []

    async def decide(request: Any) -> None:
        asked.append(request.tool_args["cmd"])
        await request.reject()

    options: dict[str, Any] = {"sandbox": mode.sandbox, "approve_shell_cmds": True, "approver": decide}
    async with CodeExecutor(working_dir=tmp_path, **options) as executor:
        await executor.execute("1")
        await until_spare(executor)
        await executor.reset()
        result = await executor.execute(
            "try: get_ipython().system('echo x')\nexcept Exception as error: print(type(error).__name__)"
        )
    assert (asked, result.text) == (["echo x"], "ShellCommandError")


class Kernel:
    """A spare kernel that a test makes useless."""

    def __init__(self) -> None:
        self.is_current = True


class Kernels:
    """Makes kernels, and notes those that are discarded."""

    def __init__(self) -> None:
        self.made: list[Kernel] = []
        self.discarded: list[Kernel] = []

    async def make(self) -> Kernel:
        self.made.append(Kernel())
        return self.made[-1]

    async def discard(self, kernel: Kernel) -> None:
        self.discarded.append(kernel)


async def test_one_is_made_when_no_kernel_has_started_for_a_moment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(template_client, "QUIET", 0.05)
    kernels, loop = Kernels(), asyncio.get_running_loop()
    spare = Spare(kernels.make, kernels.discard)
    spare.start_later()
    time.sleep(0.02)  # noqa: ASYNC251 - the loop must not run in between
    spare.start_later()
    active = loop.time()
    async with asyncio.timeout(WAIT):
        while not kernels.made:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)
    assert loop.time() >= active + 0.04
    assert await spare.claim() is kernels.made[0]
    assert await spare.claim() is None


async def test_one_that_is_out_of_date_is_discarded():
    kernels = Kernels()
    spare = Spare(kernels.make, kernels.discard)
    spare.start()
    await asyncio.sleep(0)
    kernels.made[0].is_current = False
    assert await spare.claim() is None
    await asyncio.sleep(0)
    assert kernels.discarded == kernels.made


@pytest.mark.parametrize("mode", [Mode.PLAIN], indirect=True)
async def test_the_option_switches_it_off(tmp_path: Path, mode: Mode):
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, spare_kernel=False) as executor:
        gateway = await process_of(executor, "gateway")
        command = Path(f"/proc/{gateway}/cmdline").read_bytes().split(b"\0")
    assert b"--spare" not in command
