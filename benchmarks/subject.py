"""The processes that are measured, from the side of the benchmark.

A subject is a script in `subjects/` that runs in a fresh interpreter and a directory of its own. It writes a line
when it has started, and then answers each line that it is sent (`subjects/channel.py`).
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

SUBJECTS = Path(__file__).parent / "subjects"

#: Seconds that anything may take before it counts as hung.
LIMIT = 120.0


#: Tells which ipybox an interpreter has, without importing it.
IDENTIFY = """
import importlib.metadata, importlib.util
print(importlib.metadata.version("ipybox"))
print(importlib.util.find_spec("ipybox").origin)
"""


class SubjectError(Exception):
    """A process that was to be measured failed; the message has its last words."""


class Subject:
    """A process that speaks in lines of JSON on its standard input and output.

    Args:
        command: What to run, the interpreter first.
        directory: Its working directory.
    """

    def __init__(self, command: list[str], directory: Path):
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._given_up = False
        self._began = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment(command[0]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        assert self._process.stdout is not None
        self.end_input()
        try:
            self._process.wait(LIMIT if exc_type is None else 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._stderr.close()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def age(self) -> float:
        """Seconds since the process was spawned."""
        return time.perf_counter() - self._began

    def end_input(self) -> None:
        """Closes its standard input, on which it ends."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends one message.

        Raises:
            SubjectError: If the process has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise SubjectError(f"{self._process.args} ended:\n{self._last_words()}") from None

    def receive(self) -> Any:
        """Returns the next message.

        Raises:
            SubjectError: If there is no message within `LIMIT`.
        """
        assert self._process.stdout is not None
        watchdog = threading.Timer(LIMIT, self._give_up)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            reason = f"gave no answer in {LIMIT:g} s" if self._given_up else "ended"
            raise SubjectError(f"{self._process.args} {reason}:\n{self._last_words()}")
        return json.loads(line)

    def ask(self, operation: str, **arguments: Any) -> Any:
        """Has the subject do something and returns its answer.

        Raises:
            SubjectError: If it fails.
        """
        self.send({"operation": operation, "arguments": arguments})
        try:
            answer = self.receive()
        except SubjectError as exc:
            raise SubjectError(f"{operation}: {exc}") from None
        if "error" in answer:
            raise SubjectError(f"{operation} failed: {answer['error']}")
        return answer["value"]

    def _give_up(self) -> None:
        self._given_up = True
        self._process.kill()

    def _last_words(self) -> str:
        self._process.wait()
        self._stderr.seek(0)
        return "\n".join(self._stderr.read().decode(errors="replace").splitlines()[-20:])


def installed(python: str) -> tuple[str, str]:
    """Returns the version of the ipybox that an interpreter imports, and where that is.

    Raises:
        SubjectError: If it has no ipybox.
    """
    command = [python, "-P", "-c", IDENTIFY]
    answer = subprocess.run(command, env=environment(python), capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise SubjectError(f"{python} has no ipybox:\n{answer.stderr}")
    version, origin = answer.stdout.splitlines()
    return version, origin


@contextmanager
def started(script: str, *arguments: str, python: str = sys.executable) -> Generator[tuple[Subject, float]]:
    """Runs a script of `subjects/`; yields it, and the seconds from its spawn to its first word."""
    with (
        tempfile.TemporaryDirectory(prefix="ipybox-bench-", ignore_cleanup_errors=True) as directory,
        Subject([python, str(SUBJECTS / script), *arguments], Path(directory)) as subject,
    ):
        subject.receive()
        yield subject, subject.age


def start_seconds(script: str, *arguments: str, python: str = sys.executable) -> list[float]:
    """Runs a script of `subjects/` to its first word and returns the seconds that took."""
    with started(script, *arguments, python=python) as (_, seconds):
        return [seconds]


def environment(python: str) -> dict[str, str]:
    """Returns the environment for processes of an interpreter: its own programs come first on the path.

    Variables that change how Python works (for example PYTHONDONTWRITEBYTECODE) are no part of what is measured.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return inherited | {"PATH": f"{Path(python).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
