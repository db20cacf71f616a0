"""Views of untyped JSON that never fail: a value of an unexpected kind counts as empty."""

import json
import math
from collections.abc import Collection, Iterable
from typing import Any, TypeGuard, cast

Schema = dict[str, Any]


def is_object(value: Any) -> TypeGuard[Schema]:
    """Returns whether `value` is a JSON object: schemas can also be booleans, and malformed ones anything."""
    return isinstance(value, dict)


def is_number(value: Any) -> TypeGuard[int | float]:
    """Returns whether `value` is a finite JSON number; booleans are not numbers."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def is_text(value: str) -> bool:
    """Returns whether UTF-8 can encode a string: lone surrogates can't be encoded, and pydantic can't hold them."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_of_kind(value: Any, kinds: Collection[str]) -> bool:
    """Returns whether a JSON value is of one of the kinds that `type` can name."""
    match value:
        case None:
            return "null" in kinds
        case bool():
            return "boolean" in kinds
        case str():
            return "string" in kinds
        case int() | float():
            return "number" in kinds or ("integer" in kinds and value == value // 1)
        case _:
            return ("array" if isinstance(value, list) else "object") in kinds


def is_among(value: Any, values: Iterable[Any]) -> bool:
    """Returns whether a value equals one of several, including its type."""
    return any(type(value) is type(other) and value == other for other in values)


def can_be_written(value: Any) -> bool:
    """Returns whether Python and pydantic can hold a JSON value: not infinity, NaN or lone surrogates."""
    try:
        return is_text(json.dumps(value, allow_nan=False, ensure_ascii=False))
    except ValueError:
        return False


def mapping(value: Any) -> Schema:
    """Returns `value` if it is a JSON object, or else an empty one."""
    return value if is_object(value) else {}


def elements(value: Any) -> list[Any]:
    """Returns the elements of an array."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def objects(value: Any) -> list[Schema]:
    """Returns the objects among the elements of an array."""
    return [item for item in elements(value) if is_object(item)]


def strings(value: Any) -> list[str]:
    """Returns a string as a list, or the strings among the elements of an array."""
    if isinstance(value, str):
        return [value]
    return [item for item in elements(value) if isinstance(item, str)]
