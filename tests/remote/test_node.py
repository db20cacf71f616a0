"""The program that an engine starts: how it ends, and what it answers."""

import os
import pty
import subprocess
import sys
from importlib.metadata import version

import pytest

from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits
from ipybox.remote.application.link import NodeLink
from ipybox.remote.application.process import EngineProcess
from ipybox.remote.application.settings import Engine
from ipybox.remote.wire.protocol import START, Message
from ipybox.remote.wire.stream import StreamClosedError
from tests.servers import WAIT

#: A node that waits for one second for its application.
IMPATIENT = """
from ipybox.remote.wire import protocol
protocol.APPLICATION_LOST_AFTER = 1
from ipybox.node import main
main()
"""


@pytest.mark.parametrize("arguments", [["-m", "ipybox.node"], ["-c", IMPATIENT]], ids=["ended", "silent"])
def test_node_exits_if_its_application_ends_or_is_silent(arguments: list[str]):
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, *arguments], stdin=pipe, stdout=pipe) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        if arguments[0] == "-m":
            node.stdin.close()
        assert node.wait(WAIT) == 0
        assert node.stdout.readline() == f"ipybox-node {version('ipybox')}\n".encode()


def test_node_on_a_terminal_explains_itself():
    person, terminal = pty.openpty()
    command = [sys.executable, "-m", "ipybox.node"]
    done = subprocess.run(command, stdin=terminal, stderr=subprocess.PIPE, text=True, timeout=WAIT, check=False)
    for fd in (person, terminal):
        os.close(fd)
    assert (done.returncode, done.stderr.splitlines()[0][:37]) == (1, "ipybox.node can't run on a terminal: ")


@pytest.mark.parametrize(("path", "exits"), [("/unknown", False), (START, True)])
async def test_node_refuses_unknown_requests_and_exits_after_invalid_ones(path: str, exits: bool, command: list[str]):
    process = EngineProcess(Engine(name="node", command=command), ResourceLimits(), os.environ["PATH"])
    link = NodeLink(lambda _: None)
    await link.open(*await process.spawn())
    assert await link.settled(WAIT)
    with pytest.raises(StreamClosedError):
        await link.ask(path, Message(), Message)
    if exits:
        assert "exited with status 0" in await process.exit_report()
    else:
        with pytest.raises(StreamClosedError):
            await link.ask(path, Message(), Message)
    assert link.closed.is_set() == exits
    await link.close()
    await process.end(WAIT)
