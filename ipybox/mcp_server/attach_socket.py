"""The MCP server's private socket, for `ipybox attach` and `ipybox approvals`.

The server opens it with its first session, in the workspace's state directory, which only the same user can read and
the sandbox hides. `ipybox attach` sends the session's name as a line of JSON; the server sends `instructions`, and then
why the session `ended`, or an `error`. The session can be joined until the connection ends, so no port outlives the
command. `approval_desk` describes the requests of `ipybox approvals`.
"""

import asyncio
import json
import logging
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ipybox.mcp_server.approval_desk import ApprovalDesk, send, silence
from ipybox.mcp_server.kernel_sessions import KernelSessions
from ipybox.support.acceptor import RETRY_INTERVAL
from ipybox.support.errors import IpyboxError
from ipybox.support.safe_directory import open_directory
from ipybox.support.state import state_dir, workspace_state_dir
from ipybox.support.tasks import TaskSet, until_one_ends

logger = logging.getLogger(__name__)

#: Time limit for the request to arrive, in seconds.
REQUEST_TIMEOUT = 10.0

#: Maximum bytes of an answer: more than a call can have.
MAX_ANSWER = 512 << 20
#: Seconds between two lines that show that a command is not stopped.
BEAT = 1.0


def socket_path(workspace: Path, pid: int | str) -> Path:
    """Returns the path of a server process's socket; `*` matches any process."""
    return workspace_state_dir(workspace) / f"attach-{pid}.sock"


def running_servers(workspace: Path | None) -> dict[int, Path]:
    """Returns the sockets of the servers of a workspace, or of all, by process id; removes those of killed servers."""
    pattern = state_dir() / "workspaces/*/attach-*.sock" if workspace is None else socket_path(workspace, "*")
    top = state_dir() if workspace is None else pattern.parent
    paths = sorted(path for path in top.glob(str(pattern.relative_to(top))) if _listens(path))
    return {int(path.stem.rpartition("-")[2]): path for path in paths}


async def answers(server: Path, timeout: float | None, request: Mapping[str, object]) -> AsyncGenerator[dict[str, Any]]:
    """Sends a command's request to a server's socket, and yields the answers until the server ends the connection.

    Raises an OSError if the server has ended, and a TimeoutError if an answer takes more than `timeout` seconds.
    """
    reader, writer = await asyncio.open_unix_connection(sock=connect_private(server), limit=MAX_ANSWER)
    beats = asyncio.ensure_future(_beat(writer, json.dumps(request)))
    try:
        while line := await asyncio.wait_for(reader.readline(), timeout):
            yield json.loads(line)
    finally:
        beats.cancel()
        writer.close()


async def _beat(writer: asyncio.StreamWriter, request: str) -> None:
    writer.write(request.encode())
    while True:
        writer.write(b"\n")
        await asyncio.sleep(BEAT)


def _listens(path: Path) -> bool:
    try:
        connect_private(path).close()
    except ConnectionRefusedError:
        with suppress(OSError):
            path.unlink()
        return False
    except OSError:
        return False
    return True


class AttachSocket:
    """Lets commands reach the sessions and waiting calls of this process, from `start` to `aclose`."""

    def __init__(self, workspace: Path, sessions: KernelSessions, desk: ApprovalDesk):
        self._workspace = workspace
        self._sessions = sessions
        self._desk = desk
        self._tasks = TaskSet()
        self._listener: socket.socket | None = None
        self._path: Path | None = None

    def start(self) -> None:
        """Opens the socket. If that fails, only `ipybox attach` and `ipybox approvals` are unavailable."""
        try:
            running_servers(self._workspace)  # removes the sockets of killed servers
            self._path = socket_path(self._workspace, os.getpid())
            self._listener = bind_private(self._path)
            self._tasks.start(self._accept(self._listener))
        except OSError as exc:
            logger.info("`ipybox attach` and `ipybox approvals` are not available: %s", exc)

    async def aclose(self) -> None:
        """Closes the socket and ends all connections."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        await self._tasks.cancel()
        if self._listener is not None:
            self._listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
                streams = await asyncio.open_unix_connection(sock=connection)
            except OSError as exc:  # for lack of descriptors; commands wait in the socket's backlog
                logger.warning("can't accept a connection, retrying: %s", exc)
                await asyncio.sleep(RETRY_INTERVAL)
            else:
                self._tasks.start(self._serve(*streams))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, TimeoutError):  # the command has ended
                try:
                    async with asyncio.timeout(REQUEST_TIMEOUT):
                        request: object = json.loads(await reader.readline())
                    match request:
                        case {"session": str(name)}:
                            await self._share(name, reader, writer)
                        case _:
                            await self._desk.answer(request, reader, writer)
                except (IpyboxError, ValueError, RuntimeError) as exc:
                    await send(writer, error=str(exc))
        finally:
            writer.close()

    async def _share(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Gives clients access to a session until the command or the kernel ends."""
        running = self._sessions.running
        if name not in running:
            raise ValueError(f"no session named {name!r} is running; running sessions: {', '.join(running) or 'none'}")
        async with self._sessions.use(name) as executor, executor.attach(name) as relay:
            await send(writer, instructions=relay.instructions())
            await until_one_ends(silence(reader, None), relay.ended.wait())
            if relay.ended.is_set():
                await send(writer, ended=relay.end_reason)


def bind_private(path: Path) -> socket.socket:
    """Returns a non-blocking socket that listens at a path; replaces one that a killed process left there."""

    def listen(listener: socket.socket, address: str) -> None:
        listener.bind(address)
        unlisted.chmod(0o600)
        listener.listen()
        unlisted.rename(path)

    # Others would find the socket before it listens, and remove it.
    unlisted = path.with_suffix(".new")
    unlisted.unlink(missing_ok=True)
    return _opened(unlisted, listen)


def connect_private(path: Path) -> socket.socket:
    """Returns a non-blocking socket that is connected to the one at a path."""
    return _opened(path, socket.socket.connect)


def _opened(path: Path, use: Callable[[socket.socket, str], None]) -> socket.socket:
    """Returns a new non-blocking socket after its use with an address of about 30 bytes; some systems allow 103."""
    opened = socket.socket(socket.AF_UNIX)
    try:
        opened.setblocking(False)  # connecting fails at once if a stopped process accepts no more connections
        with open_directory(path.parent, create=False) as parent:
            use(opened, f"/proc/self/fd/{parent.fd}/{path.name}" if sys.platform == "linux" else str(path))
    except BaseException:
        opened.close()
        raise
    return opened
