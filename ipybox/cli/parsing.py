"""Parses command lines with click: help by groups, errors with a suggestion, and `serve` where no command is named."""

import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, cast

import click
from click.core import augment_usage_errors

from ipybox.cli.option import NAME, Option
from ipybox.cli.option_table import OPTIONS, options_of
from ipybox.support.printable import printable
from ipybox.support.way_in import option_name

#: How commands look.
SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Mistake(click.UsageError):
    """Something was typed that can't be right; the hint says what to do, by default where the help is."""

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
        case click.NoSuchOption(option_name=name) if any(option.flag == name for option in OPTIONS):
            message = f"{name} is not an option of `{path}`"
        case click.NoSuchCommand(command_name=name, possibilities=near):
            message = f"unknown command {name!r}{_did_you_mean(near)}"
        case click.NoSuchOption(option_name=name, possibilities=near):
            message = f"unknown option {name!r}{_did_you_mean(near)}"
        case click.BadParameter(param=click.Parameter() as param):
            name = option_name(param.opts[-1])
            message = f"{name}: {error.message.rstrip('.')}"
            if isinstance(param, TableOption):
                hint = f"{name}: {param.option.text}"
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


class GroupedCommand(click.Command):
    """A command with the options that the table has for it, or with --workspace."""

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
        with augment_usage_errors(ctx):
            return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Returns the parameters, `--help` last."""
        *own, asking = super().get_params(ctx)
        return [*own, *self._of_table, asking]

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command."""
        if self._of_table:
            ctx.params["given"] = given_options({option.name: ctx.params.pop(option.name) for option in self._of_table})
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options by groups."""
        groups: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            group = param.option.group if isinstance(param, TableOption) and self._table else "Options"
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None:
                groups.setdefault(group, []).append(record)
        _write(formatter, groups)


class Commands(click.Group):
    """The commands of `ipybox`, in sections. Each is a function in the module of its name, which is imported late.

    Args:
        sections: What the commands below each heading do, by their names.
        more: Arguments of `click.Group`.
    """

    def __init__(self, *, sections: Mapping[str, Mapping[str, str]], **more: Any):
        super().__init__(context_settings=SETTINGS, **more)
        self._sections = sections
        for name, summary in chain.from_iterable(commands.items() for commands in sections.values()):
            self.add_command(click.Command(name, help=summary))  # until it is imported

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the options of `ipybox` itself, and finds the command."""
        return super().parse_args(ctx, with_command(args, self.commands))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports a command."""
        if cmd_name in self.commands and type(self.commands[cmd_name]) is click.Command:
            import_module(f"ipybox.cli.{cmd_name}")
        return super().get_command(ctx, cmd_name)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by sections, and then the options."""
        sections = {
            title: [(name, self.commands[name].get_short_help_str(70)) for name in names]
            for title, names in self._sections.items()
        }
        sections["Options"] = [row for param in self.get_params(ctx) if (row := param.get_help_record(ctx))]
        _write(formatter, sections)


def _write(formatter: click.HelpFormatter, sections: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    for title, rows in sections.items():
        formatter.write(f"\n{click.style(title, bold=True)}\n")
        with formatter.indentation():
            formatter.write_dl(rows)


def with_command(arguments: Sequence[str], commands: Collection[str]) -> list[str]:
    """Returns a command line that begins with its command.

    Options of serving may come before it. If there is no command, it is `serve`, as clients' configurations have it;
    a person who just types `ipybox` gets the help.
    """
    if not arguments:
        return ["--help"] if sys.stdin.isatty() else ["serve"]
    if not arguments[0].startswith("-") or arguments[0] in ("--help", "-h", "--version", "-V"):
        return [*arguments]
    takes_value = {option.flag for option in OPTIONS if option.type is not bool}
    for index, argument in enumerate(arguments):
        if argument in commands and arguments[index - 1] not in takes_value:
            return [argument, *arguments[:index], *arguments[index + 1 :]]
    return ["serve", *arguments]


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
        if not workspace.is_dir():
            raise Mistake(f"the workspace {workspace} is not a directory", hint)
    except (OSError, RuntimeError, ValueError) as exc:
        raise Mistake(f"can't use the workspace {path or '.'}: {exc}", hint) from exc
    if not os.access(workspace, os.R_OK | os.X_OK):
        raise Mistake(f"no permission to read the workspace {workspace}", hint)
    return workspace
