"""A tool of an MCP server as a typed Python function, which generated modules create from a signature."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, cast

from pydantic import ValidationError

from ipybox.guest.tools.arguments import ArgumentError
from ipybox.guest.tools.models import Input, Output, wire
from ipybox.guest.tools.protocol import RunReply
from ipybox.guest.tools.results import checked, failure, structured_in, text_in
from ipybox.support.errors import ToolRunnerError

if TYPE_CHECKING:
    from ipybox.guest.tools.client import ToolRunner

#: Maximum characters of a problem's place in a result, and of its reason.
_MAX_TEXT = 200

P = ParamSpec("P")
R = TypeVar("R")
A_contra = TypeVar("A_contra", contravariant=True)
B_co = TypeVar("B_co", covariant=True)


class _Call(Protocol[A_contra, B_co]):
    """The type of a tool by its parameters and its result."""

    def __call__(self, params: A_contra) -> B_co: ...


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
        return self._result_in(self._runner.reply_sync(self.name, self._arguments(args, kwargs)))

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the tool without blocking."""
        return self._result_in(await self._runner.reply(self.name, self._arguments(args, kwargs)))

    def many(
        self: _Call[A_contra, B_co], params_list: Iterable[A_contra], *, concurrency: int | None = None
    ) -> "list[B_co | ToolRunnerError]":
        """Calls the tool for each of the parameters, and returns results and errors in their order, blocking.

        All calls are approved together. Calls that may write are made one after the other.

        Args:
            params_list: The parameters of each call.
            concurrency: How many calls are made concurrently; at most 64.

        Raises:
            ToolRunnerError: If no call was made, or the tool server's answer doesn't arrive.
        """
        tool = cast("Tool[Any, Any]", self)
        calls = tool._many_arguments(params_list)
        return [tool._outcome(reply) for reply in tool._runner.run_many(tool.name, calls, concurrency)]

    async def many_async(
        self: _Call[A_contra, B_co], params_list: Iterable[A_contra], *, concurrency: int | None = None
    ) -> "list[B_co | ToolRunnerError]":
        """Like `many`, but doesn't block."""
        tool = cast("Tool[Any, Any]", self)
        calls = tool._many_arguments(params_list)
        return [tool._outcome(reply) for reply in await tool._runner.arun_many(tool.name, calls, concurrency)]

    def _many_arguments(self, params_list: Iterable[Any]) -> list[dict[str, Any]]:
        if isinstance(params_list, Input):  # it would yield its fields
            raise ToolRunnerError(f"run_many of {self.name} takes a list of Params(...)")
        calls: list[dict[str, Any]] = []
        for params in params_list:
            try:
                calls.append(wire(params))
            except (ArgumentError, TypeError, ValidationError) as exc:
                raise ToolRunnerError(f"can't send params_list[{len(calls)}] of {self.name}: {exc}") from None
        return calls

    def _outcome(self, reply: RunReply) -> Any:
        try:
            return self._result_in(checked(reply, self.name))
        except ToolRunnerError as exc:
            return exc.with_traceback(None)  # which would keep the other replies

    def _result_in(self, reply: RunReply) -> R:
        if self._result is None:
            return cast(R, text_in(reply, self.name))
        structured = structured_in(reply, self.name)
        try:
            return cast(R, self._result.model_validate(structured))
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
