"""Views of untyped JSON that never fail: what is not of the expected kind counts as empty."""

import math
from typing import Any, TypeGuard, cast

Schema = dict[str, Any]


def is_object(value: Any) -> TypeGuard[Schema]:
    """Whether `value` is a JSON object: schemas can be booleans too, and malformed ones anything."""
    return isinstance(value, dict)


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether `value` is a finite JSON number; booleans are none."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def is_text(value: str) -> bool:
    """Whether a string has a UTF-8 form: one with lone surrogates has none, and pydantic can't hold it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def mapping(value: Any) -> Schema:
    """`value`, if it is a JSON object."""
    return value if is_object(value) else {}


def elements(value: Any) -> list[Any]:
    """The elements of an array."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def objects(value: Any) -> list[Schema]:
    """The objects among the elements of an array."""
    return [item for item in elements(value) if is_object(item)]


def strings(value: Any) -> list[str]:
    """A string, or those among the elements of an array."""
    return [item for item in ([value] if isinstance(value, str) else elements(value)) if isinstance(item, str)]
