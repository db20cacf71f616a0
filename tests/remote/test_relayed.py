"""What also holds for kernels on a node, and takes long: limits, variables, interrupts.

Not part of CI: `make cluster` runs it, here and on the nodes of a cluster.
"""

from pathlib import Path

import pytest

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.code_exec.cell_runner import STATE_LOST
from ipybox.errors import ExecutionTimeoutError
from tests.code_exec.cells import SLEEPS
from tests.conftest import Mode
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_variables_cross_in_both_directions(on_node: CodeExecutor):
    big = "z" * (3 << 20)
    await on_node.execute("longer = given + 'z'", variables={"given": big})
    assert await on_node.get("longer") == big + "z"


async def test_interrupt_keeps_the_state_and_reset_does_not(on_node: CodeExecutor):
    await on_node.execute("kept = 1")
    with pytest.raises(ExecutionTimeoutError, match="was interrupted and keeps its state"):
        await on_node.execute(SLEEPS, timeout=2)
    assert (await on_node.execute("kept")).text == "1"
    await on_node.reset()
    with pytest.raises(CodeExecutionError, match="NameError"):
        await on_node.execute("kept")


async def test_cpu_limit_of_a_cell_holds_on_the_node(on_node: CodeExecutor):
    with pytest.raises(ExecutionTimeoutError, match="more than cpu_seconds=2 allows"):
        await on_node.execute("while True: pass", timeout=120)
    assert (await on_node.execute("1 + 1")).text == "2"


#: Memory of the kernel and of a child, which together exceed the limit.
HUNGRY = """
    kept = b'x' * (250 << 20)
    import subprocess, sys
    subprocess.run([sys.executable, '-c', 'import time; x = b"x" * (200 << 20); time.sleep(60)'])
"""


async def test_memory_limit_holds_on_the_node(tmp_path: Path, command: list[str], mode: Mode):
    async with CodeExecutor(
        working_dir=tmp_path, engine=command, sandbox=mode.sandbox, memory_limit=400 << 20
    ) as executor:
        with pytest.raises(CodeExecutionError, match=r"more than memory_limit=400 MiB allows"):
            await executor.execute(HUNGRY, timeout=WAIT)
        result = await executor.execute("1")
        assert any(notice.startswith(STATE_LOST) for notice in result.notices)
