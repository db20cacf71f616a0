"""Parses command lines with click: grouped help, errors with suggestions, and `serve` as the default command."""

import re
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click
from click.core import augment_usage_errors

from ipybox.support.way_in import option_name

#: The commands and their summaries, by help section.
SECTIONS = {
    "Serve MCP clients": {
        "serve": "Run the MCP server.",
        "docker": "Run the MCP server in a container that sees only the workspace.",
    },
    "Get started": {
        "demo": "Watch an agent write code that calls a real MCP server.",
        "doctor": "Check what works on this machine and what needs to be installed.",
        "install": "Add ipybox to Claude Code, Codex, Gemini CLI and other MCP clients.",
        "import": "Register MCP servers that you have configured in other clients.",
    },
    "Inspect a workspace": {
        "tools": "List, search or show the workspace's tools and saved code actions.",
        "check": "Check saved code actions and output parsers for mistakes.",
        "notebook": "Export a session as a Jupyter notebook, or list the sessions.",
    },
    "Join running sessions": {
        "approvals": "Show the tool calls that wait for your decision, and decide on them.",
        "attach": "Connect Jupyter or VS Code to the kernel of a running session.",
    },
    "Trust and clean up": {
        "trust": "Review what workspace files allow, then trust them or revoke trust.",
        "clean": "Show what ipybox stores on this machine, and remove it if you confirm.",
    },
}
SUMMARIES = {name: summary for commands in SECTIONS.values() for name, summary in commands.items()}

#: click's settings for every command.
SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Mistake(click.UsageError):
    """The command line is wrong; the hint says what to do, by default how to get help."""

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.hint = hint


@contextmanager
def mistakes(prefix: str = "") -> Generator[None]:
    """Turns a ValueError raised inside into a `Mistake`."""
    try:
        yield
    except ValueError as exc:
        raise Mistake(f"{prefix}{exc}") from exc


class Failure(click.ClickException):
    """A command failed; the message says why, and what to do."""


def explain(error: click.UsageError) -> str:
    """Returns two lines: what is wrong with a command line, and what to do."""
    path = "ipybox" if error.ctx is None else error.ctx.command_path
    hint = f"see `{path} --help`"
    match error:
        case Mistake():
            message, hint = error.message, error.hint or hint
        case click.NoSuchCommand(command_name=name) | click.NoSuchOption(option_name=name):
            what = "command" if isinstance(error, click.NoSuchCommand) else "option"
            near = f": did you mean {error.possibilities[0]!r}?" if error.possibilities else ""
            message = f"unknown {what} {name!r}{near}"
        case click.BadParameter(param=click.Parameter() as param):
            name = option_name(param.opts[-1])
            message = f"{name}: {error.message.rstrip('.')}"
            if isinstance(param, click.Option):
                hint = f"{name}: {param.help}"
        case click.BadOptionUsage():
            message = f"{error.option_name} {'needs a' if 'requires' in error.message else 'takes no'} value"
        case _:
            message = re.sub(r"^Got unexpected extra arguments? \((.*)\)$", r"unexpected argument: \1", error.message)
    return f"{message}\n{hint[:1].upper()}{hint[1:]}"


class GroupedCommand(click.Command):
    """A command whose help lists options by group."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses this command's arguments; errors name the command."""
        with augment_usage_errors(ctx):
            return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options by group, ungrouped ones first."""
        groups: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                groups.setdefault(getattr(param, "group", "Options"), []).append(record)
        _write(formatter, groups)


class Commands(click.Group):
    """The commands of `ipybox`, in sections; each is defined in the module with its name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the options of `ipybox` itself, and finds the command."""
        return super().parse_args(ctx, with_command(args))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns a command; imports its module if needed."""
        if type(self.commands.get(cmd_name)) is click.Command:
            import_module(f"ipybox.cli.{cmd_name}")
        return super().get_command(ctx, cmd_name)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by section, then the options."""
        _write(formatter, {title: [*commands.items()] for title, commands in SECTIONS.items()})
        click.Command.format_options(self, ctx, formatter)


def _write(formatter: click.HelpFormatter, sections: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    for title, rows in sections.items():
        with formatter.section(click.style(title, bold=True)):
            formatter.write_dl(rows)


def with_command(arguments: Sequence[str]) -> list[str]:
    """Returns a command line that begins with its command, even if options of `serve` precede it.

    The default command is `serve`, for client configurations; at a terminal, no arguments at all mean `--help`.
    """
    if not arguments:
        return ["--help"] if sys.stdin.isatty() else ["serve"]
    if not arguments[0].startswith("-") or arguments[0] in ("--help", "-h", "--version", "-V"):
        return [*arguments]
    from ipybox.cli.option_table import OPTIONS

    takes_value = {option.flag for option in OPTIONS if not option.is_flag}
    for index, argument in enumerate(arguments):
        if argument in SUMMARIES and arguments[index - 1] not in takes_value:
            return [argument, *arguments[:index], *arguments[index + 1 :]]
    return ["serve", *arguments]
