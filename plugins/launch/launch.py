"""Starts ipybox for a Claude Code plugin, or prints a notice of what keeps it from working.

    launch.py start plain|sandbox|docker [--OPTION=VALUE ...]    becomes the server; relay.py starts it
    launch.py notice plain|sandbox|docker                        prints the output of the SessionStart hook
    launch.py build LOCK                                         builds the environment; holds the lock, a descriptor

The server runs from the sources that came with the plugin (`../package`), in the environment of `environment.py`, not
from a package index. This file only needs Python's standard library, because the environment may not exist yet.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Literal, NoReturn, cast

ROOT = Path(__file__).absolute().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "package")]

from launch.environment import Environment, LaunchError, build
from launch.relay import TOKEN

Mode = Literal["plain", "sandbox", "docker"]

#: Boolean plugin options as Claude Code passes them, and as ipybox receives them; empty ones are dropped.
BOOLEANS = {"--resources=true": "--resources=always", "--resources=false": ""}


def main(arguments: list[str]) -> None:
    """Becomes the server, prints a notice or builds; a server that fails answers the MCP client with the reason."""
    action, given, *options = arguments
    if action == "build":
        try:
            build(Environment.here(), int(given))
        except LaunchError as exc:
            sys.exit(str(exc))
        except OSError as exc:
            sys.exit(f"{exc.strerror}: {exc.filename}")
        return
    mode = cast(Mode, given)  # from the plugin's own manifests
    workspace = Path(os.environ["CLAUDE_PROJECT_DIR"])
    distrust(workspace)
    if action == "notice":
        from launch.notice import print_notice

        print_notice(mode, workspace)
        return
    try:
        start(mode, workspace, options)
    except LaunchError as exc:
        from ipybox.docker.refusal import refuse

        print(f"ipybox: {exc}", file=sys.stderr, flush=True)
        refuse(str(exc))
        sys.exit(1)


def distrust(workspace: Path) -> None:
    """Keeps this process and its successor from running programs from the workspace through PATH."""
    from ipybox.workspace.writable import WritablePlaces, host_path

    os.environ["PATH"] = host_path(WritablePlaces(workspace))


def start(mode: Mode, workspace: Path, options: list[str]) -> NoReturn:
    """Becomes the MCP server once its environment is built.

    Raises:
        LaunchError: If it can't be built, or the workspace sets options.
    """
    from launch.project_settings import refuse_project_options

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    refuse_project_options(workspace)
    if mode == "docker":
        from ipybox.docker.request import run

        # Becomes the client of a container, which needs no environment here. Claude Code can access the workspace:
        # tools that transfer files would only cost context.
        run([*server_options(mode, workspace, options), "--allowed-dir="])
    environment = Environment.here()
    environment.obtain(report)
    environment.publish()
    # Isolated (-I): neither the working directory nor PYTHON… variables determine where modules come from.
    python = str(environment.python)
    os.execv(python, [python, "-I", "-m", "ipybox", *server_options(mode, workspace, options)])


def report(status: str) -> None:
    """Reports the progress of the build to relay.py."""
    params = {"progressToken": TOKEN, "progress": 0, "message": status}
    print(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}), flush=True)


def server_options(mode: Mode, workspace: Path, options: list[str]) -> list[str]:
    """Returns ipybox's options: those that the user set, and those of the mode."""
    values = [BOOLEANS.get(option, option) for option in options]
    # The plugin's skill covers the rest.
    given = [
        "--instructions=brief",
        *(in_workspace(value, workspace) for value in values if value[-1:] not in ("", "=")),
    ]
    if mode != "docker":
        given = ["--late-checks", *given]
    if mode == "sandbox":
        given = ["--sandbox", "--workspace-config", *given]
    return [f"--workspace={workspace}", *given]


def in_workspace(option: str, workspace: Path) -> str:
    """Returns an option with absolute paths, because the launcher does not run in the workspace."""
    name, _, value = option.partition("=")
    return f"{name}={workspace / value}" if name == "--approve" and value not in ("auto", "writes", "ask") else option


if __name__ == "__main__":
    main(sys.argv[1:])
