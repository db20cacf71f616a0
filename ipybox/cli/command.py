"""The `ipybox` command, and the setup before each subcommand: logging, and no modules or programs from the workspace.

Each subcommand imports what it needs when it runs, so `ipybox --help` and `--version` are fast.
"""

import logging
import os
import resource
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from ipybox.cli.option import Option, workspace_option
from ipybox.cli.output import tell
from ipybox.cli.parsing import SETTINGS, SUMMARIES, Commands, GroupedCommand, Mistake, explain
from ipybox.support.errors import IpyboxError
from ipybox.support.printable import PrintableFormatter
from ipybox.support.signals import reset_signals
from ipybox.support.way_in import use_command_line

EPILOG = """\b
Add ipybox to an MCP client, such as Codex: ipybox install codex
Documentation: https://github.com/gradion-ai/ipybox/tree/main/docs"""

#: The PATH for kernels: this process's PATH before `prepare` changes it.
PATH = os.environ.get("PATH", os.defpath)

Work = TypeVar("Work", bound=Callable[..., int])

as_json = click.option("--json", "as_json", is_flag=True, help="print JSON")
without_question = click.option("--yes", is_flag=True, help="don't ask for confirmation")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits."""
    use_command_line()
    reset_signals()
    open_standard_streams()
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    try:
        status = ipybox.main(argv, prog_name="ipybox", standalone_mode=False, color=False if plain else None)
    except click.UsageError as exc:
        tell(explain(exc))
        status = exc.exit_code
    except (click.ClickException, IpyboxError, OSError) as exc:
        logging.getLogger(__name__).debug("the command failed", exc_info=exc)
        tell(exc)
        status = 1
    except (click.Abort, KeyboardInterrupt):
        status = 130
    sys.exit(status)


@click.group(
    cls=Commands, commands=[click.Command(name) for name in SUMMARIES], epilog=EPILOG, context_settings=SETTINGS
)
@click.version_option(None, "-V", "--version", package_name="ipybox", message="%(version)s")
def ipybox() -> None:
    """Run your agent's Python in local IPython kernels, with MCP tools as typed functions."""


def command(name: str, more: str = "", *, options: Sequence[Option] = ()) -> Callable[[Work], Work]:
    """Returns a decorator that turns a function into a command; its first argument is the workspace.

    `more` follows the summary in the help. With `options`, the second argument contains those given on the command
    line; without, the command accepts only --workspace.
    """

    def add(function: Work) -> Work:
        @wraps(function)
        def run(**values: Any) -> int:
            given = {name: values.pop(name) for name in [*values] if name in names}
            given = {name: value for name, value in given.items() if value not in (None, ())}
            workspace = prepare(given)
            return function(workspace, given, **values) if options else function(workspace, **values)

        params: list[click.Parameter] = [*(options or [workspace_option()])]
        names = {param.name for param in params}
        text = f"{SUMMARIES[name]}\n\n{more}"
        ipybox.command(name, cls=GroupedCommand, params=params, help=text, context_settings=SETTINGS)(run)
        return function

    return add


def prepare(given: dict[str, Any]) -> Path:
    """Sets up logging, keeps the workspace's modules and programs out of this process, and returns the workspace."""
    from ipybox.workspace.imports import guard_imports
    from ipybox.workspace.writable import WritablePlaces, host_path

    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=given.get("log_level", "WARNING"), handlers=[handler])
    # At INFO and ERROR, these log what ipybox reports itself, including URLs with secrets.
    for library in ("httpx2", "mcp"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    workspace = given.get("workspace") or _current_directory()
    places = WritablePlaces(workspace)
    guard_imports(places)
    os.environ["PATH"] = host_path(places)
    return workspace


def _current_directory() -> Path:
    """Returns the working directory, unless it is a plugin's own folder: some clients don't name the project.

    https://agent-plugins.org/specification sets PLUGIN_ROOT, and the directory unless the plugin does.
    """
    here, plugin = Path.cwd(), os.environ.get("PLUGIN_ROOT")
    if plugin and here.is_relative_to(os.path.realpath(plugin)):
        raise Mistake(
            f"the client started ipybox in the plugin's own folder, {here}, without naming the project",
            "set --workspace, or add ipybox with `ipybox install` instead of a plugin",
        )
    return here


@ipybox.command("demo", cls=GroupedCommand, help=SUMMARIES["demo"], context_settings=SETTINGS)
@click.option("--workspace", type=Path, metavar="DIR", help="workspace for the demo (default: a temporary directory)")
def demo(workspace: Path | None) -> int:
    """Runs the demo."""
    from ipybox.cli.running import run
    from ipybox.demo import demo

    return run(demo(workspace))


def open_standard_streams() -> None:
    """Opens closed standard streams, whose numbers other files would get, and makes any text printable."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(opened, "w" if number else "r"))
        if number:
            getattr(sys, name).reconfigure(errors="backslashreplace")


def allow_descriptors(count: int) -> None:
    """Raises the soft limit of open descriptors to `count`, or logs that the hard limit does not permit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    except (OSError, ValueError):  # macOS has another limit
        allowed = soft
    if allowed < count:
        logging.getLogger(__name__).warning(
            "this process may need %d open files, and the limit is %d: raise it (ulimit -n)", count, allowed
        )
