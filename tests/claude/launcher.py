"""An installed plugin without Claude Code, and a client that speaks MCP with what `.mcp.json` starts."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.claude.cli import Home
from tests.servers import ROOT, WAIT

#: Seconds that an environment takes at most, by pip and from an index.
BUILD = 300.0


class Plugin:
    """An installed plugin, in the home of a user.

    Args:
        directory: An empty one, or one that exists not yet.
        data: Its `XDG_DATA_HOME`, with the environments; by default it is in the home.
        hidden: Programs that the user lacks.
        needs: What the plugin installs in place of all that ipybox needs. ipybox then can't start.
        compiles: Whether pip and uv may compile what they install.
    """

    def __init__(
        self,
        directory: Path,
        *,
        data: Path | None = None,
        hidden: Collection[str] = (),
        needs: Collection[str] = (),
        compiles: bool = False,
    ):
        directory.mkdir(exist_ok=True)
        self.root = directory / "plugin"
        shutil.copytree(
            ROOT / "plugins" / "codeact-default", self.root, ignore=shutil.ignore_patterns("__pycache__", ".ruff_cache")
        )
        if needs:
            (self.root / "launch" / "requirements.txt").write_text("".join(f"{need}\n" for need in needs))
        self.workspace = directory / "workspace"
        self.workspace.mkdir()
        self.bin = directory / "bin"
        home = Home(directory, directory, data=data, compiles=compiles)
        self.home = home.path
        self.data = (data or home.path / ".local" / "share") / "ipybox"
        for program in hidden:
            (self.bin / program).unlink(missing_ok=True)
        self.env = {
            **home.env,
            "CLAUDE_PLUGIN_ROOT": str(self.root),
            "CLAUDE_PROJECT_DIR": str(self.workspace),
        }

    def borrow_packages(self, data: Path) -> None:
        """Has its uv install the packages of an environment that is there."""
        (packages,) = data.glob("ipybox/environments/*/lib/python*/site-packages")
        borrowed = f'echo {packages} > "${{5%/bin/python}}/lib/{packages.parent.name}/site-packages/borrowed.pth"'
        self.replace("uv", f'case $1 in pip) {borrowed} ;; *) exec "$REAL" "$@" ;; esac')

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
    def environments(self) -> set[Path]:
        return {path for path in (self.data / "environments").iterdir() if path.is_dir()}

    def until_built(self) -> None:
        """Waits until the process has ended that has built the environment: it goes on after the server has started."""
        for path in self.home.glob(".local/state/ipybox/environments/*/lock"):
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
            if {str(plugin.root / "launch" / "launch.py").encode(), b"build"} <= {*command}:
                os.killpg(pid, signal.SIGKILL)


@dataclass(frozen=True)
class FirstStart:
    """What a user sees of the first start of a plugin, and of the second one.

    Attributes:
        data: The `XDG_DATA_HOME` with what it has built.
        workspace: The workspace.
        notice: What the hook printed before the first start.
        second_notice: What it printed before the second one.
        result: What the first cell printed.
        progress: The notifications of progress before that.
        log: The output of the programs that built the environment.
        built: The environments after the first start, and when they changed.
        kept: The same after the second one.
        imported: Where the second start's kernel has found ipybox, and its working directory.
        elsewhere: Whether something was installed where variables led that are for other environments.
        tools: Exit status, stdout and stderr of `ipybox tools`.
    """

    data: str
    workspace: str
    notice: dict[str, Any]
    second_notice: dict[str, Any]
    result: str
    progress: list[dict[str, Any]]
    log: str
    built: dict[str, int]
    kept: dict[str, int]
    imported: list[str]
    elsewhere: bool
    tools: tuple[int, str, str]


def first_start(directory: Path, data: Path) -> FirstStart:
    """Has a plugin build its environment, compiled, and starts it once more."""
    plugin = Plugin(directory, data=data, compiles=True)
    _make_hostile(plugin.workspace)
    other = directory / "other"
    names = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "UV_PROJECT")
    variables = dict.fromkeys(names, str(other))

    notice = plugin.notice("plain")
    with served(plugin, **variables) as client:
        (plugin.workspace / "json.py").unlink()
        (plugin.workspace / "fcntl.py").unlink()
        result = client.answer(client.call("print(6 * 7)", progressToken=3))["result"]["content"][0]["text"]
        progress = [message["params"] for message in client.notifications]
    plugin.until_built()
    built = _changed(plugin)
    second_notice = plugin.notice("plain")
    with served(plugin, **variables) as client:
        (plugin.workspace / "ipybox.py").unlink()
        imported = client.execute("import ipybox, os; print(ipybox.__file__, os.getcwd())").split()
    return FirstStart(
        data=str(data),
        workspace=str(plugin.workspace),
        notice=notice,
        second_notice=second_notice,
        result=result,
        progress=progress,
        log=plugin.log,
        built=built,
        kept=_changed(plugin),
        imported=imported,
        elsewhere=other.exists(),
        tools=_lists_tools(plugin),
    )


def _make_hostile(workspace: Path) -> None:
    """Puts files in a workspace that must not take effect outside of the kernel."""
    for name in ("ipybox.py", "json.py", "fcntl.py", "sitecustomize.py"):
        (workspace / name).write_text("raise SystemExit('code of the workspace ran on the host')\n")
    (workspace / "uv.toml").write_text("no = 'such option'\n")
    (workspace / "pyproject.toml").write_text("[tool.uv]\nno = 'such option'\n")


def _lists_tools(plugin: Plugin) -> tuple[int, str, str]:
    """Runs the command that a plugin brings."""
    done = subprocess.run(
        [plugin.data / "environments" / "ipybox", "tools"],
        cwd=plugin.workspace,
        env=plugin.env,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def _changed(plugin: Plugin) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in plugin.environments}
