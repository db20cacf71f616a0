"""Checks of the options that constructors accept: errors say what to pass instead.

`CodeExecutor` and `Executor` accept the fields of `ExecutorConfig` (`accepts_options`), which checks their types
(`check_types`). Values of the right type are checked where they are used.
"""

import inspect
import os
from collections.abc import Callable, Container, Mapping, Sequence
from functools import wraps
from numbers import Real
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ipybox.support.deadline import check_seconds
from ipybox.support.inherited import check_environment

if TYPE_CHECKING:
    from ipybox.code_exec.config import ExecutorConfig


_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

_TEXT = ((str,), "a str")
_FLAG = ((bool,), "True or False")
_PATH = ((str, os.PathLike), "a path")
_PORT = ((int,), "a port from 0 to 65535")

#: The types that options accept besides None, and what to pass, for errors. A bool does not count as an int.
_KINDS: Mapping[str, tuple[tuple[Any, ...], str]] = {
    **dict.fromkeys(("tool_server_host", "kernel_gateway_host"), _TEXT),
    **dict.fromkeys(("tool_server_port", "kernel_gateway_port"), _PORT),
    **dict.fromkeys(("images_dir", "working_dir"), _PATH),
    **dict.fromkeys(("sandbox", "spare_kernel", "approve_shell_cmds", "require_shell_escape"), _FLAG),
    "log_level": ((str,), f"one of {', '.join(_LEVELS)}"),
    "memory_limit": ((int,), "an int in bytes, such as 2 << 30 for 2 GiB, or 0 for no limit"),
    "cpu_seconds": ((Real,), "a number of seconds, or None for no limit"),
    "process_limit": ((int,), "an int, or None for no limit"),
    "notebook_bytes": ((int,), "an int in bytes, or 0 to keep nothing"),
    "approver": ((Callable,), "a function that accepts an ApprovalRequest"),
}

#: The valid values of some options.
_POSSIBLE: Mapping[str, Container[object]] = {
    **dict.fromkeys(("tool_server_port", "kernel_gateway_port"), range(1 << 16)),
    "log_level": _LEVELS,
}


def check_types(config: "ExecutorConfig") -> None:
    """Checks the types of the fields of a configuration.

    Raises:
        TypeError, ValueError: If an option has the wrong type or an invalid value; the message says what to pass.
    """
    for name, (types, wanted) in _KINDS.items():
        if (value := getattr(config, name)) is None:
            continue
        wrong = not isinstance(value, types) or (isinstance(value, bool) and bool not in types)
        if wrong or value not in _POSSIBLE.get(name, [value]):
            raise (TypeError if wrong else ValueError)(f"{name} must be {wanted}, not {value!r}")
    for name in ("connect_timeout", "kernel_init_timeout", "queue_timeout"):
        check_seconds(name, getattr(config, name))
    if config.approval_timeout is not None:
        check_seconds("approval_timeout", config.approval_timeout, ", or None for no limit")
    for name in ("kernel_env", "variables"):
        check_environment(name, {} if (given := getattr(config, name)) is None else given)
    _check_list("tools", config.tools, "functions")
    _check_list("preload", config.preload, "module names")
    for name in config.preload:
        if not all(part.isidentifier() for part in str(name).split(".")):
            raise ValueError(f"preload: {name!r} is not a module name")
    _check_list("allowed_domains", config.allowed_domains, "hosts")


def _check_list(name: str, value: object, of: str) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"{name} must be a list of {of}, not {type(value).__name__}")


_Options = ParamSpec("_Options")
_Instance = TypeVar("_Instance")


def accepts_options(
    config: "Callable[_Options, ExecutorConfig]",
) -> "Callable[[Callable[[_Instance, ExecutorConfig], None]], Callable[Concatenate[_Instance, _Options], None]]":
    """Returns a decorator for an `__init__` that accepts an `ExecutorConfig`: callers pass the fields instead."""

    options = inspect.signature(config)

    def decorate(
        init: "Callable[[_Instance, ExecutorConfig], None]",
    ) -> Callable[Concatenate[_Instance, _Options], None]:
        @wraps(init)
        def accept(self: _Instance, *args: _Options.args, **kwargs: _Options.kwargs) -> None:
            init(self, config(*args, **kwargs))

        this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        shown: Any = accept
        shown.__signature__ = options.replace(parameters=[this, *options.parameters.values()], return_annotation=None)
        shown.__doc__ = config.__doc__
        return accept

    return decorate
