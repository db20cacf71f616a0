"""What the gateway knows of a process that was forked for it."""

import os
import socket
import subprocess

from ipybox.guest.template_client import ForkedProcess


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
