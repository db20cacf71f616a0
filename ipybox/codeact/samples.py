"""Converts tool results to samples for a parser: JSON values, and the code that extracts them from a result."""

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

#: Field names that wrap a result that isn't an object, because a model needs an object.
ITEMS, VALUE = "items", "value"


@dataclass(frozen=True)
class Samples:
    """JSON objects from results, and the Python expression that converts `result` to such an object."""

    values: list[dict[str, Any]]
    expression: str
    #: The standard library module that the expression needs, or None.
    module: str | None


def samples_of(results: Sequence[Any]) -> Samples:
    """Returns samples from one tool's results; raises a ValueError if one can't be decoded, or their kinds differ."""
    decoded = [_decoded(result) for result in results]
    ways = {(expression, module, _name(value)) for value, expression, module in decoded}
    if len(ways) > 1:
        raise ValueError("the samples differ in kind: pass results of successful calls to one tool")
    ((expression, module, name),) = ways
    values = [value if name is None else {name: value} for value, _, _ in decoded]
    return Samples(values, expression if name is None else f"{{{name!r}: {expression}}}", module)


def _decoded(result: Any) -> tuple[Any, str, str | None]:
    if isinstance(result, str):
        return _decoded_text(result, "result")
    if not isinstance(result, BaseModel):
        return result, "json.loads(result)", "json"  # the caller has decoded it
    match list(type(result).model_fields):
        case [only] if isinstance(text := getattr(result, only), str):
            return _decoded_text(text, f"result.{only}")
        case _:
            return result.model_dump(mode="json", by_alias=True), 'result.model_dump(mode="json", by_alias=True)', None


def _decoded_text(text: str, expression: str) -> tuple[Any, str, str]:
    try:
        return json.loads(text), f"json.loads({expression})", "json"
    except (ValueError, RecursionError):
        pass
    try:
        value = ast.literal_eval(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        reason = "neither JSON nor a Python literal that JSON can represent: write the parser by hand"
        raise ValueError(f"the sample is {reason}: {text[:100]!r}") from None
    return value, f"ast.literal_eval({expression})", "ast"


def _name(value: Any) -> str | None:
    """Returns the field name that wraps a value, or None for an object."""
    return None if isinstance(value, dict) else ITEMS if isinstance(value, list | tuple) else VALUE
