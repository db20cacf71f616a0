"""Defaults of properties that a schema requires: generated code sends them, so callers may omit the properties."""

import json
from typing import Any

from ipybox.mcp_apigen.schema.ir import (
    AnyType,
    DefaultValue,
    DictType,
    EnumType,
    ListType,
    LiteralType,
    Scalar,
    Type,
    UnenforcedType,
    UnionType,
)
from ipybox.mcp_apigen.schema.values import can_be_written, elements, is_among, is_of_kind

#: Maximum characters of a default's JSON. A longer one costs readers of a module too much, and is not used.
_MAX_TEXT = 1000


def default_of(value: Any, kind: Type, *, nested: bool) -> DefaultValue | None:
    """Returns a property's default, or None if callers must still give the property.

    They must if the default has another type (compared only roughly, because the kernel checks it again), can't be
    written in Python, or is an object with named properties, whose own defaults could be endless. They must also give a
    constant within an object, because it tells alternatives apart.
    """
    constant = isinstance(kind, LiteralType) and len(kind.values) == 1
    usable = can_be_written(value) and len(json.dumps(value)) <= _MAX_TEXT and _may_hold(kind, value)
    return DefaultValue(value) if usable and not (nested and constant) else None


def _may_hold(kind: Type, value: Any) -> bool:
    match kind:
        case AnyType():
            return True
        case DictType(value=AnyType() | Scalar()):
            return isinstance(value, dict)
        case _ if isinstance(value, dict) or any(isinstance(each, dict | list) for each in elements(value)):
            return False
        case UnenforcedType():
            return True
        case Scalar(name):
            return is_of_kind(value, (name,))
        case EnumType(values=values) | LiteralType(values):
            return is_among(value, values)
        case ListType():
            return isinstance(value, list)
        case UnionType(options):
            return any(_may_hold(option, value) for option in options)
        case _:
            return False
