"""The two sides of the boundary: a kernel in the sandbox, and a plain one in which an attack has to succeed."""

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipybox import CodeExecutionError, CodeExecutor, generate_mcp_sources
from tests import servers
from tests.security import guests
from tests.servers import WAIT

SECRET = "the-secret-of-the-host"


@dataclass
class Side:
    """A kernel, and what an attack from there may hit."""

    executor: CodeExecutor
    workspace: Path
    elsewhere: Path
    outside: Path
    port: int
    door: "Door"
    sandboxed: bool

    @property
    def mark(self) -> Path:
        """What a program makes that was run on the host."""
        return self.outside / "mark"

    def clear(self) -> None:
        """Undoes what an attack has left."""
        shutil.rmtree(self.outside)
        self.outside.mkdir()
        self.door.visits = 0

    async def run(self, code: str, timeout: float = WAIT) -> str:
        """Executes code and returns its output, or its error."""
        given = f"import guests, json, os\nOUTSIDE, PORT, DOOR = {str(self.outside)!r}, {self.port}, {self.door.port}\n"
        try:
            return (await self.executor.execute(given + code, timeout)).text or ""
        except (CodeExecutionError, TimeoutError, OSError) as exc:
            return f"{getattr(exc, 'text', None) or ''}\n{exc}"

    async def works(self) -> None:
        """Fails unless the executor executes code and honest calls."""
        assert "2" in (await self.run("1 + 1")).splitlines()  # beside what threads of an attack still print
        assert "hello" in await self.run("print(guests.call_registered('scripted'))")


class Door:
    """A port of the host that tells whether somebody came."""

    def __init__(self) -> None:
        self.visits = 0
        self.port = 0

    @asynccontextmanager
    async def open(self) -> AsyncGenerator["Door"]:
        def visit(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.visits += 1
            writer.close()

        async with await asyncio.start_server(visit, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield self


@asynccontextmanager
async def side(directory: Path, *, sandboxed: bool) -> AsyncGenerator[Side]:
    workspace, elsewhere, outside = (directory / name for name in ("workspace", "elsewhere", "outside"))
    for each in (workspace, workspace / "conf", elsewhere, outside):
        each.mkdir()
    shutil.copy(guests.__file__, workspace)
    (workspace / "conf" / "sandbox.json").write_text("{}")
    registered = {
        "scripted": servers.scripted(),
        "secret": servers.scripted() | {"env": {"VALUE": "${HOST_SECRET}"}},
        "marker": marker(outside),
        "relative": {"command": "/bin/sh", "args": ["-c", "touch mark"], "cwd": str(workspace)},
        "remote": {"url": "http://127.0.0.1:9/mcp"},
    }
    for place in (workspace, elsewhere):
        sealed = {
            name: {"params": params, "seal": servers.registered(name, params, place / "mcptools")}
            for name, params in registered.items()
        }
        (workspace / ("registered.json" if place is workspace else "elsewhere.json")).write_text(json.dumps(sealed))
    await generate_mcp_sources("tools", servers.scripted(), workspace / "mcptools")
    before = set(_token_files())
    async with (
        Door().open() as door,
        CodeExecutor(
            working_dir=workspace,
            images_dir=workspace / "pictures",
            sandbox=sandboxed,
            sandbox_config=workspace / "conf" / "sandbox.json" if sandboxed else None,
            tool_server_port=0,
            connect_timeout=5,
        ) as executor,
    ):
        (file,) = set(_token_files()) - before
        port = int(re.findall(r"\d+", file.name)[-1])
        yield Side(executor, workspace, elsewhere, outside, port, door, sandboxed)


def marker(outside: Path) -> dict[str, Any]:
    """A server that is no server, but leaves a mark that it was run."""
    return {"command": "/bin/sh", "args": ["-c", f"touch {outside}/mark"]}


def _token_files() -> list[Path]:
    return list(Path(os.environ["JUPYTER_RUNTIME_DIR"]).glob("ipybox-tool-server-*.json"))
