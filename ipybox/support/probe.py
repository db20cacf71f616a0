"""Runs programs to check whether and how they work: with a time limit, without input, and leaving nothing behind."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from ipybox.support.signals import signal_group

#: Default time limit of a program, in seconds. On a busy machine, node takes several just to start.
PROBE_TIMEOUT = 10.0

#: Seconds to wait for the end of a program after SIGTERM, and after SIGKILL.
STOP_GRACE = 0.5

#: Bytes of a program's output that are kept.
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
    """Returns the exit status, or `None` if the program was killed, and the beginning of both outputs."""
    deadline = time.monotonic() + timeout
    _running.add(process)
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout as stdout, process.stderr as stderr:
        try:
            output, errors, complete = _read(stdout.fileno(), stderr.fileno(), deadline)
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            status = process.returncode
            if status is None or not complete:
                _stop(process)
        except BaseException:
            _stop(process)
            raise
        finally:
            _running.discard(process)
    return status, output, errors


def end_all() -> None:
    """Kills the programs that other threads run, for a process that exits without waiting for them."""
    for process in [*_running]:
        signal_group(process.pid, signal.SIGKILL)


def _read(stdout: int, stderr: int, deadline: float) -> tuple[str, str, bool]:
    texts = {stdout: bytearray(), stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for fd in texts:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map() and (remaining := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(remaining):
                chunk = os.read(key.fd, KEPT_OUTPUT)
                if not chunk:
                    selector.unregister(key.fd)
                texts[key.fd] += chunk[: KEPT_OUTPUT - len(texts[key.fd])]
        complete = not selector.get_map()
    output, errors = (text.decode(errors="replace") for text in texts.values())
    return output, errors, complete


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
