"""An executor whose kernels run where a command puts them: here in a process of this machine, over two pipes."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutionResult, CodeExecutor
from ipybox.code_exec.cell_runner import STATE_LOST
from ipybox.errors import ExecutionTimeoutError
from tests import servers
from tests.code_exec.cells import SLEEPS, begun
from tests.conftest import Mode
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on_node(
    tmp_path_factory: pytest.TempPathFactory, command: list[str], mode: Mode, shared: None
) -> AsyncIterator[CodeExecutor]:
    workspace = tmp_path_factory.mktemp("workspace")
    servers.register(workspace, scripted=servers.scripted())
    async with CodeExecutor(working_dir=workspace, engine=command, sandbox=mode.sandbox, cpu_seconds=2) as executor:
        yield executor


def nodes() -> set[int]:
    """Returns the ids of the processes of nodes."""
    return {each.pid for each in psutil.Process().children() if "ipybox.node" in each.cmdline()}


async def test_cells_have_state_streams_and_large_outputs(on_node: CodeExecutor):
    await on_node.execute("kept = 'y' * 100_000")
    chunks = [item async for item in on_node.stream("for _ in range(80): print(kept)", chunks=True)]
    result = chunks[-1]
    assert isinstance(result, CodeExecutionResult)
    assert result.text == "\n".join(["y" * 100_000] * 80)
    assert len(chunks) >= 2


async def test_variables_cross_in_both_directions(on_node: CodeExecutor):
    big = "z" * (3 << 20)
    await on_node.execute("longer = given + 'z'", variables={"given": big})
    assert await on_node.get("longer") == big + "z"


async def test_tools_run_here_after_approval(on_node: CodeExecutor):
    requests: list[str] = []

    async def approve(request: ApprovalRequest) -> None:
        requests.append(str(request))
        await request.accept()

    code = "from registered import scripted\nprint([scripted.run_sync('echo', {'text': str(n)}) for n in range(20)])"
    result = await on_node.execute(code, approver=approve)
    assert result.text == str([str(n) for n in range(20)])
    assert len(requests) == 20


async def test_calls_need_a_seal_with_and_without_a_sandbox(on_node: CodeExecutor):
    code = """
        from ipybox.tool_exec.client import ToolRunner
        ToolRunner.from_env("own", {"command": "touch", "args": ["/tmp/never"]}).run_sync("x", {})
    """
    with pytest.raises(CodeExecutionError, match="not registered"):
        await on_node.execute(code)


async def test_code_has_no_package_built_here(on_node: CodeExecutor, mode: Mode):
    await on_node.execute("import os; os.makedirs('package-of-code')")
    refusal = "can only have packages of the index" if mode.sandbox else "code can't install packages here"
    assert refusal in ((await on_node.execute("!pip install ./package-of-code")).text or "")


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


async def test_denials_of_the_sandbox_are_explained(on_node: CodeExecutor, mode: Mode):
    result = await on_node.execute("try: open('/etc/never', 'w')\nexcept OSError as exc: print(exc)")
    assert ("The sandbox refused to write /etc/never" in "".join(result.notices)) == mode.sandbox


async def test_lost_node_ends_the_cell_and_the_next_one_runs_on_another(on_node: CodeExecutor):
    async with asyncio.timeout(WAIT):
        running = await begun(on_node, SLEEPS)
        (node,) = nodes()
        os.kill(node, signal.SIGKILL)
        with pytest.raises(
            CodeExecutionError, match=r"its node .* is lost: the engine's command was ended by signal 9"
        ):
            await running
    result = await on_node.execute("1 + 1")
    assert (result.text, result.kernel_restarted) == ("2", True)
    assert any(notice.startswith(STATE_LOST) for notice in result.notices)


async def test_memory_limit_holds_on_the_node(tmp_path: Path, command: list[str], mode: Mode):
    async with CodeExecutor(
        working_dir=tmp_path, engine=command, sandbox=mode.sandbox, memory_limit=400 << 20
    ) as executor:
        hungry = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'x = b\"x\" * (200 << 20); input()'])"
        with pytest.raises(CodeExecutionError, match=r"more than memory_limit=400 MiB allows"):
            await executor.execute(f"kept = b'x' * (250 << 20)\n{hungry}", timeout=WAIT)
        result = await executor.execute("1")
        assert any(notice.startswith(STATE_LOST) for notice in result.notices)


async def test_siblings_share_a_node(tmp_path: Path, command: list[str], mode: Mode):
    async with CodeExecutor(working_dir=tmp_path, engine=command, sandbox=mode.sandbox) as first:
        before = nodes()
        async with first.sibling() as second:
            await asyncio.gather(first.execute("x = 1"), second.execute("x = 2"))
            assert (await first.execute("x")).text == "1"
            assert nodes() == before
