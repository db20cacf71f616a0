"""`ipybox attach`: lets a person use the kernel of a running session from a Jupyter client."""

from pathlib import Path

import click

from ipybox.cli.command import command
from ipybox.cli.output import say
from ipybox.cli.running import run
from ipybox.kernel_mgr.attach.client_messages import instructions
from ipybox.mcp_server.attach_socket import AttachError, find_server, join


@command("attach", "SESSION is the session's name. It defaults to `default`.")
@click.argument("session", default="default")
@click.option("--server", type=int, metavar="PID", help="process id of the MCP server if several are running")
def attach(workspace: Path, session: str, server: int | None) -> int:
    """Prints how to connect until the session can't be used anymore; returns the exit status."""
    return run(_attach(find_server(workspace, server), session))


async def _attach(server: Path, session: str) -> None:
    ended = "the MCP server has exited"
    async for answer in join(server, session):
        if "error" in answer:
            raise AttachError(answer["error"])
        if "url" in answer:
            how = instructions(answer["url"], answer["token"])
            say(f"Your programs can use the kernel until you press Ctrl-C:\n\n{how}")
        ended = answer.get("ended", ended)
    say(f"The session is no longer available: {ended}")
