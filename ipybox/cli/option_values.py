"""The values of options, from the text on the command line. Standard library only."""

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from ipybox.kernel_mgr.limits.resource_limits import MIN_MEMORY
from ipybox.mcp_server.choices import Approval
from ipybox.support.sizes import format_bytes, parse_bytes


def approval(text: str) -> Approval:
    """Returns the value of --approve."""
    if text in ("auto", "ask"):
        return text
    path = Path(text)
    if path.name == text and not path.suffix and not path.exists():
        raise ValueError(f"{text!r} is none of auto, ask and the path of a file with rules")
    return path


def memory_size(text: str) -> int:
    """Returns the bytes of a memory limit."""
    memory = parse_bytes(text)
    if 0 < memory < MIN_MEMORY:
        raise ValueError(f"{text} is too low: a kernel needs at least {format_bytes(MIN_MEMORY)}")
    return memory


def seconds(text: str) -> float:
    """Returns a positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(f"{text!r} is not a number of seconds above 0")
    return value


def whole_number(text: str) -> int:
    """Returns a whole number."""
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def port(text: str) -> int:
    """Returns the number of a port, or 0 for a free one."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65535:
        raise ValueError(f"{text!r} is not a port: give a number up to 65535, or 0 for a free port")
    return int(text)


def items(text: str) -> list[str]:
    """Returns the parts between commas."""
    return [item.strip() for item in text.split(",") if item.strip()]


def variable_name(text: str) -> str:
    """Returns the name of a variable."""
    # The value would be on a command line, which all users of the machine can read.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        name = text.partition("=")[0]
        raise ValueError(f"{name!r}: give only the name of a variable; its value stays in the environment")
    return text


def absolute_path(text: str) -> Path:
    """Returns the path of a file that the server reads in another directory than the current one."""
    return Path(os.path.abspath(Path(text).expanduser()))


@dataclass(frozen=True)
class Kind:
    """A kind of values.

    Attributes:
        name: What `--help` calls such a value.
        read: Makes a value of a text, or raises a ValueError that says what is expected.
        repeatable: Whether an option can have several of them.
    """

    name: str
    read: Callable[[str], Any]
    repeatable: bool = False


APPROVAL = Kind("auto|ask|FILE", approval)
FILE = Kind("FILE", absolute_path)
ITEMS = Kind("NAME,...", items, repeatable=True)
MEMORY = Kind("SIZE", memory_size)
PORT = Kind("PORT", port)
VARIABLES = Kind("NAME", variable_name, repeatable=True)

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]

_OF_TYPE = {
    int: Kind("N", whole_number),
    float: Kind("SECONDS", seconds),
    str: Kind("NAME", str),
    Path: Kind("DIR", Path),
}


def kind_of(annotation: Any) -> Kind | None:
    """Returns the kind of values of a type, or of its first part that is not None; None for flags.

    Raises:
        TypeError: If no option can have such a value.
    """
    if isinstance(annotation, Kind):
        return annotation
    if isinstance(annotation, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not NoneType)
    if annotation is bool:
        return None
    if get_origin(annotation) is Literal:
        choices: tuple[str, ...] = get_args(annotation)
        return Kind("|".join(choices) if len(choices) < 5 else "LEVEL", partial(_choice, choices))
    if get_origin(annotation) is Sequence:
        return Kind("DIR" if Path in get_args(get_args(annotation)[0]) else "NAME", str, repeatable=True)
    if annotation not in _OF_TYPE:
        raise TypeError(f"no option can have a value of the type {annotation}")
    return _OF_TYPE[annotation]


def _choice(choices: tuple[str, ...], text: str) -> str:
    if text not in choices:
        raise ValueError(f"{text!r} is not one of {', '.join(choices)}")
    return text
