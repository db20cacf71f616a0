"""Runs programs only to see whether and how they work: bounded in time, without input, and nothing of them stays."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: Seconds that a program has by default.
PROBE_TIMEOUT = 5.0

#: Seconds that a program has to end after SIGTERM, and after SIGKILL.
STOP_GRACE = 0.5

#: Bytes of a program's output that are kept.
KEPT_OUTPUT = 65536


@dataclass(frozen=True)
class Outcome:
    """How a program ended: what it wrote to stdout, and unless it succeeded, what went wrong."""

    output: str
    failure: str | None


def probe(
    command: Sequence[str],
    *,
    path: str | None = None,
    timeout: float | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Outcome:
    """Runs a program without input and returns how it ended; blocks until then.

    A program that has not ended after `timeout` is killed with its whole process group.

    Args:
        command: Absolute path of the program, and its arguments.
        path: The program's PATH, by default that of this process.
        timeout: In seconds, by default `PROBE_TIMEOUT`.
        cwd: Working directory of the program.
        env: Variables that it has on top of those of this process.
    """
    environment = {**os.environ, **({} if path is None else {"PATH": path}), **(env or {})}
    timeout = PROBE_TIMEOUT if timeout is None else timeout
    deadline = time.monotonic() + timeout
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=environment,
            start_new_session=True,
        )
    except OSError as exc:
        return Outcome("", f"can't be started ({exc.strerror})")
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
    if status is None:
        return Outcome(output, f"does not end within {timeout:g} s")
    if status != 0:
        how = f"exits with {status}" if status > 0 else f"is killed by signal {-status}"
        return Outcome(output, f"{how}: {reason}" if (reason := _reason(errors) or _reason(output)) else how)
    return Outcome(output, None)


def _read(stdout: int, stderr: int, deadline: float) -> tuple[str, str, bool]:
    """Returns the beginning of both outputs, and whether they ended before the deadline."""
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
    # srt removes its mount points when it is asked to end, hence not SIGKILL at once.
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_GRACE)


def _reason(text: str) -> str:
    """Returns the line that says what went wrong: the first that speaks of an error, or else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")[:400]
