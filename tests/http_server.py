"""`ipybox --transport http` for tests."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    url: str
    token_file: Path

    @property
    def token(self) -> str:
        return json.loads(self.token_file.read_text())["token"]

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@contextmanager
def serving(workspace: Path, *options: str, program: Sequence[str] = ("-m", "ipybox"), **env: str) -> Generator[Server]:
    """Runs a server until it is left, as a user does who stops it."""
    command = [sys.executable, *program, "--workspace", str(workspace), "--transport=http", "--port=0", *options]
    kept = {name: os.environ[name] for name in ("PATH", "XDG_STATE_HOME", "JUPYTER_RUNTIME_DIR")}
    with subprocess.Popen(command, env={**kept, **env}, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        told = re.fullmatch(r"ipybox: serving on (http://\S+/mcp); the token is in (\S+)\n", said)
        assert told is not None, said + process.stderr.read()
        try:
            yield Server(process, told[1], Path(told[2]))
        finally:
            process.terminate()
            # What is on stderr would be a complaint about one of the clients.
            assert process.stderr.read() == ""
