"""What an option of `ipybox serve` is, and how its values are read. `option_table` lists all options.

Standard library only: a plugin reads the options of `ipybox docker` before anything is installed.
"""

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from operator import attrgetter
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from ipybox.kernel_mgr.limits.resource_limits import MIN_MEMORY
from ipybox.mcp_server.choices import Approval
from ipybox.support.sizes import format_bytes, parse_bytes


@dataclass(frozen=True)
class Kind:
    """A kind of values: its name in `--help`, and what makes a value of a text, or a list for one of several values."""

    name: str
    read: Callable[[str], Any]
    repeatable: bool = False

    def value(self, text: str) -> Any:
        """Returns the value of a text, or raises a ValueError that says what is one."""
        if not text and not self.repeatable:
            raise ValueError("the value is empty")
        return self.read(text)


def choice(*values: str, name: str = "") -> Kind:
    """Returns the kind of values that are one of these."""

    def read(text: str) -> str:
        if text not in values:
            raise ValueError(f"{text!r} is not one of {', '.join(map(repr, values))}")
        return text

    return Kind(name or "|".join(values), read)


def integer(name: str, limit: int) -> Kind:
    """Returns the kind of whole numbers up to a limit."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a valid integer") from None
        if not 0 <= value <= limit:
            raise ValueError(f"{value} is not between 0 and {limit}")
        return value

    return Kind(name, read)


def _approval(text: str) -> Approval:
    if text in ("auto", "ask"):
        return text
    path = Path(text)
    if path.name == text and not path.suffix and not path.exists():
        raise ValueError(f"{text!r} is not auto, ask, or the path of a rules file")
    return path


def _memory(text: str) -> int:
    memory = parse_bytes(text)
    if 0 < memory < MIN_MEMORY:
        raise ValueError(f"{text} is too low: a kernel needs at least {format_bytes(MIN_MEMORY)}")
    return memory


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < (value := float(text)) < math.inf:
            return value
    raise ValueError(f"{text!r} is not a positive number of seconds")


def _variable_name(text: str) -> list[str]:
    # The value would be on a command line, which all users of the machine can read.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        name = text.partition("=")[0]
        raise ValueError(f"{name!r}: give only the variable's name; its value is read from the environment")
    return [text]


APPROVAL = Kind("auto|ask|FILE", _approval)
DIRECTORY = Kind("DIR", Path)
DIRECTORIES = Kind("DIR", lambda text: [text], repeatable=True)
# The server reads the file in another directory than the current one.
FILE = Kind("FILE", lambda text: Path(os.path.abspath(Path(text).expanduser())))
ITEMS = Kind("NAME,...", lambda text: [item.strip() for item in text.split(",") if item.strip()], repeatable=True)
MEMORY = Kind("SIZE", _memory)
NAME = Kind("NAME", str)
NAMES = Kind("NAME", lambda text: [text], repeatable=True)
PORT = integer("PORT", 65535)
VARIABLES = Kind("NAME", _variable_name, repeatable=True)


class Receiver(Enum):
    """The class or method whose parameter an option sets."""

    EXECUTOR = "ipybox.code_exec.config", "ExecutorConfig"
    SERVER = "ipybox.mcp_server.server", "MCPServer"
    HTTP = "ipybox.mcp_server.server", "MCPServer.run_http"

    @cache
    def parameters(self) -> Mapping[str, Parameter]:
        """Returns the parameters, for which the module is imported."""
        module, name = self.value
        return signature(attrgetter(name)(import_module(module))).parameters


@dataclass(frozen=True)
class Option:
    """An option. A type and a default that the parameter has are looked up there when they are needed.

    Attributes:
        name: Its name in a parsed command line; `cpu_seconds` is `--cpu-seconds`.
        help: What it does, for `--help` and the reference.
        type: The kind of its values, if not that of the parameter; bool for a flag.
        receiver: What has the parameter that it sets; None if the command line itself reads it.
        default: Its default as text, if not that of the parameter.
        commands: The commands that have it, by default those of its group.
        parameter: The name of its parameter, and of the plugins' setting, by default its own.
        short: A short form, such as `-e`.
        hidden: Whether `--help` leaves it out, because only programs use it.
        group: The title of its group, which the table sets.
    """

    name: str
    help: str
    type: Any = None
    receiver: Receiver | None = Receiver.EXECUTOR
    _: KW_ONLY
    default: str = ""
    commands: str = ""
    parameter: str = ""
    short: str = ""
    hidden: bool = False
    group: str = ""

    @property
    def flag(self) -> str:
        """Its long form, such as `--cpu-seconds`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def parameter_default(self) -> Any:
        """The default of its parameter; None without one."""
        return None if self.receiver is None else self.receiver.parameters()[self.parameter].default

    @property
    def kind(self) -> Kind | None:
        """The kind of its values; None for a flag."""
        if self.type is None:
            assert self.receiver is not None, f"{self.flag} needs a type"
            return _kind_of(self.receiver.parameters()[self.parameter].annotation)
        return None if self.type is bool else self.type

    @property
    def text(self) -> str:
        """What it does, and its default."""
        default = self.default or self.parameter_default
        if default in (None, ()) or isinstance(default, bool):
            return self.help
        return f"{self.help} (default: {f'{default:g}' if isinstance(default, float) else default})"


def _kind_of(annotation: Any) -> Kind:
    """Returns the kind of values of a type, or of its first part that is not None."""
    if isinstance(annotation, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not NoneType)
    if get_origin(annotation) is Literal:
        return choice(*get_args(annotation))
    if get_origin(annotation) is Sequence:
        return NAMES
    return {int: integer("N", 10**9), float: Kind("SECONDS", _seconds), str: NAME}[annotation]
