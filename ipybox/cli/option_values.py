"""The values of options, from the text on the command line.

Standard library only: a plugin reads the options of `ipybox docker` before anything is installed.
"""

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipybox.kernel_mgr.limits.resource_limits import MIN_MEMORY
from ipybox.mcp_server.choices import Approval
from ipybox.support.sizes import format_bytes, parse_bytes


def approval(text: str) -> Approval:
    """Returns the value of --approve."""
    if text in ("auto", "ask"):
        return text
    path = Path(text)
    if path.name == text and not path.suffix and not path.exists():
        raise ValueError(f"{text!r} is not auto, ask, or the path of a file with rules")
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


def items(text: str) -> list[str]:
    """Returns the parts between commas."""
    return [item.strip() for item in text.split(",") if item.strip()]


def variable_name(text: str) -> list[str]:
    """Returns the name of a variable, in a list."""
    # The value would be on a command line, which all users of the machine can read.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        name = text.partition("=")[0]
        raise ValueError(f"{name!r}: give only the variable's name; its value is read from the environment")
    return [text]


def absolute_path(text: str) -> Path:
    """Returns the path of a file that the server reads in another directory than the current one."""
    return Path(os.path.abspath(Path(text).expanduser()))


@dataclass(frozen=True)
class Kind:
    """A kind of values.

    Attributes:
        name: What `--help` calls such a value.
        read: Makes a value of a text, or raises a ValueError that says what is expected.
        repeatable: Whether an option can have several of them, so that `read` makes lists.
    """

    name: str
    read: Callable[[str], Any]
    repeatable: bool = False

    def value(self, text: str) -> Any:
        """Returns the value of a text; a list if there can be several, which may be empty.

        Raises:
            ValueError: If the text is no such value; the message says what is.
        """
        if not text and not self.repeatable:
            raise ValueError("the value is empty")
        return self.read(text)


APPROVAL = Kind("auto|ask|FILE", approval)
DIRECTORY = Kind("DIR", Path)
DIRECTORIES = Kind("DIR", lambda text: [text], repeatable=True)
FILE = Kind("FILE", absolute_path)
ITEMS = Kind("NAME,...", items, repeatable=True)
MEMORY = Kind("SIZE", memory_size)
NAME = Kind("NAME", str)
NAMES = Kind("NAME", lambda text: [text], repeatable=True)
SECONDS = Kind("SECONDS", seconds)
VARIABLES = Kind("NAME", variable_name, repeatable=True)

#: Options that need the sandbox.
_OF_SANDBOX = "sandbox_profile", "sandbox_config", "workspace_config", "allow_domain"


def sandbox_mistake(given: Mapping[str, Any]) -> str | None:
    """Returns what is wrong with the given options of the sandbox; None if nothing is."""
    if "sandbox_config" in given and "workspace_config" in given:
        return "--sandbox-config and --workspace-config can't be combined"
    needless = [name for name in _OF_SANDBOX if name in given]
    if "sandbox" in given or not needless:
        return None
    return f"--{needless[0].replace('_', '-')} has no effect without the sandbox: add --sandbox"
