"""`ipybox attach`: lets a person use the kernel of a running session from a Jupyter client."""

from pathlib import Path

import click

from ipybox.cli.command import command
from ipybox.cli.output import say
from ipybox.cli.parsing import Failure
from ipybox.cli.running import run
from ipybox.mcp_server.attach_socket import answers, running_servers

EXITED = "the MCP server has exited"


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
    ended = ""
    try:
        async for answer in answers(server, None, {"session": session}):
            if "error" in answer:
                raise Failure(answer["error"])
            if "instructions" in answer:
                say(f"Your programs can use the kernel until you press Ctrl-C:\n\n{answer['instructions']}")
            ended = answer.get("ended", EXITED)
    except OSError as exc:
        if not ended:
            raise Failure(f"the MCP server does not respond: {exc}") from exc
    say(f"The session is no longer available: {ended or EXITED}")
