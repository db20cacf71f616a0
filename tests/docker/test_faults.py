"""Docker's part of the matrix of `tests/faults/`: containers are killed or stopped for a moment, or kernels die."""

from pathlib import Path

from tests.conftest import Fifo
from tests.docker.conftest import GRACE, cell, client_of, command, containers, docker, launched, until_removed
from tests.mcp_server.test_server import call, output, text_of
from tests.servers import until_dead

WAITS = "open('fifo', 'w').write('busy\\n'); import time; time.sleep(600)"


async def test_a_container_that_is_killed_ends_its_client_and_the_next_one_finds_the_files(
    tmp_path: Path, image: str, fifo: Fifo
):
    async with launched(tmp_path, *command(tmp_path, image)) as running:
        await running.ask(cell("open('kept.txt', 'w').write('kept')"))
        await running.send(cell(WAITS))
        await fifo.until("busy")
        processes = running.processes()

        docker("kill", containers(tmp_path))

        assert running.process.stdout is not None
        assert await running.process.stdout.read() == b"", "end of file, and no answer that is none"
        await until_removed(tmp_path)
        assert not await until_dead(processes, GRACE)
    async with client_of(tmp_path, image) as client:
        assert await output(client, "open('kept.txt').read()") == "'kept'"


async def test_a_container_that_is_stopped_for_a_moment_loses_nothing(tmp_path: Path, image: str, fifo: Fifo):
    slow = "kept = 1; print(open('fifo', 'w').write('busy\\n')); import time; time.sleep(1)"
    async with launched(tmp_path, *command(tmp_path, image)) as running:
        await running.send(cell(slow))
        await fifo.until("busy")
        docker("pause", containers(tmp_path))
        docker("unpause", containers(tmp_path))

        assert running.process.stdout is not None
        assert b'"5"' in await running.process.stdout.readline()
        assert "'1'" in str(await running.ask(cell("print(kept)")))


async def test_a_kernel_that_dies_costs_no_other_session_and_a_server_that_is_killed_is_started_again(
    tmp_path: Path, image: str
):
    clock = {"command": "python", "args": ["-m", "mcp_server_time"]}
    now = "from mcptools.clock import get_current_time as t; t.run(t.Params(timezone='UTC')).timezone"
    async with client_of(tmp_path, image) as client:
        assert await output(client, "kept = 'default'; kept") == "'default'"
        assert await output(client, "kept = 'other'; kept", session="other") == "'other'"

        result = await call(client, "execute_ipython_cell", code="import os; os.kill(os.getpid(), 9)")

        assert "the kernel died" in text_of(result)
        assert await output(client, "kept", session="other") == "'other'"
        said = await output(client, "'kept' in globals()")
        assert said.startswith("False")
        assert said.endswith("variables, imports and definitions from earlier cells are lost.")

        await call(client, "register_mcp_server", server_name="clock", server_params=clock)
        assert await output(client, now) == "'UTC'"
        docker("exec", containers(tmp_path), "python", "-c", KILL_SERVERS)
        # A call that is made before the death is noticed can't be repeated by itself: it may have had effects.
        first = await call(client, "execute_ipython_cell", code=now)
        assert not first.is_error or "lost the connection" in text_of(first)
        assert await output(client, now) == "'UTC'"


#: Kills what runs `mcp_server_time`: the server, and not the guard that has its name among its arguments.
KILL_SERVERS = """
import os, pathlib
for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    arguments = file.read_bytes().split(b"\\0")
    if arguments[1:3] == [b"-m", b"mcp_server_time"]:
        os.kill(int(file.parent.name), 9)
"""
