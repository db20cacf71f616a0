"""An executor whose kernels run where a command puts them: here in a process of this machine, over two pipes.

`test_relayed.py` has the rest, which takes long: `make cluster` runs it.
"""

import asyncio
import os
import signal
import sys

import pytest

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutionResult, CodeExecutor
from ipybox.code_exec.cell_runner import STATE_LOST
from tests.code_exec.cells import SLEEPS, begun
from tests.conftest import Mode
from tests.remote.conftest import nodes
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_cells_have_state_streams_and_large_outputs(on_node: CodeExecutor):
    await on_node.execute("kept = 'y' * 100_000")
    chunks = [item async for item in on_node.stream("for _ in range(80): print(kept)", chunks=True)]
    result = chunks[-1]
    assert isinstance(result, CodeExecutionResult)
    assert result.text == "\n".join(["y" * 100_000] * 80)
    assert len(chunks) >= 2


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
    refusal = "can only install packages from the index" if mode.sandbox else "installing packages from cells is not"
    assert refusal in ((await on_node.execute("!pip install ./package-of-code")).text or "")


async def test_denials_of_the_sandbox_are_explained(on_node: CodeExecutor, mode: Mode):
    result = await on_node.execute("try: open('/etc/never', 'w')\nexcept OSError as exc: print(exc)")
    assert ("The sandbox refused to write /etc/never" in "".join(result.notices)) == mode.sandbox


@pytest.mark.parametrize("mode", [Mode.PLAIN], indirect=True)
async def test_lost_node_ends_the_cell_and_the_next_one_runs_on_another(on_node: CodeExecutor):
    async with asyncio.timeout(WAIT):
        running = await begun(on_node, SLEEPS)
        (node,) = nodes()
        os.kill(node, signal.SIGKILL)
        with pytest.raises(
            CodeExecutionError, match=r"its node .* is lost: the engine's command was killed by signal 9"
        ):
            await running
    result = await on_node.execute("1 + 1")
    assert (result.text, result.kernel_restarted) == ("2", True)
    assert any(notice.startswith(STATE_LOST) for notice in result.notices)


async def test_modules_are_preloaded_on_the_node(on_node: CodeExecutor):
    assert (await on_node.execute("import sys; 'colorsys' in sys.modules")).text == str(sys.platform == "linux")
