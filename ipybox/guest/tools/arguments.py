"""Converts tool arguments to JSON, and names the value that can't be converted.

JSON itself is not converted: `client` encodes arguments as they are first, so that calls with JSON cost nothing more.
"""

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, cast

from ipybox.support.variables import SEND_TEXT, Place, place_text, type_name

T = TypeVar("T")

# By the dtype kind of a scalar. Durations are missing, because they have no unit as text.
_NUMPY: dict[str, Callable[[Any], Any]] = {"b": bool, "i": int, "u": int, "f": float, "M": str}


class ArgumentError(ValueError):
    """A value in a tool's arguments can't be sent as JSON; the place is empty for the arguments as a whole."""

    def __init__(self, place: Place, value: Any, problem: str):
        super().__init__(f"{place_text(place) if place else 'the arguments'} {problem}")
        self.place = place
        self.value = value
        self.problem = problem


def as_json(arguments: T, place: Place = ()) -> T:
    """Returns the arguments at a place as JSON; converts models, dataclasses, sets, dates, paths, enums and others.

    Raises:
        ArgumentError: If a value can't be converted.
    """
    try:
        return _json(arguments, place)
    except RecursionError:
        raise ArgumentError(place, None, "are nested too deeply, or contain themselves") from None


def _json(value: Any, place: Place) -> Any:
    match value:
        case None | bool():
            return value
        case Enum():
            return _json(value.value, place)
        case str():
            return _text(value, place)
        case int():
            return int(value)
        case float():
            return _number(value, place)
        case Mapping():
            items = [(_key(key, place), item) for key, item in cast("Mapping[Any, Any]", value).items()]
            return {name: _json(item, (*place, name)) for name, item in items}
        case list() | tuple() | set() | frozenset():
            return [_json(item, (*place, index)) for index, item in enumerate(cast("list[Any]", value))]
        case bytes() | bytearray() | memoryview():
            raise _unsupported(value, place, SEND_TEXT)
        case os.PathLike():
            return _json(os.fspath(cast("os.PathLike[Any]", value)), place)
        case _:
            return _object(value, place)


def _object(value: Any, place: Place) -> Any:
    if not isinstance(value, type):
        if wire_form := getattr(value, "wire_form", None):  # an object of a generated module
            return _json(wire_form(), place)
        if is_dataclass(value):
            return {field.name: _json(getattr(value, field.name), (*place, field.name)) for field in fields(value)}
    numpy: Any = sys.modules.get("numpy")
    if numpy and isinstance(value, numpy.generic):
        kind = str(cast(Any, value).dtype.kind)
        convert = _NUMPY.get(kind)
        if convert is None or (kind == "M" and numpy.isnat(value)):
            raise _unsupported(value, place)
        return _json(convert(value), place)
    return _json(_by_pydantic(value, place), place)


def _by_pydantic(value: Any, place: Place) -> Any:
    from pydantic_core import to_jsonable_python  # a runner alone does not need it

    dump = getattr(value, "model_dump", None)
    try:
        if dump and not isinstance(value, type):
            return dump(mode="json", by_alias=True)
        return to_jsonable_python(value)
    except Exception as exc:  # including those of users' serializers
        hint = str(exc) if dump else "send value.tolist()" if hasattr(value, "tolist") else ""
        raise _unsupported(value, place, hint) from None


def _key(key: Any, place: Place) -> str:
    if isinstance(key, bool | int | float | None):
        return json.dumps(key)
    name = _json(key, place)
    if not isinstance(name, str):
        raise ArgumentError(place, key, f"has a key of type {type_name(key)}: JSON keys must be strings")
    return name


def _text(value: str, place: Place) -> str:
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise ArgumentError(place, value, f"is not valid Unicode: {exc}") from None
    return text


def _number(value: float, place: Place) -> float:
    if not math.isfinite(value):
        raise ArgumentError(place, value, f"is {value}, which JSON can't represent")
    return float(value)


def _unsupported(value: Any, place: Place, hint: str = "") -> ArgumentError:
    problem = f"is of type {type_name(value)}, which JSON can't represent"
    return ArgumentError(place, value, f"{problem}: {hint}" if hint else problem)
