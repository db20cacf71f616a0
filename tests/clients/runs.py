"""Runs programs with the Python or the npm folder that `make clients` sets up for them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.claude.cli import no_process_left
from tests.servers import ROOT

PROGRAMS = ROOT / "tests" / "clients" / "programs"
NPM = ROOT / ".npm" / "clients"

#: The programs whose packages need version 1 of MCP's SDK.
OF_VERSION_1 = ("with_mcp1.py", "with_langchain.py", "with_langchain_per_call.py")

#: Seconds for a program, on a busy machine.
RUN_TIMEOUT = 180


def run(command: list[str], cwd: Path | str, answer: str = "", **env: str) -> str:
    """Returns what a program prints, which has to succeed and to leave no process behind; `answer` is its stdin."""
    with no_process_left():
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **env},
            input=answer,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_client(program: str, server: dict[str, Any], calls: list[dict[str, Any]]) -> Any:
    """Returns what the client of a program reports about a server."""
    given = json.dumps({"server": server, "calls": calls})
    if program.endswith(".mjs"):
        assert (NPM / "node_modules").exists(), "there is no .npm/clients: run `make clients`"
        for name in (program, "battery.mjs"):  # node looks for packages above the program
            shutil.copy(PROGRAMS / name, NPM)
        return json.loads(run(["node", program, given], NPM))
    venv = ".venv-mcp1" if program in OF_VERSION_1 else ".venv-mcp2"
    return json.loads(run([python_of(venv), program, given], PROGRAMS))


def python_of(venv: str) -> str:
    """Returns the Python of a virtual environment that `make clients` sets up."""
    python = ROOT / venv / "bin" / "python"
    assert python.exists(), f"there is no {venv}: run `make clients`"
    return str(python)


def stdio_server(workspace: Path) -> dict[str, Any]:
    """Returns ipybox as a command, with the private directories of the tests."""
    kept = {name: os.environ[name] for name in ("PATH", "XDG_STATE_HOME", "JUPYTER_RUNTIME_DIR")}
    return {"command": sys.executable, "args": ["-m", "ipybox", "--workspace", str(workspace)], "env": kept}
