"""What an option of the command line is, and how its values are read. `option_table` lists those of `ipybox serve`."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

import click
from click.types import OptionHelpExtra

from ipybox.mcp_server.choices import Approval
from ipybox.support.sizes import parse_bytes

#: What click needs to know about values of a kind: how to read one, and its name in `--help`.
Kind = Mapping[str, Any]


def choice(*values: str, metavar: str = "") -> Kind:
    """Returns the kind of values that are one of these."""
    return {"type": click.Choice(values), "metavar": metavar or "|".join(values)}


def _approval(text: str) -> Approval:
    if text in ("auto", "ask"):
        return text
    path = Path(text)
    if path.name == text and not path.suffix and not path.exists():
        raise ValueError(f"{text!r} is not auto, ask, or the path of a rules file")
    return path


def _absolute(text: str) -> Path:
    # The server reads the file in another directory than the current one.
    return Path(os.path.abspath(Path(text).expanduser()))


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < (value := float(text)) < math.inf:
            return value
    raise ValueError(f"{text!r} is not a positive number of seconds")


def _split(_: click.Context, __: click.Parameter, values: Sequence[str]) -> Sequence[str]:
    return tuple(item.strip() for text in values for item in text.split(",") if item.strip())


APPROVAL: Kind = {"type": _approval, "metavar": "auto|ask|FILE"}
DIRECTORY: Kind = {"type": Path, "metavar": "DIR"}
DIRECTORIES: Kind = {"multiple": True, "metavar": "DIR"}
FILE: Kind = {"type": _absolute, "metavar": "FILE"}
ITEMS: Kind = {"multiple": True, "callback": _split, "metavar": "NAME,..."}
MEMORY: Kind = {"type": parse_bytes, "metavar": "SIZE"}
NAME: Kind = {"metavar": "NAME"}
NAMES: Kind = {"multiple": True, "metavar": "NAME"}
PORT: Kind = {"type": click.IntRange(0, 65535), "metavar": "PORT"}


class Option(click.Option):
    """An option, of which a command line contains only what was given.

    Args:
        name: Its name in a parsed command line; `cpu_seconds` is `--cpu-seconds`.
        does: What it does, for `--help` and the reference.
        kind: The kind of its values, by default that of the parameter; without one, it is a flag.
        sets: The class or method whose parameter it sets; None if the command line itself reads it.
        default: Its default as text, if not that of the parameter.
        commands: The commands that have it, by default those of its group.
        parameter: The name of its parameter, and of the plugins' setting, by default its own.
        short: A short form, such as `-e`.
        hidden: Whether `--help` leaves it out, because only programs use it.
    """

    def __init__(
        self,
        name: str,
        does: str,
        kind: Kind | None = None,
        *,
        sets: Callable[..., Any] | None = None,
        default: Any = None,
        commands: str = "",
        parameter: str = "",
        short: str = "",
        hidden: bool = False,
    ):
        self.sets, self.commands, self.parameter = sets, commands, parameter or name
        self.group = "Options"  # until a table puts it into another one
        self.flag = f"--{name.replace('_', '-')}"
        if sets is not None:
            declared = _parameters(sets)[self.parameter]
            kind, default = kind or _kind_of(declared), default or declared.default
        if default not in (None, ()) and not isinstance(default, bool):
            does += f" (default: {f'{default:g}' if isinstance(default, float) else default})"
        names = [*filter(None, [short]), self.flag, name]
        super().__init__(names, help=does, default=None, hidden=hidden, **kind or _flag(True))

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Returns the value of a text, which must not be empty."""
        if value == "":
            raise click.BadParameter("the value is empty")
        return super().type_cast_value(ctx, value)

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        """Returns nothing: the text says it all."""
        return {}


@cache
def _parameters(sets: Callable[..., Any]) -> Mapping[str, Parameter]:
    return signature(sets).parameters


def _flag(value: bool) -> Kind:
    return {"is_flag": True, "flag_value": value}


def _kind_of(parameter: Parameter) -> Kind:
    """Returns the kind of values of a parameter, or of the first part of its type that is not None."""
    annotation = parameter.annotation
    if isinstance(annotation, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not NoneType)
    if get_origin(annotation) is Literal:
        return choice(*get_args(annotation))
    if get_origin(annotation) is Sequence:
        return NAMES
    return {
        bool: _flag(not parameter.default),
        int: {"type": click.IntRange(0, 10**9), "metavar": "N"},
        float: {"type": _seconds, "metavar": "SECONDS"},
        str: NAME,
    }[annotation]


WORKSPACE = Option(
    "workspace",
    "directory to use as the workspace",
    DIRECTORY,
    default="current directory",
    commands="serve docker check",
)
