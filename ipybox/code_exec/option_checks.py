"""Checks the types of options, so that a wrong one is an error of the constructor that says what to give.

`ExecutorConfig` checks its fields with it. Values that are of the right type are checked where they are used.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

from ipybox.support.deadline import check_seconds

if TYPE_CHECKING:
    from ipybox.code_exec.config import ExecutorConfig


@dataclass(frozen=True)
class _Kind:
    """What an option accepts in addition to its default.

    Attributes:
        types: The types of its values; bool does not count as int.
        wanted: What to give, for the error.
        is_possible: Returns whether a value of these types is possible.
    """

    types: tuple[Any, ...]
    wanted: str
    is_possible: Callable[[Any], bool] = lambda _: True

    def check(self, name: str, value: object) -> None:
        """Raises a TypeError or ValueError if a value is not possible."""
        wrong = not isinstance(value, self.types) or (isinstance(value, bool) and bool not in self.types)
        if wrong or not self.is_possible(value):
            raise (TypeError if wrong else ValueError)(f"{name} must be {self.wanted}, not {value!r}")


_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

_TEXT = _Kind((str,), "a str")
_FLAG = _Kind((bool,), "True or False")
_PATH = _Kind((str, os.PathLike), "a path")
_PORT = _Kind((int,), "a port from 0 to 65535", lambda port: 0 <= port < 1 << 16)

_KINDS: Mapping[str, _Kind] = {
    **dict.fromkeys(("tool_server_host", "kernel_gateway_host"), _TEXT),
    **dict.fromkeys(("tool_server_port", "kernel_gateway_port"), _PORT),
    **dict.fromkeys(("images_dir", "working_dir"), _PATH),
    **dict.fromkeys(("sandbox", "spare_kernel"), _FLAG),
    **dict.fromkeys(("approve_shell_cmds", "require_shell_escape"), _FLAG),
    "log_level": _Kind((str,), f"one of {', '.join(_LEVELS)}", lambda level: level in _LEVELS),
    "memory_limit": _Kind((int,), "an int in bytes, such as 2 << 30 for 2 GiB, or 0 for no limit"),
    "cpu_seconds": _Kind((Real,), "a number of seconds, or None for no limit"),
    "process_limit": _Kind((int,), "an int, or None for no limit"),
    "notebook_bytes": _Kind((int,), "an int in bytes, or 0 to keep nothing"),
    "approver": _Kind((Callable,), "a function that accepts an ApprovalRequest"),
}


def check_types(config: "ExecutorConfig") -> None:
    """Checks the types of the fields of a configuration.

    Raises:
        TypeError, ValueError: If one is of a wrong type, or a number or name is not possible; the message says what to
            give.
    """
    for name, kind in _KINDS.items():
        if (value := getattr(config, name)) is not None:
            kind.check(name, value)
    check_seconds("connect_timeout", config.connect_timeout)
    for name in ("kernel_env", "variables"):
        _check_variables(name, getattr(config, name))
    _check_list("tools", config.tools, "functions")
    _check_list("preload", config.preload, "module names", "['pandas']")
    for name in config.preload:
        if not all(part.isidentifier() for part in str(name).split(".")):
            raise ValueError(f"preload: {name!r} is not a module name")
    if isinstance(config.allowed_domains, str):
        raise TypeError(f"allowed_domains must be a list of hosts, not a str: [{config.allowed_domains!r}]")


def _check_list(name: str, value: object, of: str, example: str = "") -> None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        example = example or (f"[{getattr(value, '__name__', '...')}]" if callable(value) else "")
        hint = f": {name}={example}" if example else ""
        raise TypeError(f"{name} must be a list of {of}, not {type(value).__name__}{hint}")


def _check_variables(name: str, value: object) -> None:
    """Checks environment variables, by their names."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict of environment variables, not {type(value).__name__}")
    for variable, text in cast("Mapping[object, object]", value).items():
        if not isinstance(variable, str):
            raise TypeError(f"{name}: {variable!r} must be a str")
        if not isinstance(text, str):
            raise TypeError(f"{name}: the value of {variable} must be a str, not {type(text).__name__}")
        if not variable or not set("=\0").isdisjoint(variable):
            raise ValueError(f"{name}: {variable!r} is not a valid environment variable name")
        if "\0" in text:
            raise ValueError(f"{name}: the value of {variable} contains a null character")
