"""Runs git in tests of the sandbox."""

import subprocess
from pathlib import Path

from tests.servers import WAIT


def git(directory: Path, *arguments: str) -> str:
    """Runs git in a directory, and returns its output."""
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "protocol.file.allow=always"]
    command = ["git", "-C", str(directory), *identity, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
