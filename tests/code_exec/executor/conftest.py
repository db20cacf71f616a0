"""Executors that the tests of a module share, and a short time for interrupts."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ipybox import CodeExecutor
from ipybox.kernel_mgr import timeouts
from tests import servers
from tests.conftest import Mode


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def approving(tmp_path_factory: pytest.TempPathFactory, mode: Mode, shared: None) -> AsyncIterator[CodeExecutor]:
    """An executor whose approvals expire soon, and whose kernel has `call(text)`."""
    directory = tmp_path_factory.mktemp("approver")
    servers.register(directory, scripted=servers.scripted())
    async with CodeExecutor(working_dir=directory, approval_timeout=1, sandbox=mode.sandbox) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def approver(approving: CodeExecutor) -> CodeExecutor:
    """An executor whose kernel has a function that calls a tool, also after a test has reset it."""
    await approving.execute("""
from registered import scripted
def call(text): return scripted.run_sync("echo", {"text": text})
""")
    return approving


@pytest.fixture
def short_interrupt_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "INTERRUPT_GRACE", 0.5)
