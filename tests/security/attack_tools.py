"""What attacks have in common. Kernels get this module as it is, so it imports the standard library only."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Iterable

#: Seconds that something may take that does not belong to the attack itself.
SECONDS = 10

libc = ctypes.CDLL(None, use_errno=True)


def first(attempts: Iterable[Callable[[], str]]) -> str:
    """Returns what the first attempt that works yields."""
    failures: list[str] = []
    for attempt in attempts:
        try:
            return attempt()
        except (OSError, subprocess.SubprocessError) as exc:
            failures.append(str(exc))
    raise OSError("; ".join(dict.fromkeys(failures)))


def in_child(function: Callable[..., str], *arguments: str) -> str:
    """Runs what changes a process for good, which is not for the kernel itself."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS)
            try:
                os.write(writer, b"+" + function(*arguments).encode())
            except BaseException as exc:
                os.write(writer, f"-{exc!r}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        answer = file.read().decode()
    os.waitpid(child, 0)
    if not answer.startswith("+"):
        raise OSError(answer[1:] or "the child has died")
    return answer[1:]


def checked(result: int, what: str) -> int:
    """Returns what a function of the C library returned, if it did not fail."""
    if result == -1:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def output(*command: str) -> str:
    """Returns what a program prints, also if it fails later on."""
    done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    if done.returncode != 0 and not done.stdout:
        raise OSError(done.stderr.decode())
    return done.stdout.decode("latin-1")
