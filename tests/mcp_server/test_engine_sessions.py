"""Sessions of the MCP server with an engine: each is a job, which may wait. Stand-ins print what `srun` does."""

import asyncio
import json
import os
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from mcp import Client

from ipybox.mcp_server.services import WorkspaceServices
from tests.conftest import Fifo, Mode
from tests.mcp_server.test_kernel_sessions import kernels
from tests.mcp_server.test_server import call, client_of, output, text_of
from tests.servers import WAIT, until_dead

#: Provides a node if there is a place for the job, and else says what srun does, as long as the job waits.
SRUN = """#!/bin/sh
if mv {places}/place-* {places}/taken-$$ 2>/dev/null; then exec {node}; fi
echo "srun: job 17 queued and waiting for resources" >&2
echo $$ > {waits}
exec sleep 600
"""

SQUEUE = "#!/bin/sh\necho '17     PENDING             Resources      '\n"


@pytest.fixture
def cluster(tmp_path: Path, private_directories: None, fifo: Fifo) -> Path:
    """Has a file for each place of a cluster, and the configuration with its engine."""
    places = tmp_path / "cluster"
    places.mkdir()
    state = f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}"
    node = shlex.join(["env", state, sys.executable, "-P", "-m", "ipybox.node"])
    for name, script in (("srun", SRUN.format(places=places, node=node, waits=fifo.path)), ("squeue", SQUEUE)):
        (places / name).write_text(script)
        (places / name).chmod(0o755)
    (places / "config" / "ipybox").mkdir(parents=True)
    (places / "config" / "ipybox" / "engines.yaml").write_text(f"slurm:\n  command: [{places}/srun]\n")
    return places


def options_of(cluster: Path) -> dict[str, Any]:
    return {"XDG_CONFIG_HOME": str(cluster / "config")}


def jobs_in(workspace: Path) -> list[tuple[str, str | None, str | None]]:
    lines = (workspace / ".ipybox" / "audit.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return [(each["session_name"], each["action"], each.get("job")) for each in events if each["event"] == "job"]


async def test_queued_session_reports_its_job_stalls_no_other_and_is_cancelled(
    tmp_path: Path, cluster: Path, fifo: Fifo
):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (cluster / "place-1").touch()
    said: list[str] = []
    waits = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        assert (progress >= 0, total) == (True, None)
        said.append(message or "")
        if "PENDING" in said[-1]:
            waits.set()

    async def run_queued(client: Client, cancelled: anyio.CancelScope) -> None:
        with cancelled:
            arguments = {"code": "1", "session": "queued"}
            await client.call_tool("execute_ipython_cell", arguments, progress_callback=note)

    async with client_of(workspace, "--engine=slurm", "--max-sessions=3", **options_of(cluster)) as client:
        assert await output(client, "x = 1; x + 1") == "2"
        cancelled = anyio.CancelScope()
        queued = asyncio.create_task(run_queued(client, cancelled))
        job = int(await fifo.line())
        async with asyncio.timeout(WAIT):
            await waits.wait()
        assert said[-1] == "waiting for the scheduler: job 17, PENDING (Resources)"
        assert await output(client, "x") == "1"

        cancelled.cancel()
        await queued
        assert not await until_dead({job}, WAIT)
        assert text_of(await call(client, "reset")) == "The kernel was reset.", "the session is gone"

        (cluster / "place-2").touch()
        assert await output(client, "2 + 2", session="queued") == "4"
    jobs = jobs_in(workspace)
    assert ("queued", "queued", "17") in jobs
    assert ("queued", "failed", "17") in jobs
    assert [(name, action) for name, action, _ in jobs if action == "started"] == [
        ("default", "started"),
        ("queued", "started"),
    ]
    assert [action for _, action, _ in jobs].count("ended") == 2


async def test_queued_session_that_another_request_waits_for_stays_in_the_queue(
    tmp_path: Path, cluster: Path, fifo: Fifo
):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with client_of(workspace, "--engine=slurm", **options_of(cluster)) as client:
        scopes = anyio.CancelScope(), anyio.CancelScope()

        async def run(scope: anyio.CancelScope) -> None:
            with scope:
                await client.call_tool("execute_ipython_cell", {"code": "1"})

        first, second = (asyncio.create_task(run(scope)) for scope in scopes)
        job = int(await fifo.line())
        scopes[0].cancel()
        await first
        assert text_of(await call(client, "reset", session="other")) != "", "the server has answered after the cancel"
        os.kill(job, 0)
        scopes[1].cancel()
        await second
        assert not await until_dead({job}, WAIT)


async def test_job_leaves_the_queue_when_the_application_is_killed(tmp_path: Path, cluster: Path, fifo: Fifo):
    program = f"""
import asyncio, ipybox
asyncio.run(ipybox.CodeExecutor(engine=[{str(cluster / "srun")!r}]).start())
"""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=workspace)
    job = int(await fifo.line())
    process.kill()
    await process.wait()
    if sys.platform == "linux":
        assert not await until_dead({job}, WAIT)


async def test_session_that_is_not_used_is_stopped_and_the_next_cell_says_so(tmp_path: Path, mode: Mode):
    async with client_of(tmp_path, *mode.options, "--session-idle-timeout=2") as client:
        for session in ("default", "a"):
            await output(client, "kept = 1", session=session)
            assert not await until_dead({*kernels()}, WAIT)
            again = await output(client, "print('kept' in globals())", session=session)
            assert again.startswith("False\n[ipybox] The kernel died or was restarted")
            assert "because the session was idle for 2 s (session_idle_timeout)" in again
            assert await output(client, "print('kept' in globals())", session=session) == "False"
        assert not await until_dead({*kernels()}, WAIT)
        assert text_of(await call(client, "reset", session="a")) == "The session a has ended."
        unknown = await call(client, "reset", session="a")
        assert text_of(unknown) == "no session named 'a'; existing sessions: default"
        code = "import time; time.sleep(5); print('a cell is use')"
        assert await output(client, code, session="busy") == "a cell is use"


async def test_a_file_is_found_on_a_node_even_if_another_node_is_lost():
    def session(outcome: OSError | str) -> Any:
        async def read_from_node(_: str) -> str:
            if isinstance(outcome, OSError):
                raise outcome
            return outcome

        return SimpleNamespace(read_from_node=read_from_node)

    async def read(*outcomes: OSError | str) -> object:
        running: Any = SimpleNamespace(
            config=SimpleNamespace(engine="x"), sessions=SimpleNamespace(started=[*map(session, outcomes)])
        )
        return await WorkspaceServices.read_from_node(running, "file")

    lost, missing = OSError("it is not responding"), FileNotFoundError("no such file")
    assert await read(lost, missing, "content", "other") == "content"
    with pytest.raises(OSError, match="it is not responding"):
        await read(missing, lost)
    with pytest.raises(FileNotFoundError):
        await read(missing, missing)
