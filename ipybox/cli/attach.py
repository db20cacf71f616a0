"""`ipybox attach`: lets a person use the kernel of a running session from a Jupyter client."""

import asyncio
import json
from pathlib import Path
from typing import Any

from ipybox.cli.parsing import Failure
from ipybox.cli.running import run
from ipybox.kernel_mgr.attach.instructions import instructions
from ipybox.mcp_server.attach_socket import running_servers
from ipybox.support.errors import IpyboxError
from ipybox.support.printable import printable
from ipybox.support.private_socket import connect_private


def attach(workspace: Path, session: str, server: int | None) -> int:
    """Prints how to connect until the session can't be used anymore; returns the exit status.

    Args:
        workspace: The workspace of the session.
        session: The name of the session.
        server: The process id of the MCP server, if the workspace has several.

    Raises:
        Failure: If the session can't be joined.
    """
    try:
        return run(_attach_session(workspace, session, server))
    except (IpyboxError, OSError) as exc:
        raise Failure(str(exc)) from exc


async def _attach_session(workspace: Path, name: str, server: int | None) -> None:
    path = _server_socket(workspace, server)
    try:
        reader, writer = await asyncio.open_unix_connection(sock=connect_private(path))
    except OSError as exc:
        raise Failure(f"the MCP server does not respond: {exc}") from exc
    try:
        writer.write(json.dumps({"session": name}).encode() + b"\n")
        answer = await _line(reader)
        if "url" not in answer:
            raise Failure(str(answer.get("error", "the MCP server has exited")))
        print("Your programs can use the kernel until you press Ctrl-C:\n")
        print(instructions(str(answer["url"]), str(answer["token"])), flush=True)
        reason = (await _line(reader)).get("ended", "the MCP server has exited")
        print(f"The session is no longer available: {printable(str(reason))}", flush=True)
    finally:
        writer.close()


def _server_socket(workspace: Path, server: int | None) -> Path:
    """Returns the socket of the server, or of the only one that runs."""
    running = running_servers(workspace)
    pids = ", ".join(map(str, running))
    if server is not None and server in running:
        return running[server]
    if not running:
        raise Failure(
            f"no MCP server with a session is running in {workspace}: a session starts with its first cell; "
            "you can't attach to sessions in Docker"
        )
    if server is not None:
        raise Failure(
            f"no MCP server with a session and process id {server} is running in {workspace}: choose one of {pids} "
            "with --server"
        )
    if len(running) > 1:
        raise Failure(f"several MCP servers are running in {workspace}: choose a process id with --server: {pids}")
    return next(iter(running.values()))


async def _line(reader: asyncio.StreamReader) -> dict[str, Any]:
    try:
        return json.loads(await reader.readline() or b"{}")
    except (OSError, ValueError):
        return {}
