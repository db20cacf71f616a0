"""A tool of an MCP server as a typed Python function, which generated modules create from a signature."""

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from pydantic import ValidationError

from ipybox.guest.tools.client import failure
from ipybox.guest.tools.models import Output, wire

if TYPE_CHECKING:
    from ipybox.guest.tools.client import ToolRunner

#: Maximum characters of a problem's place in a result, and of its reason.
_MAX_TEXT = 200

P = ParamSpec("P")
R = TypeVar("R")


class Tool(Generic[P, R]):
    """Calls a tool with the signature of a function that has one parameter, `params`.

    The function's return annotation is the type of the result: the model of the structured content, or `str`.
    """

    def __init__(self, runner: "ToolRunner", name: str, function: Callable[P, R]):
        functools.update_wrapper(self, function)
        # A generated module describes its tool in its docstring.
        self.__doc__ = function.__doc__ or getattr(function, "__globals__", {}).get("__doc__")
        self.name = name
        self._runner = runner
        self._signature = inspect.signature(function)
        result = self._signature.return_annotation
        self._result = result if issubclass(result, Output) else None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the tool, blocking.

        Raises:
            ToolRunnerError: As in `ToolRunner.run`, or if the result doesn't match the output schema; its `data` is
                then the result.
        """
        arguments = self._arguments(args, kwargs)
        if self._result is None:
            return cast(R, self._runner.run_text(self.name, arguments))
        return self._checked(self._result, self._runner.run_structured(self.name, arguments))

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the tool without blocking."""
        arguments = self._arguments(args, kwargs)
        if self._result is None:
            return cast(R, await self._runner.arun_text(self.name, arguments))
        return self._checked(self._result, await self._runner.arun_structured(self.name, arguments))

    def _checked(self, model: type[Output], structured: dict[str, Any]) -> R:
        try:
            return cast(R, model.model_validate(structured))
        except ValidationError as exc:
            raise failure(self._misfit(exc), structured) from None

    def _misfit(self, exc: ValidationError) -> str:
        first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        # On one line: the server chooses the names in it.
        place = " ".join(".".join(map(str, first["loc"])).split())
        problem = f"{place[:_MAX_TEXT]}: {first['msg'][:_MAX_TEXT]}" if place else first["msg"][:_MAX_TEXT]
        more = f", and {exc.error_count() - 1:,} more" if exc.error_count() > 1 else ""
        return (
            f"{self.name} was called, but its result doesn't fit its output schema: {problem}{more}\n"
            "Don't repeat the call: the result is the error's `data`, in the next cell `sys.last_value.data`. For "
            f"other calls, CLIENT.run_structured({self.name!r}, {{...}}) returns results unchecked"
        )

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return wire(bound.arguments["params"])
