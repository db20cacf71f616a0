"""What the tests of faults have in common: an executor, and a sibling that must not notice what happens to it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from ipybox import CodeExecutor
from ipybox.kernel_mgr import timeouts
from tests import servers
from tests.conftest import Mode
from tests.servers import WAIT

#: Runs at the start of each kernel, as PYTHONSTARTUP.
STARTUP = """
import os, time
while os.path.exists({hang!r}):
    time.sleep(0.01)
if os.path.exists({die!r}):
    os._exit(3)
"""


@dataclass
class Family:
    """An executor and a sibling, which has a variable to lose."""

    executor: CodeExecutor
    sibling: CodeExecutor
    directory: Path

    @property
    def hang(self) -> Path:
        """As long as there is this file, kernels don't get further in their start."""
        return self.directory / "hang"

    @property
    def die(self) -> Path:
        """As long as there is this file, kernels die at their start."""
        return self.directory / "die"

    async def check(self) -> None:
        """Makes sure that nobody has noticed anything, and nothing has to be told."""
        for executor in (self.executor, self.sibling):
            await keeps_its_state(executor)


async def keeps_its_state(executor: CodeExecutor) -> None:
    """Makes sure that an executor has its variable, and nothing to tell."""
    result = await executor.execute("kept", timeout=WAIT)
    assert (result.text, result.notices) == ("'kept'", [])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory, mode: Mode, shared: None) -> AsyncIterator[Family]:
    directory = tmp_path_factory.mktemp("faults")
    startup = directory / "startup.py"
    startup.write_text(STARTUP.format(hang=str(directory / "hang"), die=str(directory / "die")))
    servers.register(directory, scripted=servers.scripted())
    env = {"PYTHONSTARTUP": str(startup)}
    async with (
        # Without a spare kernel, so that tests can count kernels (`tests/guest/test_spare.py` has the faults of one).
        CodeExecutor(working_dir=directory, kernel_env=env, sandbox=mode.sandbox, spare_kernel=False) as executor,
        executor.sibling() as sibling,
    ):
        yield Family(executor, sibling, directory)


@pytest_asyncio.fixture(loop_scope="module")
async def family(started: Family) -> Family:
    for executor in (started.executor, started.sibling):
        await executor.execute("kept = 'kept'", timeout=WAIT)
    return started


@pytest.fixture
def short_graces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("INTERRUPT_GRACE", "ANSWER_GRACE"):
        monkeypatch.setattr(timeouts, name, 0.5)
