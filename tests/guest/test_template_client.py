"""What the gateway knows of a process that was forked for it."""

import os
import socket
import subprocess
from collections.abc import Iterator

import pytest

from ipybox.guest.template_client import ForkedProcess, KernelTemplate


def test_a_process_that_has_ended_does_not_run_though_nobody_has_waited_for_it():
    """As a spare kernel of which the gateway has not noticed the end."""
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as started:
        process = ForkedProcess(started.pid, ours, None)
        assert process.runs

        assert started.stdin is not None
        started.stdin.close()
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        assert not process.runs

        assert process.wait() == 0
        assert not process.runs


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as started:
        yield started
        started.returncode = -9  # the template has waited for it


async def test_a_template_that_has_ended_forks_no_kernel_and_is_asked_no_more(
    process: subprocess.Popen[bytes], caplog: pytest.LogCaptureFixture
):
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.setblocking(False)
    template = KernelTemplate(process.pid, control)
    theirs.close()
    for _ in range(2):
        assert await template.fork(["python"]) is None
    assert control.fileno() == -1
    [message] = caplog.messages
    assert message.endswith("the template process is not available: its process has exited")
