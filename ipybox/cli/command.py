"""The commands of `ipybox`, and what runs before each: logging, and no module or program from the workspace.

Each imports what it needs when it runs, so that `ipybox --help` and `--version` start at once.
"""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from ipybox.cli.parsing import Commands, GroupedCommand, Mistake, directory, explain
from ipybox.sandbox.settings import PROFILES
from ipybox.support.printable import PrintableFormatter, printable
from ipybox.support.signals import reset_signals
from ipybox.support.way_in import use_command_line

#: Directories of a workspace that `ipybox clean` removes only by name, because they contain work of code and people.
SAVED = ("mcptools", "mcpparse", "gentools", "images", "toolfiles")

SECTIONS = {
    "Serve MCP clients": ("serve", "docker"),
    "Get started": ("demo", "doctor"),
    "Inspect a workspace": ("tools", "check", "notebook", "attach"),
    "Trust and clean up": ("trust", "clean"),
}

EPILOG = """\b
Claude Code: claude mcp add ipybox -- ipybox serve --workspace DIR
Documentation: https://github.com/gradion-ai/ipybox/tree/main/docs"""

as_json = click.option("--json", "as_json", is_flag=True, help="print JSON")
without_question = click.option("--yes", is_flag=True, help="don't ask for confirmation")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits."""
    use_command_line()
    reset_signals()
    _prepare_streams()
    try:
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        status = ipybox.main(argv, prog_name="ipybox", standalone_mode=False, color=False if plain else None)
    except click.UsageError as exc:
        print(explain(exc), file=sys.stderr, flush=True)
        status = exc.exit_code
    except click.ClickException as exc:
        print(printable(f"ipybox: {exc}", lines=True), file=sys.stderr, flush=True)
        status = exc.exit_code
    except (click.Abort, KeyboardInterrupt):
        status = 130
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


def command(name: str, table: str = "") -> Any:
    """Returns a decorator that makes a function a command, which gets the options that were given."""
    return ipybox.command(name, cls=GroupedCommand, table=table)


@command("serve", "serve")
def serve_command(given: dict[str, Any]) -> int:
    """Run the MCP server. MCP clients start this command."""
    from ipybox.cli.serve import serve

    path = os.environ.get("PATH", os.defpath)
    return serve(given, prepare(given), path)


@command("docker", "docker")
def docker_command(given: dict[str, Any]) -> NoReturn:
    """Run the MCP server in a container that sees only the workspace."""
    from ipybox.cli.docker import run

    if (workspace := given.get("workspace", Path())).is_dir():  # else the client gets the error, too
        prepare({"workspace": workspace})
    run(given)


@command("demo")
@click.option("--workspace", type=Path, metavar="DIR", help="workspace of the demo (default: a temporary directory)")
def demo_command(workspace: Path | None) -> int:
    """Watch an agent's code call a real MCP server's tools."""
    from ipybox.cli.running import run
    from ipybox.demo import demo

    return run(demo(workspace))


@command("doctor")
@as_json
@click.option("--sandbox", is_flag=True, help="fail if the sandbox doesn't work")
@click.option("--docker", is_flag=True, help="fail if Docker mode doesn't work")
def doctor_command(as_json: bool, sandbox: bool, docker: bool, given: dict[str, Any]) -> int:
    """Check what works on this machine and what needs to be installed."""
    from ipybox.cli.doctor import doctor

    prepare(given)
    return doctor(sandbox=sandbox, docker=docker, as_json=as_json)


@command("tools")
@as_json
@click.argument("query", nargs=-1)
def tools_command(query: tuple[str, ...], as_json: bool, given: dict[str, Any]) -> int:
    """List, search or show the workspace's tools and saved code actions.

    QUERY is a server or category (github), a tool (github.list_commits), or search terms.
    """
    from ipybox.cli.tools import show_tools

    return show_tools(prepare(given), " ".join(query), as_json=as_json)


@command("check", "check")
@as_json
def check_command(as_json: bool, given: dict[str, Any]) -> int:
    """Check saved code actions and output parsers for mistakes."""
    from ipybox.cli.check import check
    from ipybox.cli.running import run_kernel

    workspace = prepare(given)
    return run_kernel(lambda options: check(workspace, options, as_json=as_json), given, workspace)


@command("notebook")
@click.argument("session", required=False)
@click.option("--output", metavar="FILE", help="file to create, or - for stdout (default: SESSION.ipynb)")
def notebook_command(session: str | None, output: str | None, given: dict[str, Any]) -> int:
    """Export a session as a Jupyter notebook, or list the sessions.

    SESSION is the name or id of a session in the audit log.
    """
    from ipybox.cli.notebook import notebook

    return notebook(prepare(given), session, output)


@command("attach")
@click.argument("session", default="default")
@click.option("--server", type=int, metavar="PID", help="process id of the MCP server if several are running")
def attach_command(session: str, server: int | None, given: dict[str, Any]) -> int:
    """Connect Jupyter or VS Code to the kernel of a running session.

    SESSION is the session's name. It defaults to `default`.
    """
    from ipybox.cli.attach import attach

    return attach(prepare(given), session, server)


@command("trust")
@click.argument("file", nargs=-1, type=Path)
@click.option("--list", "listed", is_flag=True, help="list trusted files")
@click.option("--revoke", is_flag=True, help="revoke trust in FILE, or in all files if none is given")
@click.option(
    "--sandbox-profile",
    type=click.Choice(PROFILES),
    metavar="NAME",
    default="default",
    help="profile to compare with (default: default)",
)
@without_question
@as_json
def trust_command(
    given: dict[str, Any],
    file: tuple[Path, ...],
    listed: bool,
    revoke: bool,
    sandbox_profile: str,
    yes: bool,
    as_json: bool,
) -> int:
    """Review what workspace files allow, then trust them or revoke trust.

    FILE defaults to sandbox-config.json and ipybox.yaml in the workspace.
    """
    from ipybox.cli import trust_command

    if as_json and not listed:
        raise Mistake("--json needs --list", "add --list")
    if listed and revoke:
        raise Mistake("--list and --revoke can't be given together")
    workspace = prepare(given)
    if listed:
        return trust_command.show(workspace, as_json=as_json)
    if revoke:
        return trust_command.revoke(workspace, file)
    return trust_command.trust(workspace, file, profile=sandbox_profile, yes=yes)


@command("clean")
@click.argument("saved", nargs=-1, metavar="[DIR]...")
@without_question
@as_json
def clean_command(saved: tuple[str, ...], yes: bool, as_json: bool, given: dict[str, Any]) -> int:
    """Show what ipybox stores on this machine, and remove it if you confirm.

    DIR is a workspace directory to remove as well: mcptools, mcpparse, gentools, images or toolfiles.
    """
    from ipybox.cli.clean import clean

    if wrong := [name for name in saved if name not in SAVED]:
        raise Mistake(f"clean can't remove {wrong[0]!r}", f"it removes only {', '.join(SAVED)} by name")
    return clean(prepare(given), saved, yes=yes, as_json=as_json)
