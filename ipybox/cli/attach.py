"""`ipybox attach`: lets a person use the kernel of a running session from a Jupyter client."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from ipybox.cli.command import command
from ipybox.cli.parsing import Failure
from ipybox.cli.running import run
from ipybox.kernel_mgr.attach.instructions import instructions
from ipybox.mcp_server.attach_socket import running_servers
from ipybox.support.printable import printable
from ipybox.support.private_socket import connect_private


@command("attach", "SESSION is the session's name. It defaults to `default`.")
@click.argument("session", default="default")
@click.option("--server", type=int, metavar="PID", help="process id of the MCP server if several are running")
def attach(workspace: Path, session: str, server: int | None) -> int:
    """Prints how to connect until the session can't be used anymore; returns the exit status."""
    running = running_servers(workspace)
    if not running:
        raise Failure(
            f"no MCP server with a session is running in {workspace}: a session starts with its first cell; "
            "you can't attach to sessions in Docker"
        )
    pids = ", ".join(map(str, running))
    if server is None and len(running) > 1:
        raise Failure(f"several MCP servers are running in {workspace}: choose a process id with --server: {pids}")
    if (chosen := server or next(iter(running))) not in running:
        raise Failure(
            f"no MCP server with a session and process id {server} is running in {workspace}: choose one of {pids} "
            "with --server"
        )
    return run(_attach_session(running[chosen], session))


async def _attach_session(path: Path, name: str) -> None:
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


async def _line(reader: asyncio.StreamReader) -> dict[str, Any]:
    try:
        return json.loads(await reader.readline() or b"{}")
    except (OSError, ValueError):
        return {}
