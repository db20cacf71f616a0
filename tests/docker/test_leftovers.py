"""Nothing is left of a container, however the client, the docker command or the owner of the container ends."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Fifo
from tests.docker.conftest import GRACE, Launched, cell, command, containers, docker, launched, until_removed
from tests.mcp_server.test_server import EXECUTE
from tests.servers import WAIT, until_dead

#: The fifo is in the workspace, so it is the same one in the container.
BUSY = cell(
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nopen('fifo', 'w').write('busy\\n')\nwhile 1: 1"
)


def eof(running: Launched) -> None:
    assert running.process.stdin is not None
    running.process.stdin.close()


def signaled(number: signal.Signals) -> Callable[[Launched], None]:
    return lambda running: running.process.send_signal(number)


def kill_all(running: Launched) -> None:
    for pid in running.processes():
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("end", "load"),
    [
        pytest.param(eof, "idle", id="eof-idle"),
        pytest.param(eof, "busy", id="eof-busy"),
        pytest.param(signaled(signal.SIGTERM), "busy", id="SIGTERM"),
        pytest.param(signaled(signal.SIGINT), "busy", id="SIGINT"),
        pytest.param(signaled(signal.SIGKILL), "busy", id="SIGKILL"),
        pytest.param(kill_all, "busy", id="SIGKILL-of-the-owner-too"),
    ],
)
async def test_no_container_is_left(end: Callable[[Launched], None], load: str, tmp_path: Path, image: str, fifo: Fifo):
    async with launched(tmp_path, *command(tmp_path, image)) as running:
        if load == "busy":
            await running.send(BUSY)
            await fifo.until("busy")
        else:
            await running.ask(EXECUTE)
        processes = running.processes()
        assert len(processes) == 2  # the docker command, and the owner
        assert containers(tmp_path)

        end(running)

        await until_removed(tmp_path)
        assert not await until_dead(processes, GRACE)


#: Starts the launcher as its child, and passes stdin and stdout on.
CLIENT = "import subprocess, sys; subprocess.run(sys.argv[1:])"


async def test_no_container_is_left_when_the_client_is_killed(tmp_path: Path, image: str, fifo: Fifo):
    async with launched(tmp_path, sys.executable, "-c", CLIENT, *command(tmp_path, image)) as running:
        await running.send(BUSY)
        await fifo.until("busy")
        processes = running.processes()
        assert len(processes) == 3

        running.process.kill()
        eof(running)  # ours; it was that of the client

        await until_removed(tmp_path)
        assert not await until_dead(processes, GRACE)


async def test_a_server_that_does_not_end_with_its_stdin_is_ended(tmp_path: Path, image: str, fifo: Fifo):
    async with launched(tmp_path, *command(tmp_path, image)) as running:
        await running.ask(EXECUTE)
        docker("pause", containers(tmp_path))
        processes = running.processes()

        eof(running)

        await until_removed(tmp_path)
        assert not await until_dead(processes, GRACE)


#: Takes the place of docker: tells when a container is being made, and makes it when it is told to.
SLOW_DOCKER = """#!/bin/sh
if [ "$1" = create ]; then
    echo creating >{told}
    read -r _ <{order}
fi
exec {docker} "$@"
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_launcher_that_ends_while_the_container_is_made_leaves_none(
    number: signal.Signals, tmp_path: Path, image: str, fifo: Fifo
):
    order = Fifo(tmp_path / "order")
    slow = tmp_path.with_name(f"{tmp_path.name}-bin") / "docker"  # not in the workspace
    slow.parent.mkdir()
    real = os.environ["PATH"]
    found = next(path for place in real.split(":") if (path := Path(place, "docker")).exists())
    slow.write_text(SLOW_DOCKER.format(told=fifo.path, order=order.path, docker=found))
    slow.chmod(0o755)
    events = await asyncio.create_subprocess_exec(
        # From before, as there is no telling when it listens.
        *("docker", "events", "--since", str(int(time.time())), "--filter", f"label=ipybox.workspace={tmp_path}"),
        *("--filter", "event=create", "--filter", "event=destroy", "--format", "{{.Action}}"),
        stdout=asyncio.subprocess.PIPE,
    )
    process = await asyncio.create_subprocess_exec(
        *command(tmp_path, image),
        env={**os.environ, "PATH": f"{slow.parent}:{real}"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    await fifo.until("creating")

    process.send_signal(number)
    assert await process.wait() == -number
    order.send("go on")

    assert events.stdout is not None
    async with asyncio.timeout(WAIT):
        assert [await events.stdout.readline() for _ in range(2)] == [b"create\n", b"destroy\n"]
    assert containers(tmp_path) == ""
    events.kill()
    await events.communicate()
    await process.communicate()
    order.close()


async def test_the_volumes_of_an_image_are_not_left_either(tmp_path: Path, image: str):
    before = docker("volume", "ls", "--quiet")
    async with launched(tmp_path, *command(tmp_path, image)) as running:
        running.process.kill()
        await until_removed(tmp_path)
    assert docker("volume", "ls", "--quiet") == before
