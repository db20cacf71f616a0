"""The return type of a function: the output schema of the tool, and the replies to code.

A `str` is text, and None is an empty text. Everything else is structured content, which must be a JSON object in MCP:
what is not an object is wrapped in `{"result": …}`, as MCP servers of the Python SDK do.
"""

import json
from types import NoneType
from typing import Any

from pydantic import TypeAdapter, ValidationError, create_model
from pydantic_core import PydanticSerializationError

from ipybox.guest.tools.protocol import RunReply
from ipybox.tool_exec.functions.signature import ToolSchema

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
            ValueError: If it does not fit the return type, or is not JSON. The message continues "the result of f() …".
        """
        try:
            checked = self._adapter.validate_python({"result": value} if self._wrapped else value)
            result = self._adapter.dump_python(checked, mode="json", by_alias=True, warnings="error")
            # Neither infinite numbers nor lone surrogates, which no reply can carry.
            json.dumps(result, allow_nan=False, ensure_ascii=False).encode()
        except ValidationError as exc:
            raise ValueError(f"does not fit its return type: {problems(exc)}") from exc
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
