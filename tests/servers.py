"""MCP servers for tests: functions that return server parameters, and servers that run behind a URL."""

import asyncio
import os
import re
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from ipybox.workspace.registrations import locked_registration, record_file
from ipybox.workspace.seal import seal

ROOT = Path(__file__).parent.parent
NODE_MODULES = ROOT / ".npm" / "node_modules"
PAGED_SERVER = str(ROOT / "tests" / "paged_server.py")
SCRIPTED_SERVER = str(ROOT / "tests" / "scripted_server.py")

#: Seconds that a test waits for what must happen.
WAIT = 20.0

_Found = TypeVar("_Found")

#: Seconds between two looks at what gives no signal.
LOOK_PAUSE = 0.02


def everything() -> dict[str, Any]:
    """The reference server with a bit of everything (Node)."""
    return _node("server-everything", "stdio")


def filesystem(directory: Path) -> dict[str, Any]:
    """The reference server for files below `directory` (Node)."""
    return _node("server-filesystem", str(directory))


def memory(file: Path) -> dict[str, Any]:
    """The reference server for a knowledge graph that is kept in `file` (Node)."""
    return {**_node("server-memory"), "env": {"MEMORY_FILE_PATH": str(file)}}


def git(repository: Path) -> dict[str, Any]:
    """The reference server for a git repository (Python)."""
    return {"command": sys.executable, "args": ["-m", "mcp_server_git", "--repository", str(repository)]}


def time_() -> dict[str, Any]:
    """The reference server for the time (Python)."""
    return {"command": sys.executable, "args": ["-m", "mcp_server_time"]}


def paged(pages: int | Literal["endless", "repeating"]) -> dict[str, Any]:
    """A server with two tools on each page; see `paged_server.py`."""
    return {"command": sys.executable, "args": ["-S", PAGED_SERVER, str(pages)]}


def scripted(*flags: str) -> dict[str, Any]:
    """A server that starts at once and misbehaves on demand; see `scripted_server.py`."""
    return {"command": sys.executable, "args": ["-S", SCRIPTED_SERVER, *flags]}


def register(workspace: Path, /, **params: dict[str, Any]) -> None:
    """Put a module `registered` into a workspace, with a `ToolRunner` for each server as generated packages have it."""
    lines = ["from ipybox.tool_exec.client import ToolRunner"]
    for name, server_params in params.items():
        sealed = registered(name, server_params, workspace / "mcptools")
        lines.append(f"{name} = ToolRunner.from_env({name!r}, {server_params!r}, seal={sealed!r})")
    (workspace / "registered.py").write_text("\n".join(lines))


def registered(name: str, server_params: dict[str, Any], root_dir: Path) -> str:
    """Returns the seal of a server that is registered from now on, with no package."""
    sealed = seal(name, server_params, root_dir)
    with locked_registration(record_file(root_dir.resolve() / name)) as registration:
        registration.write(b"", "", sealed, {})
    return sealed


def python(code: str) -> dict[str, Any]:
    """A server that is no more than a line of Python."""
    return {"command": sys.executable, "args": ["-S", "-c", code]}


@asynccontextmanager
async def http_everything(transport: Literal["streamableHttp", "sse"], port: int | None = None) -> AsyncGenerator[str]:
    """Run the everything server behind a URL, which is yielded when it listens."""
    # It can't tell which port it got for 0, so one is picked, and another one if somebody was faster.
    for _ in range(5):
        chosen = port or _free_port()
        process = await _start_everything(transport, chosen)
        if process is not None:
            break
    else:
        raise RuntimeError("no port for the everything server")
    drain = asyncio.create_task(_drain(process))
    try:
        yield f"http://127.0.0.1:{chosen}/{'mcp' if transport == 'streamableHttp' else 'sse'}"
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await drain


@asynccontextmanager
async def http_page(status: int = 200, body: str = "<html>Hello</html>") -> AsyncGenerator[str]:
    """Run a web server that answers everything with the same page, and yield its address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if length := re.search(r"content-length: (\d+)", head):
            await reader.readexactly(int(length[1]))
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: text/html\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie doesn't."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between open and read
        return False
    return state not in "ZX"


def children(pid: int | None = None) -> set[int]:
    """Return the ids of a process's children, by default this one's, also of those that nobody has waited for."""
    found: set[int] = set()
    threads = f"/proc/{pid or 'self'}/task"
    with suppress(FileNotFoundError, ProcessLookupError):  # the process has ended
        for thread in os.listdir(threads):
            with suppress(FileNotFoundError, ProcessLookupError), open(f"{threads}/{thread}/children") as ids:
                found.update(map(int, ids.read().split()))
    return found


def descendants(pid: int | None = None) -> set[int]:
    """Return the ids of all running descendants of a process, by default this one."""
    # Not by the parents of all processes: each test asks for this, and reading those takes milliseconds.
    found = children(pid)
    waiting = [*found]
    while waiting:
        new = children(waiting.pop()) - found
        found |= new
        waiting += new
    return {child for child in found if is_alive(child)}


def outside(pid: int, namespace: str) -> int:
    """Return the id that this process knows a descendant by which has `pid` in a PID namespace.

    Args:
        pid: What `os.getpid()` returns there.
        namespace: What `os.readlink("/proc/self/ns/pid")` returns there.
    """
    (found,) = (child for child in descendants() if _ids(child)[-1] == pid and _namespace(child) == namespace)
    return found


def parent(pid: int) -> int:
    """Return the id of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def until(look: Callable[[], _Found], timeout: float = WAIT) -> _Found:
    """Return what a function finds, as soon as it finds something of which no event tells."""
    async with asyncio.timeout(timeout):
        while not (found := await asyncio.to_thread(look)):  # noqa: ASYNC110 - no event tells
            # A loop that only looks takes a core from what it waits for.
            await asyncio.sleep(LOOK_PAUSE)
    return found


async def until_dead(pids: set[int], timeout: float) -> set[int]:
    """Wait until processes have ended, and return those that have not within `timeout` seconds."""
    # Processes that are not ours give no signal when they end, except through a pidfd.
    loop = asyncio.get_running_loop()
    waiting: dict[int, asyncio.Event] = {}
    for pid in pids:
        with suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            waiting[fd] = asyncio.Event()
            loop.add_reader(fd, waiting[fd].set)
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            for event in waiting.values():
                await event.wait()
    for fd in waiting:
        loop.remove_reader(fd)
        os.close(fd)
    return {pid for pid in pids if is_alive(pid)}


def _ids(pid: int) -> list[int]:
    """Returns the ids of a process, from that of our PID namespace to that of its own; [0] if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return [int(number) for number in line.split()[1:]]
    return [0]


def _namespace(pid: int) -> str:
    # Processes that have made themselves undumpable don't show it to an ordinary user.
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""


def _node(package: str, *args: str) -> dict[str, Any]:
    script = NODE_MODULES / "@modelcontextprotocol" / package / "dist" / "index.js"
    return {"command": "node", "args": [str(script), *args]}


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


async def _start_everything(transport: str, port: int) -> asyncio.subprocess.Process | None:
    params = _node("server-everything", transport)
    process = await asyncio.create_subprocess_exec(
        params["command"],
        *params["args"],
        env={**os.environ, "PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(WAIT):
        async for line in process.stderr:
            if b"on port" in line and b"in use" not in line:
                return process
        await process.wait()
    return None


async def _drain(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    while await process.stderr.read(65536):
        pass
