"""What an application sees if a job is cancelled, waits or vanishes, and what is left if the application does."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.code_exec.cell_runner import STATE_LOST
from ipybox.errors import GatewayError
from ipybox.node.protocol import NODE_LOST_AFTER
from tests.cluster.conftest import DIRECTORY, on_head, srun
from tests.code_exec.cells import SLEEPS, begun

pytestmark = pytest.mark.kernel

WHERE = "import socket; print(socket.gethostname())"

#: Seconds for a job to end, and between two looks at the queue.
WAIT = 30.0
POLL_INTERVAL = 0.2

APPLICATION = """
import asyncio, sys
from ipybox import CodeExecutor

async def main():
    async with CodeExecutor(working_dir=sys.argv[1], engine=sys.argv[2:]) as executor:
        await executor.execute("1")
        print("READY", flush=True)
        await executor.execute("while True: pass", timeout=None)

asyncio.run(main())
"""


async def queue_becomes(expected: str, column: str) -> None:
    """Returns when `squeue` prints this; Slurm reports no events."""
    said = ""
    for _ in range(int(WAIT / POLL_INTERVAL)):
        if (said := await asyncio.to_thread(on_head, "squeue", "--noheader", f"--format={column}")) == expected:
            return
        await asyncio.sleep(POLL_INTERVAL)
    raise AssertionError(f"squeue still says {said!r}")


async def queue_is_empty() -> None:
    await queue_becomes("", "%i")


async def test_sessions_are_jobs_on_nodes_and_leave_the_queue(tmp_path: Path):
    async with CodeExecutor(working_dir=tmp_path, engine=srun()) as executor:
        node = (await executor.execute(WHERE)).text
        assert node in ("node1", "node2")
        assert await asyncio.to_thread(on_head, "squeue", "--noheader", "--format=%N") == node
    await queue_is_empty()


async def test_cancelled_job_ends_the_cell_and_the_next_one_is_another_job(tmp_path: Path):
    async with CodeExecutor(working_dir=tmp_path, engine=srun()) as executor:
        running = await begun(executor, SLEEPS)
        await asyncio.to_thread(on_head, "scancel", "--user=root")
        async with asyncio.timeout(10):
            with pytest.raises(CodeExecutionError, match=r"its node node\d is lost: (.|\n)*CANCELLED"):
                await running
        result = await executor.execute("1 + 1")
        assert result.text == "2"
        assert any(notice.startswith(STATE_LOST) for notice in result.notices)
    await queue_is_empty()


async def test_node_without_a_network_is_lost_and_the_next_cell_runs_on_another(tmp_path: Path):
    async with CodeExecutor(working_dir=tmp_path, engine=srun()) as executor:
        node = (await executor.execute(WHERE)).text
        running = await begun(executor, SLEEPS, timeout=60)
        await asyncio.to_thread(on_head, "ip", "link", "set", f"v{node}", "down")
        try:
            async with asyncio.timeout(NODE_LOST_AFTER + 15):
                with pytest.raises(CodeExecutionError, match="is lost: the node has not answered for 10 s"):
                    await running
            other = (await executor.execute(WHERE, timeout=120)).text
            assert other in {"node1", "node2"} - {node}
        finally:
            await asyncio.to_thread(on_head, "ip", "link", "set", f"v{node}", "up")
    # Slurm keeps the job of the node that was cut off, because its srun could not end it: docs/engines.md says so.
    await asyncio.to_thread(on_head, "scancel", "--user=root")
    for _ in range(int(WAIT / POLL_INTERVAL)):  # until Slurm has both nodes again
        if await asyncio.to_thread(on_head, "sinfo", "--noheader", "--states=idle", "--format=%D") == "2":
            return
        await asyncio.sleep(POLL_INTERVAL)
    raise AssertionError("Slurm does not have both nodes again")


async def test_job_that_waits_says_why(tmp_path: Path):
    full = srun("--ntasks=2", "--nodes=2", "--exclusive")
    busy = await asyncio.create_subprocess_exec(
        *full[: full.index("env")], "sleep", "60", stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await queue_becomes("RUNNING", "%T")
        executor = CodeExecutor(working_dir=tmp_path, engine=srun(), queue_timeout=6)
        with pytest.raises(
            GatewayError, match=r"no node in 6 s .*: it waited for the scheduler: job \d+, PENDING \(\w+\)"
        ):
            await executor.start()
    finally:
        busy.terminate()
        await busy.wait()
    await queue_is_empty()


async def test_killed_application_leaves_no_job(tmp_path: Path):
    application = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", APPLICATION, str(tmp_path), *srun()), stdout=asyncio.subprocess.PIPE
    )
    assert application.stdout is not None
    async with asyncio.timeout(WAIT):
        assert await application.stdout.readline() == b"READY\n"
    os.kill(application.pid, signal.SIGKILL)
    await application.wait()
    await queue_is_empty()


async def test_workspace_that_is_not_on_the_node_is_synchronized():
    workspace = DIRECTORY / "private" / "workspace"
    (workspace / "gentools").mkdir(parents=True, exist_ok=True)
    (workspace / "gentools" / "given.py").write_text("x = 1")
    async with CodeExecutor(working_dir=workspace, engine=srun()) as executor:
        result = await executor.execute("open('gentools/saved.py', 'w').write(open('gentools/given.py').read())")
        assert result.notices[0].startswith("The workspace is not on the node node")
        assert (workspace / "gentools" / "saved.py").read_text() == "x = 1"
    await queue_is_empty()


async def test_memory_limit_becomes_that_of_the_job(tmp_path: Path):
    command = [part for part in srun() if not part.startswith("--mem")]
    async with CodeExecutor(working_dir=tmp_path, engine=command, memory_limit=512 << 20):
        assert await asyncio.to_thread(on_head, "squeue", "--noheader", "--format=%m") == "768M"
