"""No program that ipybox starts ignores or blocks signals because the application does."""

import os
import signal
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from ipybox.mcp_client import process_guard
from ipybox.remote.application import tied
from ipybox.sandbox import placeholders

#: Becomes a program that inherits blocked signals, all of them, and ignored ones.
INHERIT = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run with nohup
for number in map(int, sys.argv[1].split()):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""

#: Prints what a program inherits; it is Python, which ignores two signals by itself.
SHOW = """
import signal
ignored = [int(number) for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN]
blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
print(sorted(ignored), blocked, signal.getsignal(signal.SIGINT).__name__)
"""
ITSELF = f"from ipybox.support.signals import reset_signals; reset_signals(); exec({SHOW!r})"
CHILD = f"""
import subprocess, sys
from ipybox.support.signals import reset_signals
reset_signals()
subprocess.run([sys.executable, "-c", {SHOW!r}], check=True)
"""

IGNORED = signal.valid_signals() - {signal.SIGHUP, signal.SIGKILL, signal.SIGSTOP}
PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def inherit(command: list[str], ignored: Collection[int]) -> str:
    """Runs Python with these arguments as an application would that ignores and blocks signals."""
    numbers = " ".join(str(int(number)) for number in ignored)
    return subprocess.check_output([sys.executable, "-c", INHERIT, numbers, *command], text=True, timeout=20)


def expected(*ignored: int) -> str:
    return f"{sorted(map(int, (*PYTHON, *ignored)))} [] default_int_handler\n"


@pytest.mark.parametrize("program", ["itself", "child", "mcp_server", "engine", "sandbox"])
def test_a_program_ignores_and_blocks_no_signal_because_the_application_does(tmp_path: Path, program: str):
    places = [tmp_path / name for name in ("workspace", "state", "private")]
    for place in places:
        place.mkdir()
    shown = [sys.executable, "-I", "-S", "-c", SHOW]
    commands = {
        "itself": ["-c", ITSELF],
        "child": ["-c", CHILD],
        "mcp_server": ["-I", "-S", process_guard.__file__, "--", *shown],
        "engine": ["-I", "-S", tied.__file__, str(os.getpid()), *shown],
        "sandbox": ["-I", "-S", placeholders.__file__, *map(str, places), "--", *shown],
    }
    assert inherit(commands[program], IGNORED) == expected()


def test_what_nohup_ignores_stays_ignored():
    assert inherit(["-c", ITSELF], {signal.SIGHUP, signal.SIGINT}) == expected(signal.SIGHUP)
