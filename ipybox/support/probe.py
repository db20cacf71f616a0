"""Runs programs to check whether and how they work: with a time limit, without input, and leaving nothing behind."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from ipybox.support.signals import signal_group

#: Default time limit of a program, in seconds. On a busy machine, node takes several just to start.
PROBE_TIMEOUT = 10.0

#: Seconds to wait for the end of a program after SIGTERM, and after SIGKILL.
STOP_GRACE = 0.5

#: Bytes of each output that are kept: what a pipe holds.
KEPT_OUTPUT = 65536

_running: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True)
class ProbeResult:
    """A program's stdout, why it failed (None if it succeeded), and whether it timed out."""

    output: str
    failure: str | None
    timed_out: bool = False


def probe(command: Sequence[str], *, path: str | None = None, timeout: float | None = None) -> ProbeResult:
    """Runs a program without input, by default with the PATH of this process; blocks until it ends.

    A program that is still running after `timeout`, by default `PROBE_TIMEOUT`, is killed with its process group.
    """
    timeout = PROBE_TIMEOUT if timeout is None else timeout
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ if path is None else {**os.environ, "PATH": path},
            start_new_session=True,
            bufsize=0,
        )
    except OSError as exc:
        return ProbeResult("", f"can't be started ({exc.strerror})")
    status, output, errors = _watch(process, timeout)
    if not status:
        failure = None if status == 0 else f"did not finish within {timeout:g} s"
        return ProbeResult(output, failure, timed_out=status is None)
    how = f"exited with {status}" if status > 0 else f"was killed by signal {-status}"
    return ProbeResult(output, f"{how}: {reason}" if (reason := _reason(errors) or _reason(output)) else how)


def _watch(process: subprocess.Popen[bytes], timeout: float) -> tuple[int | None, str, str]:
    """Returns the exit status, or `None` if the program was killed, and both outputs.

    Nothing reads the pipes before the end, so a program that fills one of them is killed at the timeout.
    """
    _running.add(process)
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout)
        status = process.returncode
    finally:
        _stop(process)
        _running.discard(process)
    return status, _written(process.stdout), _written(process.stderr)


def end_all() -> None:
    """Kills the programs that other threads run, for a process that exits without waiting for them."""
    for process in [*_running]:
        signal_group(process.pid, signal.SIGKILL)


def _written(pipe: IO[bytes] | None) -> str:
    assert pipe is not None
    with pipe:
        os.set_blocking(pipe.fileno(), False)  # a process outside of the group may hold the other end
        return (pipe.read(KEPT_OUTPUT) or b"").decode(errors="replace")


def _stop(process: subprocess.Popen[bytes]) -> None:
    # Not SIGKILL first, because srt removes its mount points on SIGTERM.
    for number in (signal.SIGTERM, signal.SIGKILL):
        signal_group(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_GRACE)


def _reason(text: str) -> str:
    """Returns the line with the reason for a failure: the first that mentions an error, or else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")[:400]
