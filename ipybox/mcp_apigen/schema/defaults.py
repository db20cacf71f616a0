"""The defaults of properties that a schema requires: generated code sends them, so that callers need not give them."""

import json
from typing import Any

from ipybox.mcp_apigen.schema.ir import (
    NULL,
    AnyType,
    ConstantType,
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
from ipybox.mcp_apigen.schema.values import Schema, can_be_written, elements

#: Characters of its JSON. A longer one costs readers of a module too much, and must be given.
_MAX_TEXT = 1000


def default_of(schemas: list[Schema], kind: Type, *, nested: bool) -> DefaultValue | None:
    """Returns the first default of equivalent schemas, or `None` if the property must be given nevertheless.

    It must be given if the default has another type, which is compared roughly because the kernel checks it again, or
    can't be written in Python. The same holds for objects with named properties: their own defaults could be endless.
    A constant within an object must be given, too, because it tells alternatives apart.
    """
    for schema in schemas:
        if "default" in schema:
            value = schema["default"]
            usable = can_be_written(value) and len(json.dumps(value)) <= _MAX_TEXT and _may_hold(kind, value)
            return DefaultValue(value) if usable and not (nested and _is_constant(kind)) else None
    return None


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
            return _is_scalar(name, value)
        case EnumType(values=values) | LiteralType(values) | ConstantType(values):
            return any(type(value) is type(each) and value == each for each in values)
        case ListType():
            return isinstance(value, list)
        case UnionType(options):
            return any(_may_hold(option, value) for option in options)
        case _:
            return False


def _is_scalar(name: str, value: Any) -> bool:
    match value:
        case bool():
            return name == "boolean"
        case str():
            return name == "string"
        case int():
            return name in ("integer", "number")
        case float():
            return name == "number" or (name == "integer" and value.is_integer())
        case _:
            return value is None and name == NULL.kind


def _is_constant(kind: Type) -> bool:
    return isinstance(kind, LiteralType | ConstantType) and len(kind.values) == 1
