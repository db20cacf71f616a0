"""A tool of an MCP server as a typed Python function, which generated modules create from a signature."""

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from pydantic import ValidationError

from ipybox.errors import ToolRunnerError
from ipybox.guest.tools.models import Output, wire

if TYPE_CHECKING:
    from ipybox.guest.tools.client import ToolRunner

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
            ToolRunnerError: As `ToolRunner.run`, or if the result does not have the types of the output schema.
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
            raise ToolRunnerError(f"the result of {self.name} does not fit the tool's output schema: {exc}") from None

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return wire(bound.arguments["params"])
