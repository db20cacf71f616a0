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
from ipybox.remote.wire.protocol import NODE_LOST_AFTER
from tests.cluster.machines import (
    DIRECTORY,
    NODES,
    kill_node,
    nodes_are_idle,
    on_head,
    queue_is_empty,
    srun,
    start,
    until_printed,
    until_saved,
)
from tests.code_exec.cells import SLEEPS, begun
from tests.servers import until_dead

pytestmark = pytest.mark.kernel

WHERE = "import socket; print(socket.gethostname())"

#: Seconds for an application to start its job.
WAIT = 30.0

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


async def test_sessions_are_jobs_on_nodes_and_leave_the_queue(tmp_path: Path):
    async with CodeExecutor(working_dir=tmp_path, engine=srun()) as executor:
        node = (await executor.execute(WHERE)).text
        assert node in NODES
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
                with pytest.raises(CodeExecutionError, match="is lost: the node has not responded for 10 s"):
                    await running
            other = (await executor.execute(WHERE, timeout=120)).text
            assert other in NODES - {node}
        finally:
            await asyncio.to_thread(on_head, "ip", "link", "set", f"v{node}", "up")
    await queue_is_empty()  # also of the job of the node that was cut off, which its srun could not end
    await nodes_are_idle()


async def test_killed_node_is_lost_and_the_next_cell_runs_on_another(tmp_path: Path):
    async with CodeExecutor(working_dir=tmp_path, engine=srun()) as executor:
        node = (await executor.execute(WHERE)).text
        assert node in NODES
        running = await begun(executor, SLEEPS, timeout=60)
        kill_node(node)
        try:
            async with asyncio.timeout(NODE_LOST_AFTER + 15):
                with pytest.raises(CodeExecutionError, match=f"its node {node} is lost"):
                    await running
            result = await executor.execute(WHERE, timeout=120)
            assert result.text in NODES - {node}
            assert any(notice.startswith(STATE_LOST) for notice in result.notices)
        finally:
            await start(node)
    await queue_is_empty()
    await nodes_are_idle()


async def test_sessions_outlive_the_controller(tmp_path: Path):
    async with CodeExecutor(working_dir=tmp_path, engine=srun()) as executor:
        await executor.execute("kept = 1")
        job, name = (await asyncio.to_thread(on_head, "squeue", "--noheader", "--format=%i %j")).split()
        await until_saved(name)
        controller = int((DIRECTORY / "slurmctld.pid").read_text())
        os.kill(controller, signal.SIGKILL)
        assert not await until_dead({controller}, WAIT)
        try:
            assert (await executor.execute("kept")).text == "1"
            with pytest.raises(GatewayError, match="Unable to contact slurm controller"):
                await CodeExecutor(working_dir=tmp_path, engine=srun()).start()
        finally:
            await start("head")
        assert (await executor.execute("kept")).text == "1"
        await until_printed("RUNNING", "squeue", "--noheader", "--format=%T", f"--jobs={job}")
    # The controller has read its last saved state, in which jobs of earlier tests may still run.
    await asyncio.to_thread(on_head, "scancel", "--state=RUNNING", "--user=root")
    await queue_is_empty()
    await nodes_are_idle()


async def test_killed_kernel_is_noticed_and_replaced_on_the_same_node(tmp_path: Path):
    async with CodeExecutor(working_dir=tmp_path, engine=srun()) as executor:
        node = (await executor.execute(WHERE)).text
        with pytest.raises(CodeExecutionError, match="died"):
            await executor.execute("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        result = await executor.execute(WHERE)
        assert (result.text, result.kernel_restarted) == (node, True)


async def test_job_that_waits_says_why(tmp_path: Path):
    full = srun("--ntasks=2", "--nodes=2", "--exclusive")
    busy = await asyncio.create_subprocess_exec(
        *full[: full.index("env")], "sleep", "60", stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await until_printed("RUNNING", "squeue", "--noheader", "--format=%T")
        executor = CodeExecutor(working_dir=tmp_path, engine=srun(), queue_timeout=6)
        with pytest.raises(
            GatewayError, match=r"a node within 6 s .*: it was waiting for the scheduler: job \d+, PENDING \(\w+\)"
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


async def test_code_is_sent_to_a_node_without_the_workspace_and_files_are_downloaded(tmp_path: Path):
    workspace = DIRECTORY / "private" / "workspace"
    (workspace / "gentools").mkdir(parents=True, exist_ok=True)
    (workspace / "gentools" / "given.py").write_text("x = 1")
    async with CodeExecutor(working_dir=workspace, engine=srun()) as executor:
        result = await executor.execute("open('saved.py', 'w').write(open('gentools/given.py').read())")
        assert result.notices[0].startswith("Node node")
        await executor.download_file("saved.py", tmp_path / "saved.py")
        assert (tmp_path / "saved.py").read_text() == "x = 1"
    await queue_is_empty()


async def test_memory_limit_becomes_that_of_the_job(tmp_path: Path):
    command = [part for part in srun() if not part.startswith("--mem")]
    async with CodeExecutor(working_dir=tmp_path, engine=command, memory_limit=512 << 20):
        assert await asyncio.to_thread(on_head, "squeue", "--noheader", "--format=%m") == "768M"
