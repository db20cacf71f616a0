"""An installed plugin without Claude Code, and a client that speaks MCP with what `.mcp.json` starts."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.claude.cli import Home
from tests.servers import ROOT, WAIT

#: Seconds that an environment takes at most, by pip and from an index.
BUILD = 300.0


class Plugin:
    """An installed plugin, in the home of a user."""

    def __init__(self, directory: Path, *, hidden: Collection[str] = (), compiles: bool = False):
        directory.mkdir(exist_ok=True)
        self.root = directory / "plugin"
        shutil.copytree(ROOT / "plugins" / "codeact-default", self.root, ignore=shutil.ignore_patterns("__pycache__"))
        self.workspace = directory / "workspace"
        self.workspace.mkdir()
        self.bin = directory / "bin"
        home = Home(directory, directory, compiles=compiles)
        self.data = home.path / ".local" / "share" / "ipybox"
        for program in hidden:
            (self.bin / program).unlink(missing_ok=True)
        self.env = {
            **home.env,
            "CLAUDE_PLUGIN_ROOT": str(self.root),
            "CLAUDE_PROJECT_DIR": str(self.workspace),
        }

    def replace(self, program: str, script: str) -> None:
        """Puts a shell script in the place of a program; `$REAL` is the path of that."""
        real = os.path.realpath(self.bin / program)
        (self.bin / program).unlink()
        (self.bin / program).write_text(f"#!/bin/sh\nREAL={real}\n{script}\n")
        (self.bin / program).chmod(0o755)

    def start(self, *arguments: str, **env: str) -> "subprocess.Popen[str]":
        """Starts the launcher; by default as `.mcp.json` does in plain mode."""
        return subprocess.Popen(
            ["sh", str(self.root / "launch" / "launch.sh"), *(arguments or ("serve", "plain", "--memory-limit="))],
            cwd=self.workspace,
            env={**self.env, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def notice(self, mode: str, **env: str) -> dict[str, Any]:
        """Returns what the hook prints; an empty object for nothing."""
        with self.start("notice", mode, **env) as process:
            stdout, stderr = process.communicate(timeout=WAIT)
        assert (process.returncode, stderr) == (0, "")
        return json.loads(stdout) if stdout else {}

    def change(self, what: str) -> None:
        """Makes another version of it."""
        with (self.root / "package" / "ipybox" / "__init__.py").open("a") as module:
            module.write(f"# {what}\n")

    @property
    def environments(self) -> list[Path]:
        return [path for path in (self.data / "environments").iterdir() if path.is_dir()]

    @property
    def versions(self) -> set[Path]:
        return {version for environment in self.environments for version in (environment / "versions").iterdir()}

    def until_built(self) -> None:
        """Waits until the process has ended that has built the environment: it goes on after the server has started."""
        (path,) = self.data.parents[1].glob("state/ipybox/environments/*/build")
        with path.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)

    @property
    def log(self) -> str:
        """What the programs said that built the environment."""
        (log,) = (self.data / "environments").glob("*.log")
        return log.read_text()


class Client:
    """Speaks MCP with a process, line by line."""

    def __init__(self, process: "subprocess.Popen[str]"):
        self._process = process
        self._id = 0
        self.notifications: list[dict[str, Any]] = []

    def request(self, method: str, **params: Any) -> Any:
        """Makes a request and returns its result, and notes what comes before."""
        return self.answer(self.ask(method, **params))["result"]

    def ask(self, method: str, **params: Any) -> int:
        self._id += 1
        self.send(id=self._id, method=method, params=params)
        return self._id

    def answer(self, number: int | str | None) -> dict[str, Any]:
        while "method" in (message := self.read()) or message["id"] != number:
            self.notifications.append(message)
        return message

    def read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the server has ended: {self._process.communicate()[1]}"
        return json.loads(line)

    def initialize(self, **capabilities: Any) -> dict[str, Any]:
        client = {"name": "claude-code", "version": "1"}
        result = self.request("initialize", protocolVersion="2025-11-25", capabilities=capabilities, clientInfo=client)
        self.send(method="notifications/initialized")
        return result

    def call(self, code: str, **meta: Any) -> int:
        arguments = {"name": "execute_ipython_cell", "arguments": {"code": code}}
        return self.ask("tools/call", **arguments, **({"_meta": meta} if meta else {}))

    def execute(self, code: str) -> str:
        result = self.answer(self.call(code))["result"]
        assert not result.get("isError"), result
        return result["content"][0]["text"]

    def failure(self, code: str = "1") -> str:
        result = self.answer(self.call(code))["result"]
        assert result["isError"]
        return result["content"][0]["text"]

    def send(self, **message: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}))

    def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


@contextmanager
def served(plugin: Plugin, *arguments: str, **env: str) -> Generator[Client]:
    """Starts the server as the client does, and ends it by the end of its stdin."""
    with plugin.start(*arguments, **env) as process:
        try:
            client = Client(process)
            client.initialize()
            yield client
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(WAIT) == 0
        except BaseException:
            process.kill()
            raise


@contextmanager
def builds_ended(plugin: Plugin) -> Generator[None]:
    """Kills builds that were started within, which survive their client."""
    try:
        yield
    finally:
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(plugin.root / "launch" / "build.py").encode() in command:
                os.killpg(pid, signal.SIGKILL)
