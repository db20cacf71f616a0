"""Runs programs in an interpreter that has imported ipybox and the MCP SDK: each is a fork of it.

The imports take a second of processor time, which is more than most programs of the documentation do by themselves.
"""

import json
import os
import signal
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from select import select
from subprocess import PIPE, CompletedProcess
from tempfile import TemporaryDirectory

#: The code of the interpreter. It forks for each line of its stdin, and prints the exit status. The fork runs the
#: program as `python -c` does.
_FORKS = """
import json, os, sys
import gc, mcp, ipybox.code_exec.executor, ipybox.mcp_apigen
gc.freeze()
for line in iter(sys.stdin.readline, ""):
    asked = json.loads(line)
    pid = os.fork()
    if not pid:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    sys.exit()
os.chdir(asked["cwd"])
os.environ.clear()
os.environ.update(asked["env"])
for number, (path, flags) in enumerate(zip(asked["files"], (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY))):
    os.dup2(os.open(path, flags), number)
exec(asked["program"], {"__name__": "__main__"})
"""


class WarmPython:
    """An interpreter that runs programs, one after the other."""

    def __init__(self, process: "subprocess.Popen[str]"):
        self._process = process

    def run(
        self, program: str, cwd: Path, env: Mapping[str, str], timeout: float, typed: str = ""
    ) -> CompletedProcess[str]:
        """Runs a program, and returns what it has written, and its exit status."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with TemporaryDirectory() as directory:
            stdin, stdout, stderr = files = [Path(directory, name) for name in ("stdin", "stdout", "stderr")]
            stdin.write_text(typed)
            stdout.touch()
            stderr.touch()
            asked = {"program": program, "cwd": str(cwd), "env": {**env}, "files": list(map(str, files))}
            self._process.stdin.write(f"{json.dumps(asked)}\n")
            self._process.stdin.flush()
            if not select([self._process.stdout], [], [], timeout)[0]:
                os.killpg(self._process.pid, signal.SIGKILL)
            status = self._process.stdout.readline()
            assert status, f"it took longer than {timeout:g} s: {stderr.read_text()}"
            return CompletedProcess(program, int(status), stdout.read_text(), stderr.read_text())


@contextmanager
def warm_python(python: str, env: Mapping[str, str]) -> Generator[WarmPython]:
    """Yields the interpreter of an environment."""
    with subprocess.Popen(
        [python, "-c", _FORKS], env=env, stdin=PIPE, stdout=PIPE, text=True, start_new_session=True
    ) as process:
        yield WarmPython(process)
        assert process.stdin is not None
        process.stdin.close()
