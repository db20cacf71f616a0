"""Parses command lines with click: help by groups, errors with a suggestion, and `serve` where no command is named."""

import difflib
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, cast

import click

from ipybox.cli.option import Command, Option
from ipybox.cli.option_table import OPTIONS, options_of
from ipybox.support.printable import printable

#: Options of `ipybox` itself.
_OWN = ("--help", "-h", "--version")

#: The widest help, and the narrowest terminal whose width it keeps to.
_MAX_WIDTH, _MIN_WIDTH = 100, 30


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
            message = f"unknown command {error.command_name!r}{_did_you_mean(error.command_name, error.possibilities)}"
        case click.NoSuchOption():
            message = _unknown_option(error, path)
        case click.BadParameter(param=TableOption() as option):
            message, hint = f"{option.opts[-1]}: {error.message}", f"{option.opts[-1]}: {option.help}"
        case click.BadParameter(param=click.Parameter() as param):
            message = f"{param.opts[-1]}: {error.message.rstrip('.')}"
        case click.BadOptionUsage():
            message = f"{error.option_name} {'needs a' if 'requires' in error.message else 'takes no'} value"
        case _:
            message = re.sub(r"^Got unexpected extra arguments? \((.*)\)$", r"unexpected argument: \1", error.message)
    return printable(f"ipybox: {message}\n{hint[:1].upper()}{hint[1:]}", lines=True)


def _unknown_option(error: click.NoSuchOption, path: str) -> str:
    name = error.option_name
    if not error.possibilities and any(option.flag == name for option in OPTIONS):
        return f"{name} is not an option of `{path}`"
    return f"unknown option {name!r}{_did_you_mean(name, error.possibilities)}"


def _did_you_mean(name: str, candidates: Sequence[str] | None) -> str:
    near = difflib.get_close_matches(name, candidates or (), 1, 0.5)
    return f": did you mean {near[0]!r}?" if near else ""


class _Value(click.ParamType[Any]):
    """The value of an option of the table."""

    name = "value"

    def __init__(self, option: Option):
        self.option = option

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the value of a text."""
        try:
            return self.option.value(value)
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


class TableOption(click.Option):
    """An option of the table, as a command has it."""

    def __init__(self, option: Option):
        names = [*filter(None, [option.short]), option.flag, option.name]
        about: dict[str, Any] = {"help": option.text, "hidden": option.hidden, "default": None}
        if (kind := option.kind) is None:
            super().__init__(names, is_flag=True, flag_value=not option.parameter_default, **about)
        else:
            about |= {"type": _Value(option), "multiple": kind.repeatable, "metavar": kind.name}
            super().__init__(names, **about)
        self.group = option.group


class _Help(click.HelpFormatter):
    """Help with bold headings."""

    def write_heading(self, heading: str) -> None:
        """Writes a heading."""
        self.write(f"{click.style(heading, bold=True)}\n")

    def write_rows(self, heading: str, rows: Sequence[tuple[str, str]]) -> None:
        """Writes what there is, and what it does, below a heading."""
        with self.section(heading):
            self.write_dl(rows, col_max=max(12, min(30, self.width // 3)))


class HelpContext(click.Context):
    """A context whose help is as wide as the terminal, and colored only on terminals that want it."""

    formatter_class = _Help

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.terminal_width = max(min(get_terminal_size().columns, _MAX_WIDTH), _MIN_WIDTH) - 1
        # Where stdout is no terminal, click leaves out colors.
        self.color = False if "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" else None


class GroupedCommand(click.Command):
    """A command with options of the table, in their groups.

    Args:
        table: Which command of the table it is; None for one that only has --workspace of it.
        more: Arguments of `click.Command`.
    """

    context_class = HelpContext

    def __init__(self, *, table: Command | None = None, **more: Any):
        super().__init__(**more)
        self._table = table
        self._own = [*self.params]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the command line of this command, by whose name errors call it."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as exc:
            exc.ctx = exc.ctx or ctx
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Returns the parameters. Those of the table are made late, as they import the classes that they configure."""
        if len(self.params) == len(self._own):
            names = {param.name for param in self._own}
            options = OPTIONS[:1] if self._table is None else options_of(self._table)
            self.params = [*self._own, *(TableOption(option) for option in options if option.name not in names)]
        return super().get_params(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options by groups."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None:
                group = param.group if isinstance(param, TableOption) and self._table is not None else ""
                groups.setdefault(group, []).append(record)
        for title, rows in sorted(groups.items(), key=lambda group: not group[0]):
            cast(_Help, formatter).write_rows(title or "Options", rows)


class Commands(click.Group):
    """The commands of `ipybox`, in sections.

    Args:
        sections: The names of the commands below each heading.
        more: Arguments of `click.Group`.
    """

    context_class = HelpContext

    def __init__(self, *, sections: Mapping[str, Sequence[str]], **more: Any):
        super().__init__(**more)
        self._sections = sections

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the options of `ipybox` itself, and finds the command."""
        return super().parse_args(ctx, with_command(args, self.commands))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by sections, and then the options."""
        for title, names in self._sections.items():
            rows = [(name, self.commands[name].get_short_help_str(70)) for name in names]
            cast(_Help, formatter).write_rows(title, rows)
        options = [record for param in self.get_params(ctx) if (record := param.get_help_record(ctx)) is not None]
        cast(_Help, formatter).write_rows("Options", options)


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
        index += 2 if option is not None and not equals and option.kind is not None else 1
    if index >= len(arguments) or (unknown and arguments[index] not in commands):
        return ["serve", *arguments]
    return [arguments[index], *arguments[:index], *arguments[index + 1 :]]


def given_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a parsed command line that were given, those of repeatable options as one list."""
    given = {name: value for name, value in values.items() if value not in (None, ())}
    return {
        name: _flat(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value
        for name, value in given.items()
    }


def _flat(values: tuple[Any, ...]) -> list[Any]:
    return [item for value in values for item in (cast("list[Any]", value) if isinstance(value, list) else [value])]


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
