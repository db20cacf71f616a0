"""Parses command lines with click: help by groups, errors with a suggestion, and `serve` where no command is named."""

import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, cast

import click

from ipybox.cli.option import Option
from ipybox.cli.option_table import OPTIONS, options_of
from ipybox.cli.option_values import NAME
from ipybox.support.printable import printable

#: Options of `ipybox` itself.
_OWN = ("--help", "-h", "--version", "-V")

#: How commands look.
SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Mistake(click.UsageError):
    """Something was typed that can't be right.

    Args:
        message: What is wrong.
        hint: What to do; by default, where the help is.
    """

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.hint = hint


class Failure(click.ClickException):
    """A command could not do what it was asked for; the message says why, and what to do."""


def explain(error: click.UsageError) -> str:
    """Returns two lines: what is wrong with a command line, and what to do."""
    path = "ipybox" if error.ctx is None else error.ctx.command_path
    hint = f"see `{path} --help`"
    match error:
        case Mistake():
            message, hint = error.message, error.hint or hint
        case click.NoSuchCommand():
            message = f"unknown command {error.command_name!r}{_did_you_mean(error.possibilities)}"
        case click.NoSuchOption() if any(option.flag == error.option_name for option in OPTIONS):
            message = f"{error.option_name} is not an option of `{path}`"
        case click.NoSuchOption():
            message = f"unknown option {error.option_name!r}{_did_you_mean(error.possibilities)}"
        case click.BadParameter(param=click.Parameter() as param):
            message = f"{param.opts[-1]}: {error.message.rstrip('.')}"
            if isinstance(param, TableOption):
                hint = f"{param.opts[-1]}: {param.option.text}"
        case click.BadOptionUsage():
            message = f"{error.option_name} {'needs a' if 'requires' in error.message else 'takes no'} value"
        case _:
            message = re.sub(r"^Got unexpected extra arguments? \((.*)\)$", r"unexpected argument: \1", error.message)
    return printable(f"ipybox: {message}\n{hint[:1].upper()}{hint[1:]}", lines=True)


def _did_you_mean(near: Sequence[str] | None) -> str:
    return f": did you mean {near[0]!r}?" if near else ""


class TableOption(click.Option):
    """An option of the table, as a command has it.

    Args:
        option: The option.
        as_text: Whether its value stays a text if its kind is that of a parameter, which would have to be imported.
    """

    def __init__(self, option: Option, *, as_text: bool):
        names = [*filter(None, [option.short]), option.flag, option.name]
        self.option = option
        if option.type is bool:
            on = not option.name.startswith("no_")
            super().__init__(names, is_flag=True, flag_value=on, default=None, hidden=option.hidden)
        elif kind := option.type or (NAME if as_text else option.kind):
            super().__init__(names, type=kind.value, multiple=kind.repeatable, hidden=option.hidden)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Returns the option with its values, and what it does."""
        self.help, kind = self.option.text, self.option.kind
        self.metavar = kind and kind.name
        return super().get_help_record(ctx)


class _Help(click.HelpFormatter):
    """Help with bold headings."""

    def write_heading(self, heading: str) -> None:
        """Writes a heading."""
        self.write(f"{click.style(heading, bold=True)}\n")


class HelpContext(click.Context):
    """A context with such help."""

    formatter_class = _Help


class GroupedCommand(click.Command):
    """A command with options of the table, in their groups.

    Args:
        table: The command in the table; none for one that only has --workspace of it.
        more: Arguments of `click.Command`.
    """

    context_class = HelpContext

    def __init__(self, *, table: str = "", **more: Any):
        super().__init__(context_settings=SETTINGS, **more)
        self._table = table

    @cached_property
    def _of_table(self) -> list[TableOption]:
        """The options of the table. They are made late, as that can import the classes that they configure."""
        own = {param.name for param in self.params}
        options = options_of(self._table) if self._table else OPTIONS[:1]
        return [TableOption(each, as_text=self._table == "docker") for each in options if each.name not in own]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the command line of this command, by whose name errors call it."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as exc:
            exc.ctx = exc.ctx or ctx
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Returns the parameters, `--help` last."""
        *own, asking = super().get_params(ctx)
        return [*own, *self._of_table, asking]

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command, which gets the options of the table that were given as `given`, if it has any."""
        if self._of_table:
            ctx.params["given"] = given_options({option.name: ctx.params.pop(option.name) for option in self._of_table})
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options by groups."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None:
                group = param.option.group if isinstance(param, TableOption) and self._table else "Options"
                groups.setdefault(group, []).append(record)
        for title, rows in sorted(groups.items(), key=lambda group: group[0] != "Options"):
            with formatter.section(title):
                formatter.write_dl(rows)


class Commands(click.Group):
    """The commands of `ipybox`, in sections.

    Args:
        sections: The names of the commands below each heading.
        more: Arguments of `click.Group`.
    """

    context_class = HelpContext

    def __init__(self, *, sections: Mapping[str, Sequence[str]], **more: Any):
        super().__init__(context_settings=SETTINGS, **more)
        self._sections = sections

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the options of `ipybox` itself, and finds the command."""
        return super().parse_args(ctx, with_command(args, self.commands))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by sections, and then the options."""
        sections = {
            title: [(name, self.commands[name].get_short_help_str(70)) for name in names]
            for title, names in self._sections.items()
        }
        sections["Options"] = [row for param in self.get_params(ctx) if (row := param.get_help_record(ctx))]
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def with_command(arguments: Sequence[str], commands: Collection[str]) -> list[str]:
    """Returns a command line that begins with its command.

    Options of serving may come before it. If there is no command, it is `serve`, as clients' configurations have it;
    a person who just types `ipybox` gets the help.
    """
    if not arguments:
        return ["--help"] if sys.stdin.isatty() else ["serve"]
    if arguments[0] in _OWN:
        return [*arguments]
    options = {option.flag: option for option in OPTIONS}
    index, unknown = 0, False
    while index < len(arguments) and arguments[index].startswith("-"):
        flag, equals, _ = arguments[index].partition("=")
        option = options.get(flag)
        unknown = unknown or option is None
        index += 2 if option is not None and not equals and option.type is not bool else 1
    if index >= len(arguments) or (unknown and arguments[index] not in commands):
        return ["serve", *arguments]
    return [arguments[index], *arguments[:index], *arguments[index + 1 :]]


def given_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a parsed command line that were given, those of repeatable options as one list."""
    return {
        name: [*chain.from_iterable(cast("tuple[list[Any], ...]", value))] if isinstance(value, tuple) else value
        for name, value in values.items()
        if value not in (None, ())
    }


def directory(path: Path | None) -> Path:
    """Returns the workspace that is meant, without links in its path.

    Raises:
        Mistake: If it is not a directory that this user can read.
    """
    hint = "choose another directory with --workspace"
    try:
        workspace = (path or Path()).resolve()
        is_directory = workspace.is_dir()
    except (OSError, RuntimeError, ValueError) as exc:
        raise Mistake(f"can't use the workspace {path or '.'}: {exc}", hint) from exc
    if not is_directory:
        raise Mistake(f"the workspace {workspace} is not a directory", hint)
    if not os.access(workspace, os.R_OK | os.X_OK):
        raise Mistake(f"no permission to read the workspace {workspace}", hint)
    return workspace
