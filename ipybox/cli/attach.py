"""`ipybox attach`: lets a person use the kernel of a running session from a Jupyter client."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import click

from ipybox.cli.command import command
from ipybox.cli.output import say
from ipybox.cli.parsing import Failure
from ipybox.cli.running import run
from ipybox.mcp_server.approval_desk import send
from ipybox.mcp_server.attach_socket import connect_private, running_servers


@command("attach", "SESSION is the session's name. It defaults to `default`.")
@click.argument("session", default="default")
@click.option("--server", type=int, metavar="PID", help="process id of the MCP server if several are running")
def attach(workspace: Path, session: str, server: int | None) -> int:
    """Prints how to connect until the session can't be used anymore; returns the exit status."""
    return run(_attach(_find_server(workspace, server), session))


def _find_server(workspace: Path, pid: int | None) -> Path:
    """Returns the socket of a workspace's server, by default the only one."""
    running = running_servers(workspace)
    if not running:
        raise Failure(
            f"no MCP server with a session is running in {workspace}: a session starts with its first cell; "
            "you can't attach to sessions in Docker"
        )
    pids = [*running] if pid is None else [pid]
    if len(pids) > 1 or pids[0] not in running:
        known = ", ".join(map(str, running))
        raise Failure(f"MCP servers are running in {workspace}: choose a process id with --server: {known}")
    return running[pids[0]]


async def _attach(server: Path, session: str) -> None:
    ended = "the MCP server has exited"
    async for answer in _answers(server, session):
        if "error" in answer:
            raise Failure(answer["error"])
        if "instructions" in answer:
            say(f"Your programs can use the kernel until you press Ctrl-C:\n\n{answer['instructions']}")
        ended = answer.get("ended", ended)
    say(f"The session is no longer available: {ended}")


async def _answers(server: Path, session: str) -> AsyncGenerator[dict[str, str]]:
    try:
        reader, writer = await asyncio.open_unix_connection(sock=connect_private(server))
    except OSError as exc:
        raise Failure(f"the MCP server does not respond: {exc}") from exc
    try:
        await send(writer, session=session)
        while line := await reader.readline():
            yield json.loads(line)
    except OSError:
        pass  # it was killed
    finally:
        writer.close()
