"""The application's functions as tools: cells call them like the tools of an MCP server named `app`.

pydantic generates the schemas and validates the values. `func_metadata` of the MCP SDK does the same, but it is
internal to the SDK's server, takes a second to import, and reports unsupported signatures only at the first call.
"""

import asyncio
import inspect
import json
import keyword
import logging
from collections.abc import Callable, Iterable
from functools import partial
from threading import BoundedSemaphore
from types import NoneType, SimpleNamespace
from typing import Any, get_type_hints

from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, SchemaError

from ipybox.guest.tools.protocol import RunReply
from ipybox.support.errors import ToolRunnerError
from ipybox.support.tasks import in_daemon_thread

logger = logging.getLogger(__name__)

#: Maximum concurrent calls of sync functions. A cancelled call counts until its function returns; otherwise, a cell
#: could start any number of threads.
MAX_THREADS = 256

#: Maximum number of problems that an error lists.
_MAX_PROBLEMS = 10

_REJECTED_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only: tools are called with keyword arguments",
    inspect.Parameter.VAR_POSITIONAL: "accepts any number of arguments: use a list",
    inspect.Parameter.VAR_KEYWORD: "accepts any number of arguments: use a dict",
}


class FunctionTools:
    """The functions of an application as tools. Only these can be called, by the names they had at construction.

    Raises:
        ValueError: If a function can't be a tool, or two have the same name.
    """

    def __init__(self, functions: Iterable[Callable[..., Any]]):
        self.tools = [FunctionTool(function) for function in functions]
        self._by_name = {tool.name: tool for tool in self.tools}
        for tool in self.tools:
            if self._by_name[tool.name] is not tool:
                raise ValueError(f"tools: more than one function is called {tool.name}(): give each its own name")
        self._threads = BoundedSemaphore(MAX_THREADS)

    async def call(self, tool_name: str, tool_args: dict[str, Any]) -> RunReply:
        """Calls a function and returns the reply for the kernel.

        Raises:
            ToolRunnerError: If there is no such function, or `FunctionTool.call` raises it.
        """
        tool = self._by_name.get(tool_name)
        if tool is None:
            raise ToolRunnerError(
                f"the application provides no function {tool_name!r}; available: {', '.join(self._by_name)}"
            )
        return await tool.call(tool_args, self._threads)


class FunctionTool:
    """A function or method, sync or async, as a tool. Its parameters and result must be annotated.

    A `str` result becomes text, and None becomes no content. Other results become structured content, which MCP
    requires to be a JSON object: anything else is wrapped in `{"result": …}`, as in the MCP Python SDK.

    Raises:
        ValueError: If the function can't be a tool; the message names the function and the parameter.
    """

    def __init__(self, function: Callable[..., Any]):
        self.name = _tool_name(function)
        self.description = inspect.getdoc(function)
        signature = _resolved_signature(function)
        self._function = function
        self._arguments = _arguments_adapter(signature)
        self.input_schema = self._arguments.json_schema(schema_generator=_ToolSchema)
        returned = signature.return_annotation
        self._result: TypeAdapter[Any] = TypeAdapter(returned)
        self.output_schema = None if returned in (str, NoneType) else _result_schema(self._result)
        self._wrapped = self.output_schema is not None and not _is_object(self.output_schema)
        if self._wrapped:
            self._result = TypeAdapter(create_model("Result", result=(returned, ...)))
            self.output_schema = _result_schema(self._result)

    async def call(self, arguments: dict[str, Any], threads: BoundedSemaphore) -> RunReply:
        """Validates the arguments, calls the function, and returns the reply for the kernel.

        Cancelling the call cancels an async function. A sync function can't be cancelled: it runs to its end, and
        counts towards `threads` until then.

        Raises:
            ToolRunnerError: If the arguments are invalid, the function raises, its result does not match its type or is
                not JSON, or too many threads are running.
        """
        try:
            checked = self._checked(arguments)
            if inspect.iscoroutinefunction(self._function):
                value = await self._function(**checked)
            else:
                value = await in_daemon_thread(partial(self._run, checked, threads), f"ipybox-{self.name}")
            return self._reply(value)
        except ToolRunnerError:
            raise
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Something that the function awaited was cancelled, but not this call.
            raise ToolRunnerError("CancelledError") from exc
        except (Exception, SystemExit) as exc:
            logger.info("tool %s() failed", self.name, exc_info=exc)
            # Type and text only. The kernel must not learn host paths, which an OSError's message contains.
            text = exc.strerror if isinstance(exc, OSError) and exc.filename is not None else _text(exc)
            raise ToolRunnerError(": ".join(filter(None, [type(exc).__name__, text]))) from exc

    def _checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            # Strict validation as JSON: the function receives what was approved, and not 1 for "1" or true.
            return self._arguments.validate_json(json.dumps(arguments), strict=True)
        except ValidationError as exc:
            raise ToolRunnerError(f"invalid arguments for {self.name}(): {_problems(exc)}") from exc

    def _run(self, arguments: dict[str, Any], threads: BoundedSemaphore) -> Any:
        if not threads.acquire(blocking=False):
            raise ToolRunnerError(
                f"{self.name}() was not called: too many calls are running, including those from ended cells"
            )
        try:
            return self._function(**arguments)
        except KeyboardInterrupt as exc:  # raised by the function itself: Ctrl-C never reaches this thread
            raise ToolRunnerError("KeyboardInterrupt") from exc
        finally:
            threads.release()

    def _reply(self, value: object) -> RunReply:
        try:
            checked = self._result.validate_python({"result": value} if self._wrapped else value)
            result = self._result.dump_python(checked, mode="json", by_alias=True, warnings="error")
            # Rejects infinite numbers and lone surrogates, which no reply can carry.
            json.dumps(result, allow_nan=False, ensure_ascii=False).encode()
        except ValidationError as exc:
            raise ToolRunnerError(
                f"the result of {self.name}() does not match its return type: {_problems(exc)}"
            ) from exc
        except (PydanticSerializationError, ValueError, RecursionError) as exc:
            raise ToolRunnerError(f"the result of {self.name}() is not JSON: {exc}") from exc
        if self.output_schema is not None:
            return RunReply(structured=result, content=[])
        return RunReply(content=[] if result is None else [{"type": "text", "text": result}])


class _ToolSchema(GenerateJsonSchema):
    """Generates JSON Schema without defaults that are not JSON; their parameters remain optional."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as in the base class


def _tool_name(function: object) -> str:
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise ValueError(f"tools: {function!r} is not a function or method: define a function with `def`")
    name = function.__name__
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"tools: {function.__qualname__} has no usable name: define a function with `def`")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ValueError(f"tools: {name}() is a generator: return a list")
    return name


def _resolved_signature(function: Callable[..., Any]) -> inspect.Signature:
    name = function.__name__
    names: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    signature = inspect.signature(function)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.kind in _REJECTED_KINDS:
            raise ValueError(f"tools: parameter '{parameter}' of {name}() {_REJECTED_KINDS[parameter.kind]}")
        where = f"parameter '{parameter.name}' of {name}()"
        parameters.append(parameter.replace(annotation=_resolved(parameter.annotation, where, names)))
    result = _resolved(signature.return_annotation, f"the result of {name}()", names)
    return signature.replace(parameters=parameters, return_annotation=result)


def _resolved(annotation: Any, where: str, names: dict[str, Any]) -> Any:
    if annotation is inspect.Signature.empty:
        raise ValueError(f"tools: {where} has no type: annotate it")
    holder: Any = SimpleNamespace(__annotations__={where: annotation})
    try:
        resolved = get_type_hints(holder, globalns=names, include_extras=True)[where]
    except Exception as exc:  # an annotation can be any expression
        raise ValueError(f"tools: the type {annotation!r} of {where} can't be resolved: {exc}") from None
    try:
        TypeAdapter(resolved).json_schema(schema_generator=_ToolSchema)
    except (PydanticUserError, PydanticUndefinedAnnotation, SchemaError) as exc:
        # The other sentences are about pydantic's settings.
        problem = getattr(exc, "message", str(exc)).split(". ")[0].removesuffix(".")
        raise ValueError(f"tools: the type {annotation!r} of {where} has no JSON Schema: {problem}") from None
    return resolved


def _arguments_adapter(signature: inspect.Signature) -> TypeAdapter[dict[str, Any]]:
    """Returns an adapter that validates a function's arguments, a JSON object, and adds defaults."""

    def arguments(**values: Any) -> dict[str, Any]:
        return values

    # TypeAdapter calls the function that it validates arguments for, so this stand-in only returns them.
    described: Any = arguments
    described.__signature__ = signature
    described.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return TypeAdapter(described)


def _result_schema(result: TypeAdapter[Any]) -> dict[str, Any]:
    return result.json_schema(mode="serialization", schema_generator=_ToolSchema)


def _is_object(schema: dict[str, Any]) -> bool:
    reference = str(schema.get("$ref", ""))  # for a recursive type
    if reference.startswith("#/$defs/"):
        schema = schema["$defs"][reference.removeprefix("#/$defs/")]
    return schema.get("type") == "object"


def _problems(exc: ValidationError) -> str:
    errors = exc.errors(include_url=False, include_context=False, include_input=False)
    lines = [": ".join(filter(None, [".".join(map(str, each["loc"])), each["msg"]])) for each in errors[:_MAX_PROBLEMS]]
    return "; ".join([*lines, *([f"{len(errors):,} problems in all"] if len(errors) > _MAX_PROBLEMS else [])])


def _text(exc: BaseException) -> str:
    """Returns an exception's message, or an empty string if its `__str__` fails."""
    try:
        return str(exc)
    except Exception:  # `__str__` can raise anything
        return ""
