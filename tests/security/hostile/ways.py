"""The ways in which people open a repository, and a client that speaks MCP with what they start."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.security.hostile.repository import Repository
from tests.servers import ROOT, WAIT

#: Seconds that an answer may take.
PATIENCE = 4 * WAIT

#: Seconds that a process has to end once its stdin has.
GRACE = 15.0


@dataclass(frozen=True)
class Answer:
    """The result of a tool.

    Attributes:
        blocks: The texts of its content blocks.
        failed: Whether it is an error.
    """

    blocks: list[str]
    failed: bool


@dataclass
class Session:
    """A process that was started as people start it."""

    process: asyncio.subprocess.Process
    #: All that it has said over MCP.
    said: list[str] = field(default_factory=list[str])
    #: Questions to the user, all of which are accepted.
    questions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    _waiting: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict[int, Any])
    _last: int = 0

    async def call(self, tool: str, **arguments: Any) -> Answer:
        """Calls a tool."""
        result = await self.request("tools/call", name=tool, arguments=arguments)
        blocks = [block["text"] for block in result.get("content", []) if block["type"] == "text"]
        return Answer(blocks, result.get("isError", "code" in result))

    async def execute(self, code: str) -> Answer:
        """Executes code of the repository."""
        whole = {"code": f"from attack import insider\n{code}", "max_output_chars": 1_000_000}
        return await self.call("execute_ipython_cell", **whole)

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Returns the result, or the error, of a request, which is cancelled with this task."""
        self._last += 1
        number = self._last
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.send(id=number, method=method, params=params)
        try:
            async with asyncio.timeout(PATIENCE):
                return await answered
        except asyncio.CancelledError:
            self.send(method="notifications/cancelled", params={"requestId": number})
            raise

    def send(self, **message: Any) -> None:
        """Sends a message."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def read(self) -> None:
        """Reads what the process says until it ends; what waits for an answer gets an error then."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.said.append(line.decode(errors="replace"))
            message = json.loads(line)
            if "method" in message:
                if "id" in message:
                    self.questions.append(message)
                    self.send(id=message["id"], result={"action": "accept", "content": {"scope": "only this call"}})
            elif (answered := self._waiting.pop(message["id"], None)) is not None and not answered.done():
                answered.set_result(message.get("result") or message["error"])
        for answered in self._waiting.values():
            if not answered.done():
                answered.set_exception(EOFError("the process has ended"))


@dataclass(frozen=True)
class Way:
    """One way in.

    Attributes:
        name: What people do.
        command: The command line, run in the workspace.
        environment: Variables besides those of the user.
        speaks_mcp: Whether it has all tools of the MCP server.
        launches: Whether all servers of `visit.LAUNCHES` are registered, and not only two that are used.
        takes_workspace: Whether the command has the option `--workspace`.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    speaks_mcp: bool = True
    launches: bool = True
    takes_workspace: bool = False

    @asynccontextmanager
    async def open(self, repository: Repository, *options: str) -> AsyncGenerator[Session]:
        """Opens the repository."""
        with (repository.root / "stderr").open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *self.command,
                *options,
                cwd=repository.workspace,
                env={**repository.environment, **self.environment},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                limit=1 << 26,
            )
        session = Session(process)
        reading = asyncio.create_task(session.read())
        try:
            if self.speaks_mcp:
                client = {"name": "test", "version": "1"}
                capabilities: dict[str, Any] = {"elicitation": {"form": {}}}
                await session.request(
                    "initialize", protocolVersion="2025-11-25", capabilities=capabilities, clientInfo=client
                )
                session.send(method="notifications/initialized")
            yield session
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                async with asyncio.timeout(GRACE):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
            await reading


def script() -> Way:
    """An application of the SDK lies in the repository and is run there."""
    return Way("SDK script", [sys.executable, "agent.py"], speaks_mcp=False)


def module() -> Way:
    """`python -m ipybox`, whose first directory for imports is the repository."""
    return Way("python -m ipybox", [sys.executable, "-m", "ipybox", "--sandbox"], takes_workspace=True)


def console() -> Way:
    """The console script, with the settings and the rules that the repository brings."""
    options = ("--sandbox", "--sandbox-config", "sandbox-config.json", "--approve", "ipybox.yaml")
    return Way("ipybox", [str(Path(sys.executable).with_name("ipybox")), *options], launches=False)


def linked_environment(repository: Repository) -> Way:
    """The Python of an environment that the repository names by a link."""
    (repository.workspace / ".venv").symlink_to(make_environment(repository.user / "environment"))
    return Way(".venv/bin/python -m ipybox", [f"{repository.workspace}/.venv/bin/python", "-m", "ipybox", "--sandbox"])


def plugin(repository: Repository, mode: str, *options: str) -> Way:
    """A plugin as Claude Code starts it, whose environment is there."""
    name = {"plain": "codeact-default", "sandbox": "codeact-sandbox", "docker": "codeact-docker"}[mode]
    caches = shutil.ignore_patterns("__pycache__", ".*_cache")
    # Files in place of links, as the client installs it.
    root = shutil.copytree(ROOT / "plugins" / name, repository.user / "plugins" / name, ignore=caches)
    repository.here = "/app/workspace" if mode == "docker" else "${CLAUDE_PROJECT_DIR}"
    repository.write_dotenv()
    if mode != "docker":
        command = [sys.executable, "-I", "-S", "-B", "-c", BUILD, str(root), str(Path(sys.prefix) / PACKAGES)]
        subprocess.run(command, env=repository.environment, check=True, timeout=PATIENCE)
    environment = {"CLAUDE_PLUGIN_ROOT": str(root), "CLAUDE_PROJECT_DIR": str(repository.workspace)}
    command = ["/bin/sh", str(root / "launch" / "launch.sh"), "serve", mode, *options]
    return Way(root.name, command, environment)


#: Builds the environment of a plugin, whose packages are those of another one.
BUILD = """
import subprocess, sys
from pathlib import Path
root, packages = sys.argv[1:]
sys.path[:0] = [root, f"{root}/package"]
from launch.environment import PYTHON, READY, SITE_PACKAGES, Environment, install_ipybox
environment = Environment.here()
subprocess.run([PYTHON, "-m", "venv", "--without-pip", environment.directory], check=True)
(environment.directory / SITE_PACKAGES / "packages.pth").write_text(packages)
(environment.directory / "bin" / "uv").symlink_to(f"{packages}/../../../bin/uv")
install_ipybox(environment)
(environment.directory / READY).touch()
"""

PACKAGES = Path("lib", f"python3.{sys.version_info.minor}", "site-packages")


def make_environment(place: Path) -> Path:
    """Makes an environment that has what this one has, and returns it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, timeout=WAIT)
    (place / PACKAGES / "these.pth").write_text(f"import site; site.addsitedir({str(Path(sys.prefix) / PACKAGES)!r})\n")
    return place
