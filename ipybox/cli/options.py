"""The parser of the command line: the options of `option_table`, and the commands, which `command` runs."""

import argparse
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from ipybox.cli.docker_options import docker_parser
from ipybox.cli.option import Command
from ipybox.cli.option_use import add_options
from ipybox.sandbox.settings import PROFILES

#: Directories of a workspace that `ipybox clean` removes only by name, because they contain work of code and people.
SAVED = ("mcptools", "mcpparse", "gentools", "images", "toolfiles")


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    arguments = argparse.ArgumentParser(
        prog="ipybox",
        description="Local code-action engine. Without a command, serves code execution over MCP.",
    )
    arguments.add_argument("--version", action="version", version=version("ipybox"))
    add_options(arguments, Command.SERVE)
    _add_commands(arguments)
    return arguments


def _add_commands(arguments: argparse.ArgumentParser) -> None:
    commands = arguments.add_subparsers(dest="command", metavar="[command]")
    demo = commands.add_parser("demo", help="show a code action that calls the tools of real MCP servers")
    demo.add_argument("--directory", type=Path, help="directory of the demo's workspace (default: a temporary one)")
    doctor = commands.add_parser("doctor", help="show what is installed, and what a mode still needs")
    doctor.add_argument("--sandbox", action="store_true", help="fail if the sandbox can't work")
    doctor.add_argument("--docker", action="store_true", help="fail if Docker can't be used")
    tools = commands.add_parser("tools", help="list or search a workspace's tools, or show the interface of one")
    tools.add_argument("query", nargs="*", help="words to search for, a category, or a tool like github.list_commits")
    commands.add_parser("check", help="verify a workspace's saved code actions and output parsers, in a kernel")
    _add_workspace_commands(commands.add_parser)
    commands.add_parser(
        "docker",
        help="serve from a container that sees only the workspace of this machine",
        parents=[docker_parser(add_help=False)],
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )


def _add_workspace_commands(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    def add(name: str, help_text: str) -> argparse.ArgumentParser:
        command = add_parser(name, help=help_text, argument_default=argparse.SUPPRESS)
        command.add_argument("--workspace", type=Path, help="the workspace (default: .)")
        return command

    attach = add("attach", "print how to use the kernel of a running session from JupyterLab or VS Code")
    attach.add_argument("target", nargs="?", metavar="SESSION", help="name of the session (default: default)")
    attach.add_argument("--server", type=int, metavar="PID", help="the MCP server, if several run in the workspace")

    trust = add("trust", "show what files of a workspace allow beyond your own settings, and trust them")
    trust.add_argument("file", nargs="*", type=Path, help="files (default: sandbox-config.json and ipybox.yaml)")
    trust.add_argument("--sandbox-profile", choices=sorted(PROFILES), help="your own profile (default: default)")
    trust.add_argument("--yes", action="store_true", help="trust without a question")
    trust.add_argument("--list", action="store_true", help="list trusted files")
    trust.add_argument("--revoke", action="store_true", help="no longer trust the files, or all files")

    notebook = add("notebook", "write a session of the audit log as a Jupyter notebook")
    which = "name or id of the session (default: list the latest sessions)"
    notebook.add_argument("session", nargs="?", metavar="SESSION", help=which)
    notebook.add_argument("--output", metavar="FILE", help="a new file, or - for stdout (default: SESSION.ipynb)")

    clean = add("clean", "show what ipybox keeps on this machine and in a workspace, and remove it")
    directories = f"also remove these directories of the workspace: {', '.join(SAVED)}"
    clean.add_argument("saved", nargs="*", metavar="DIR", help=directories)
    clean.add_argument("--yes", action="store_true", help="remove without a question")
