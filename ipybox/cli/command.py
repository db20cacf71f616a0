"""The commands of `ipybox`, and what runs before each: logging, and no module or program from the workspace.

A command imports what it needs when it runs, so that `ipybox --help` and `--version` start at once.
"""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from ipybox.cli.parsing import Commands, GroupedCommand, directory, explain
from ipybox.support.errors import IpyboxError
from ipybox.support.printable import PrintableFormatter, printable
from ipybox.support.signals import reset_signals
from ipybox.support.way_in import use_command_line

SECTIONS = {
    "Serve MCP clients": {
        "serve": "Run the MCP server. MCP clients start this command.",
        "docker": "Run the MCP server in a container that sees only the workspace.",
    },
    "Get started": {
        "demo": "Watch an agent write code that calls a real MCP server.",
        "doctor": "Check what works on this machine and what needs to be installed.",
    },
    "Inspect a workspace": {
        "tools": "List, search or show the workspace's tools and saved code actions.",
        "check": "Check saved code actions and output parsers for mistakes.",
        "notebook": "Export a session as a Jupyter notebook, or list the sessions.",
        "attach": "Connect Jupyter or VS Code to the kernel of a running session.",
    },
    "Trust and clean up": {
        "trust": "Review what workspace files allow, then trust them or revoke trust.",
        "clean": "Show what ipybox stores on this machine, and remove it if you confirm.",
    },
}
SUMMARIES = {name: summary for commands in SECTIONS.values() for name, summary in commands.items()}

EPILOG = """\b
Claude Code: claude mcp add ipybox -- ipybox serve --workspace DIR
Documentation: https://github.com/gradion-ai/ipybox/tree/main/docs"""

#: The PATH of kernels: that of this process before `prepare` changes it.
PATH = os.environ.get("PATH", os.defpath)

Work = TypeVar("Work", bound=Callable[..., int])

as_json = click.option("--json", "as_json", is_flag=True, help="print JSON")
without_question = click.option("--yes", is_flag=True, help="don't ask for confirmation")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits."""
    use_command_line()
    reset_signals()
    _prepare_streams()
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    status, told = 1, ""
    try:
        status = ipybox.main(argv, prog_name="ipybox", standalone_mode=False, color=False if plain else None)
    except click.UsageError as exc:
        status, told = exc.exit_code, explain(exc)
    except (click.ClickException, IpyboxError, OSError) as exc:
        logging.getLogger(__name__).debug("the command failed", exc_info=exc)
        told = printable(f"ipybox: {exc}", lines=True)
    except (click.Abort, KeyboardInterrupt):
        status = 130
    if told:
        print(told, file=sys.stderr, flush=True)
    sys.exit(status)


def _prepare_streams() -> None:
    """Opens streams that are closed, whose numbers other files would get, and lets any text be printed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(opened, "w" if number else "r"))
        if number:
            getattr(sys, name).reconfigure(errors="backslashreplace")


@click.group(cls=Commands, sections=SECTIONS, epilog=EPILOG)
@click.version_option(None, "-V", "--version", package_name="ipybox", message="%(version)s")
def ipybox() -> None:
    """Run your agent's Python in local IPython kernels, with MCP tools as typed functions."""


def command(name: str, more: str = "", *, table: str = "") -> Callable[[Work], Work]:
    """Returns a decorator that makes a function a command, which gets the workspace first.

    Args:
        name: The name of the command.
        more: What its help says in addition to its summary.
        table: The command whose options it has in the table, and gets if given. By default, it has only --workspace.
    """

    def add(function: Work) -> Work:
        @wraps(function)
        def run(given: dict[str, Any], **params: Any) -> int:
            workspace = prepare(given)
            return function(workspace, given, **params) if table else function(workspace, **params)

        ipybox.command(name, cls=GroupedCommand, table=table, help=f"{SUMMARIES[name]}\n\n{more}")(run)
        return function

    return add


def prepare(given: dict[str, Any]) -> Path:
    """Sets up logging, keeps the workspace's modules and programs out of this process, and returns the workspace.

    Raises:
        Mistake: If the workspace is not a directory that can be read.
    """
    from ipybox.workspace.imports import guard_imports
    from ipybox.workspace.programs import host_path
    from ipybox.workspace.writable import WritablePlaces

    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=given.get("log_level", "WARNING"), handlers=[handler])
    # These say at INFO and ERROR what ipybox reports itself, URLs with their secrets included.
    for library in ("httpx2", "mcp"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    workspace = directory(given.get("workspace"))
    places = WritablePlaces(workspace)
    guard_imports(places)
    os.environ["PATH"] = host_path(places)
    return workspace


@ipybox.command("docker", cls=GroupedCommand, table="docker", help=SUMMARIES["docker"])
def docker(given: dict[str, Any]) -> NoReturn:
    """Serves from a container."""
    from ipybox.cli.docker import run

    if (workspace := given.get("workspace", Path())).is_dir():  # else the client gets the error, too
        prepare({"workspace": workspace})
    run(given)


@ipybox.command("demo", cls=GroupedCommand, help=SUMMARIES["demo"])
@click.option("--workspace", type=Path, metavar="DIR", help="workspace for the demo (default: a temporary directory)")
def demo(workspace: Path | None) -> int:
    """Runs the demo."""
    from ipybox.cli.running import run
    from ipybox.demo import demo

    return run(demo(workspace))
