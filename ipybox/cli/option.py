"""Command-line options and how their values are parsed. `option_table` lists the options of `ipybox serve`."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

import click
from click.types import OptionHelpExtra

from ipybox.mcp_server import Approval
from ipybox.support.sizes import parse_bytes

#: What click needs to parse a kind of value and to name it in `--help`.
Kind = Mapping[str, Any]


def choice(*values: str, metavar: str = "") -> Kind:
    """Returns the kind for a closed set of values."""
    return {"type": click.Choice(values), "metavar": metavar or "|".join(values)}


def _approval(text: str) -> Approval:
    if text in ("auto", "writes", "ask"):
        return text
    path = Path(text)
    if path.name == text and not path.suffix and not path.exists():
        raise ValueError(f"{text!r} is not auto, writes, ask, or the path of a rules file")
    return _file(text)


def _file(text: str) -> Path:
    # The server may change its working directory before it reads the file.
    return Path(os.path.abspath(Path(text).expanduser()))


def _host(text: str) -> str:
    from ipybox.mcp_server.http_gate import check_host

    check_host(text)
    return text


def _split(_: click.Context, __: click.Parameter, values: Sequence[str]) -> Sequence[str]:
    return tuple(item.strip() for text in values for item in text.split(",") if item.strip())


APPROVAL: Kind = {"type": _approval, "metavar": "auto|writes|ask|FILE"}
DIRECTORY: Kind = {
    "type": click.Path(exists=True, file_okay=False, executable=True, resolve_path=True, path_type=Path),
    "metavar": "DIR",
}
DIRECTORIES: Kind = {"multiple": True, "metavar": "DIR"}
FILE: Kind = {"type": _file, "metavar": "FILE"}
FLAG: Kind = {"is_flag": True, "flag_value": True}
HOSTS: Kind = {"multiple": True, "type": _host, "metavar": "NAME"}
ITEMS: Kind = {"multiple": True, "callback": _split, "metavar": "NAME,..."}
MEMORY: Kind = {"type": parse_bytes, "metavar": "SIZE"}
NAME: Kind = {"metavar": "NAME"}
NAMES: Kind = {"multiple": True, "metavar": "NAME"}
NUMBER: Kind = {"type": click.IntRange(0, 10**9), "metavar": "N"}
PORT: Kind = {"type": click.IntRange(0, 65535), "metavar": "PORT"}
SECONDS: Kind = {"type": click.FloatRange(0, 10**9, min_open=True), "metavar": "SECONDS"}

_signature = cache(signature)


class Option(click.Option):
    """An option that a parsed command line contains only if given; `cpu_seconds` is `--cpu-seconds`.

    Args:
        name, does: Its name in a parsed command line, and its text in `--help` and the reference.
        sets: The class or method whose parameter it sets; None if only the command line reads it.
        kind, default: The kind of its values, and its default as text; by default, the parameter's.
        commands: The commands that accept it; by default, its group's.
        parameter: The name of its parameter and of the plugins' setting; by default, `name`.
    """

    #: The heading of its group in `--help`.
    group = "Options"

    def __init__(
        self,
        name: str,
        does: str,
        kind: Kind = FLAG,
        *,
        sets: Callable[..., Any] | None = None,
        default: Any = None,
        commands: str = "",
        parameter: str = "",
        short: Sequence[str] = (),
        **more: Any,
    ):
        self.sets, self.commands, self.parameter = sets, commands, parameter or name
        self.flag = f"--{name.replace('_', '-')}"
        if sets is not None:
            declared = _signature(sets).parameters[self.parameter]
            kind = _parameter_kind(declared) if kind is FLAG else kind
            default = default or declared.default
        if default not in (None, ()) and not isinstance(default, bool):
            does += f" (default: {f'{default:g}' if isinstance(default, float) else default})"
        super().__init__([*short, self.flag, name], help=does, default=None, **kind, **more)

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Returns the parsed value; rejects an empty one."""
        if value == "":
            raise click.BadParameter("the value is empty")
        return super().type_cast_value(ctx, value)

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        """Returns nothing: the help text already contains the default."""
        return {}


def _parameter_kind(parameter: Parameter) -> Kind:
    """Returns the kind of a parameter's values, from the first part of its type that is not None."""
    annotation = parameter.annotation
    if isinstance(annotation, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not NoneType)
    if (origin := get_origin(annotation)) is Literal:
        return choice(*get_args(annotation))
    flag = {**FLAG, "flag_value": not parameter.default}
    return {bool: flag, int: NUMBER, float: SECONDS, str: NAME, Sequence: NAMES}[origin or annotation]


workspace_option = partial(
    Option, "workspace", "directory to use as the workspace", DIRECTORY, default="current directory"
)
