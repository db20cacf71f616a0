"""The types of a function that becomes a tool: of its parameters, with errors for the developer, and of its result.

A result that is a `str` is text, and None is an empty text. Everything else is structured content, which must be a JSON
object in MCP: what is not an object is wrapped in `{"result": …}`, as MCP servers of the Python SDK do.
"""

import inspect
import json
import keyword
from collections.abc import Callable
from types import NoneType, SimpleNamespace
from typing import Any, get_type_hints

from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, SchemaError

from ipybox.guest.tools.protocol import RunReply

_REJECTED_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only: tools are called with keyword arguments",
    inspect.Parameter.VAR_POSITIONAL: "accepts any number of arguments: use a list",
    inspect.Parameter.VAR_KEYWORD: "accepts any number of arguments: use a dict",
}


class ToolSchema(GenerateJsonSchema):
    """Generates JSON Schema; a default that is not JSON is omitted, and its parameter remains optional."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as in the base class


def tool_name(function: object) -> str:
    """Returns the name of a function as a tool.

    Raises:
        ValueError: If it is not a function or method with a name of its own, or if it is a generator.
    """
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise ValueError(f"tools: {function!r} is not a function or method: define a function with `def`")
    name = function.__name__
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"tools: {function.__qualname__} has no usable name: define a function with `def`")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ValueError(f"tools: {name}() is a generator: return a list")
    return name


def resolved_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Returns the signature of a function, with types in place of annotations that are strings.

    Raises:
        ValueError: If a parameter can't be passed by its name, or a type is missing, unknown, or has no JSON Schema.
    """
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


def arguments_adapter(signature: inspect.Signature) -> TypeAdapter[dict[str, Any]]:
    """Returns the adapter that checks a function's arguments, which are a JSON object, and adds its defaults."""

    def arguments(**values: Any) -> dict[str, Any]:
        return values

    # pydantic describes and checks the arguments of this function instead, so that no check calls the real one.
    described: Any = arguments
    described.__signature__ = signature
    described.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return TypeAdapter(described)


def _resolved(annotation: Any, where: str, names: dict[str, Any]) -> Any:
    if annotation is inspect.Signature.empty:
        raise ValueError(f"tools: {where} has no type: annotate it")
    holder: Any = SimpleNamespace(__annotations__={where: annotation})
    try:
        resolved = get_type_hints(holder, globalns=names, include_extras=True)[where]
    except Exception as exc:  # the annotation is any expression
        raise ValueError(f"tools: the type {annotation!r} of {where} can't be resolved: {exc}") from None
    try:
        TypeAdapter(resolved).json_schema(schema_generator=ToolSchema)
    except (PydanticUserError, PydanticUndefinedAnnotation, SchemaError) as exc:
        # Further sentences are about settings of pydantic.
        problem = getattr(exc, "message", str(exc)).split(". ")[0].removesuffix(".")
        raise ValueError(f"tools: the type {annotation!r} of {where} has no JSON Schema: {problem}") from None
    return resolved


_DEFINITIONS = "#/$defs/"

#: Problems of a value that an error lists.
_MAX_PROBLEMS = 10


class ResultType:
    """Converts the results of a function.

    Args:
        annotation: The return type.

    Attributes:
        schema: The output schema; None if the result is text.
    """

    def __init__(self, annotation: Any):
        self._adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        self._wrapped = False
        self.schema: dict[str, Any] | None = None
        if annotation in (str, NoneType):
            return
        self.schema = self._json_schema()
        if not _is_object(self.schema):
            self._wrapped = True
            self._adapter = TypeAdapter(create_model("Result", result=(annotation, ...)))
            self.schema = self._json_schema()

    def reply(self, value: Any) -> RunReply:
        """Returns the reply for a result.

        Raises:
            ValueError: If it doesn't match the return type or isn't JSON. The message continues "the result of f() …".
        """
        try:
            checked = self._adapter.validate_python({"result": value} if self._wrapped else value)
            result = self._adapter.dump_python(checked, mode="json", by_alias=True, warnings="error")
            # Neither infinite numbers nor lone surrogates, which no reply can carry.
            json.dumps(result, allow_nan=False, ensure_ascii=False).encode()
        except ValidationError as exc:
            raise ValueError(f"does not match its return type: {problems(exc)}") from exc
        except (PydanticSerializationError, ValueError, RecursionError) as exc:
            raise ValueError(f"is not JSON: {exc}") from exc
        if self.schema is not None:
            return RunReply(structured=result, content=[])
        return RunReply(content=[] if result is None else [{"type": "text", "text": result}])

    def _json_schema(self) -> dict[str, Any]:
        return self._adapter.json_schema(mode="serialization", schema_generator=ToolSchema)


def problems(exc: ValidationError) -> str:
    """Returns what is wrong in a value, and where."""
    errors = exc.errors(include_url=False, include_context=False, include_input=False)
    lines = [": ".join(filter(None, [".".join(map(str, each["loc"])), each["msg"]])) for each in errors[:_MAX_PROBLEMS]]
    return "; ".join([*lines, *([f"{len(errors):,} problems in all"] if len(errors) > _MAX_PROBLEMS else [])])


def _is_object(schema: dict[str, Any]) -> bool:
    reference = str(schema.get("$ref", ""))  # of a type that refers to itself
    if reference.startswith(_DEFINITIONS):
        schema = schema["$defs"][reference.removeprefix(_DEFINITIONS)]
    return schema.get("type") == "object"
