import os
import signal
import socket
import subprocess
import sys

import pytest

from ipybox.mcp_client import process_guard

WAIT = 20


def guard(*command: str, stdin: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", process_guard.__file__, "--", *command],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("command", "code", "report"),
    [
        pytest.param(["sh", "-c", "exit 0"], 0, "exited with code 0", id="success"),
        pytest.param(["sh", "-c", "exit 3"], 3, "exited with code 3", id="failure"),
        pytest.param(["sh", "-c", "kill -9 $$"], 137, "was killed by signal 9", id="signal"),
        pytest.param(["no-such-command"], 127, "can't be started: No such file or directory", id="not_found"),
        pytest.param(["/"], 127, "can't be started: Permission denied", id="not_executable"),
    ],
)
def test_exit_code_and_report_tell_how_the_server_ended(command: list[str], code: int, report: str):
    with guard(*command) as process:
        assert process.stderr is not None
        stderr = process.stderr.read()  # with stdin open: it is not told to end

    assert process.returncode == code
    assert stderr.decode() == f"\n{process_guard.REPORT}{report}\n"


def test_the_pipes_are_passed_on_untouched():
    with guard("sh", "-c", "echo out; echo err >&2; cat") as process:
        stdout, stderr = process.communicate(b"data\n", timeout=WAIT)

    assert stdout == b"out\ndata\n"
    assert stderr.startswith(b"err\n")


@pytest.mark.parametrize("kind", ["socket", "pipe"])
@pytest.mark.parametrize("unread", [b"", b"unread"])
def test_a_closed_stdin_ends_a_server_that_ignores_it(kind: str, unread: bytes):
    if kind == "pipe":
        process = guard("sh", "-c", "trap '' TERM; echo $$; while :; do sleep 60; done")
        assert process.stdin is not None
        process.stdin.write(unread)
        process.stdin.flush()
        close = process.stdin.close
    else:
        ours, theirs = socket.socketpair()
        process = guard("sh", "-c", "trap '' TERM; echo $$; while :; do sleep 60; done", stdin=theirs.fileno())
        theirs.close()
        ours.sendall(unread)
        close = ours.close
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        pid = int(process.stdout.readline())
        close()
        assert process.wait(WAIT) == 128 + signal.SIGKILL
        # Nothing to report: the application knows, or is gone.
        assert process.stderr.read() == b""
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_closed_stdin_leaves_the_server_time_to_finish():
    with guard(sys.executable, "-S", "-c", "import sys; sys.stdin.read(); sys.stdout.write('saved')") as process:
        stdout, _ = process.communicate(timeout=WAIT)

    assert stdout == b"saved"


def test_a_server_that_ignores_its_stdin_gets_a_sigterm_first():
    with guard("sh", "-c", "trap 'echo terminated; exit' TERM; while :; do sleep 0.01; done") as process:
        stdout, _ = process.communicate(timeout=WAIT)

    assert stdout == b"terminated\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_guard_ends_both(number: signal.Signals):
    with guard("sh", "-c", "trap '' TERM INT HUP; echo $$; while :; do sleep 60; done") as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        os.killpg(process.pid, number)
        assert process.wait(WAIT) == 128 + signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_a_server_leaves_behind_goes_with_it():
    # One child in the group, one in a session of its own, one of those without a parent.
    script = "sleep 1000 & setsid sleep 1000 & (setsid sleep 1000 & echo $!); exit 5"
    with guard("sh", "-c", script) as process:
        # Returns because nobody holds the pipes any more.
        stdout, _ = process.communicate(timeout=WAIT)

    assert process.returncode == 5
    with pytest.raises(ProcessLookupError):
        os.kill(int(stdout), 0)


def test_orphans_that_end_before_the_server_do_not_stay_as_zombies():
    with guard("sh", "-c", "orphan=$(true & echo $!); while kill -0 $orphan; do sleep 0.01; done; exit 5") as process:
        process.communicate(timeout=WAIT)

    assert process.returncode == 5


def test_signals_that_python_ignores_have_their_default_in_the_server():
    with guard("sh", "-c", "kill -PIPE $$") as process:
        process.communicate(timeout=WAIT)

    assert process.returncode == 128 + signal.SIGPIPE
