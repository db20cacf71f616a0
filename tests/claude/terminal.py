"""The real `claude` in a terminal, in which a test reads and types."""

import json
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pexpect
import pyte

from tests.claude.cli import Home, no_process_left
from tests.servers import WAIT

LINES, COLUMNS = 50, 120

#: Seconds until a key is pressed again: it could answer the next question if the screen changes later than that.
PATIENCE = 5.0
UP, DOWN, RIGHT, ENTER, ESCAPE = "\x1b[A", "\x1b[B", "\x1b[C", "\r", "\x1b"


class Terminal:
    """A running client, and the screen that it writes to."""

    def __init__(self, process: "pexpect.spawn[str]", columns: int, lines: int):
        self._process = process
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.Stream(self.screen)

    def until(self, *texts: str, timeout: float = WAIT) -> None:
        """Waits until the screen shows all of these."""
        deadline = time.monotonic() + timeout
        while not all(text in (shown := "\n".join(self.screen.display)) for text in texts):
            assert time.monotonic() < deadline, f"{texts} are not shown, but: {shown}"
            self._read()

    def until_file(self, path: Path, timeout: float = WAIT) -> None:
        """Waits until there is this file."""
        deadline = time.monotonic() + timeout
        while not path.exists():
            assert time.monotonic() < deadline, f"there is no {path}, and the screen shows: {self.screen.display}"
            self._read()

    def type(self, key: str) -> None:
        """Presses a key."""
        self._process.send(key)

    def type_until_gone(self, key: str, text: str, timeout: float = WAIT) -> None:
        """Presses a key until a text is gone: right after another key, the client does not take it."""
        deadline = time.monotonic() + timeout
        again = 0.0
        while any(text in line for line in self.screen.display):
            now = time.monotonic()
            assert now < deadline, f"{text} is still shown: {self.screen.display}"
            if now >= again:
                self.type(key)
                again = now + PATIENCE
            self._read()

    def _read(self) -> None:
        with suppress(pexpect.TIMEOUT):
            self._stream.feed(self._process.read_nonblocking(65536, timeout=1))


@contextmanager
def terminal(
    home: Home, workspace: Path, *arguments: str, columns: int = COLUMNS, lines: int = LINES, **env: str
) -> Generator[Terminal]:
    """Runs the client in a terminal, in a workspace that its user trusts."""
    key = "a-key-of-which-the-last-20-are-known"
    known = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [key[-20:]], "rejected": []},
        "projects": {str(workspace): {"hasTrustDialogAccepted": True}},
    }
    config = Path(home.env["CLAUDE_CONFIG_DIR"])
    config.mkdir(exist_ok=True)
    (config / ".claude.json").write_text(json.dumps(known))
    with no_process_left():
        process: pexpect.spawn[str] = pexpect.spawn(
            str(home.client.program),
            list(arguments),
            cwd=str(workspace),
            env={**home.env, **env, "ANTHROPIC_API_KEY": key, "TERM": "xterm-256color"},
            dimensions=(lines, columns),
            encoding="utf-8",
        )
        try:
            yield Terminal(process, columns, lines)
        finally:
            process.kill(signal.SIGKILL)
            process.wait()
            process.close()
