"""Lets a class accept the fields of `ExecutorConfig` as the parameters of its `__init__`."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from ipybox.code_exec.config import ExecutorConfig

_Options = ParamSpec("_Options")
_Instance = TypeVar("_Instance")

#: Parameters that only ipybox 0.9 has, and what to do instead. None is ignored.
_RETIRED = {
    "approve_tool_calls": "without a policy and an approver, `execute` accepts all tool calls; pass approver=... "
    "to decide on each call. For `stream`, pass approval_policy=ApprovalPolicy('default: allow')",
}


def accepts_options(
    config: "Callable[_Options, ExecutorConfig]",
) -> "Callable[[Callable[[_Instance, ExecutorConfig], None]], Callable[Concatenate[_Instance, _Options], None]]":
    """Returns a decorator for an `__init__`, which gets an `ExecutorConfig`: its callers give the fields instead."""

    options = inspect.signature(config)

    def decorate(
        init: "Callable[[_Instance, ExecutorConfig], None]",
    ) -> Callable[Concatenate[_Instance, _Options], None]:
        @wraps(init)
        def accept(self: _Instance, *args: _Options.args, **kwargs: _Options.kwargs) -> None:
            _check_call(f"{type(self).__name__}()", options, len(args), kwargs)
            init(self, config(*args, **kwargs))

        this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        shown: Any = accept
        shown.__signature__ = options.replace(parameters=[this, *options.parameters.values()], return_annotation=None)
        shown.__doc__ = config.__doc__
        return accept

    return decorate


def _check_call(function: str, options: inspect.Signature, given: int, names: Iterable[str]) -> None:
    """Raises a TypeError that says what to pass instead, for misspelled names and for calls as in ipybox 0.9."""
    by_position = [each.name for each in options.parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
    if given > len(by_position):
        raise TypeError(
            f"{function} accepts {len(by_position)} positional arguments, up to {by_position[-1]}, but got {given}: "
            "pass the rest by name, as in working_dir=..."
        )
    for name in names:
        if name in _RETIRED:
            raise TypeError(f"{function} no longer has a parameter {name!r}: {_RETIRED[name]}")
        if name not in options.parameters:
            from difflib import get_close_matches

            similar = get_close_matches(name, options.parameters, 1)
            suggestion = f": did you mean {similar[0]!r}?" if similar else ""
            raise TypeError(f"{function} has no parameter {name!r}{suggestion}")
