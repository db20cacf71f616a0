"""Types made of alternatives: `enum`, `const`, type lists, `anyOf` and `oneOf`."""

from typing import Any

from ipybox.mcp_apigen.schema.ir import ANY, NULL, EnumType, LiteralType, Scalar, Type, UnenforcedType, UnionType
from ipybox.mcp_apigen.schema.values import can_be_written, is_among, is_of_kind

#: Enums with more values are checked by the server only, because they are too long to read.
MAX_VALUES = 256

#: Alternatives beyond which a type can be anything. With the alternatives of alternatives, it may have more.
MAX_OPTIONS = 40
_MOST = 2 * MAX_OPTIONS


def union(options: list[Type], hint: str) -> Type:
    """Returns one type for the values of several; string constants among them become one enum named after `hint`."""
    if any(isinstance(option, UnenforcedType) for option in options):
        meant = union([option.meant if isinstance(option, UnenforcedType) else option for option in options], hint)
        return ANY if meant == ANY else UnenforcedType(meant)
    distinct: list[Type] = []
    for option in options:
        for part in option.options if isinstance(option, UnionType) else (option,):
            if not any(_alike(part, other) for other in distinct):
                distinct.append(part)
        if len(distinct) > _MOST:
            return ANY
    if not distinct or ANY in distinct:
        return ANY
    if Scalar("number") in distinct:
        distinct = [part for part in distinct if part != Scalar("integer")]
    distinct = _join_choices(distinct, hint)
    if NULL in distinct:  # reads best as `… | None`
        distinct = [*(part for part in distinct if part != NULL), NULL]
    return distinct[0] if len(distinct) == 1 else UnionType(tuple(distinct))


def constants(values: list[Any], kinds: list[str], hint: str) -> Type:
    """Returns the type of those values of an `enum` or `const` that are of the kinds that `type` allows."""
    if len(values) > MAX_VALUES:
        unlisted = [Scalar(kind) for kind in ("string", "integer", "number", "boolean", "null") if kind in kinds]
        return union([*unlisted], hint) if len(unlisted) == len(kinds) else ANY
    distinct: list[Any] = []
    for value in values:
        if not is_among(value, distinct) and (not kinds or is_of_kind(value, kinds)):
            distinct.append(value)
    if not distinct or not can_be_written(distinct):
        return ANY
    if distinct == [None]:
        return NULL
    texts = [value for value in distinct if isinstance(value, str)]
    others = [value for value in distinct if not isinstance(value, str)]
    if len(texts) > 1 and others in ([], [None]):
        return union([EnumType(hint, tuple(texts)), *([NULL] if others else [])], hint)
    return LiteralType(tuple(distinct))


def _join_choices(options: list[Type], hint: str) -> list[Type]:
    """Joins strings that are listed as `oneOf` constants, often to give each a title, into one enum."""
    values: list[str] = []
    choices = 0
    rest: list[Type] = []
    for option in options:
        listed = option.values if isinstance(option, EnumType | LiteralType) else ()
        texts = [value for value in listed if isinstance(value, str)]
        if texts and len(texts) == len(listed):
            choices += 1
            values += texts
        else:
            rest.append(option)
    return [EnumType(hint, tuple(dict.fromkeys(values))), *rest] if choices > 1 else options


def _alike(left: Type, right: Type) -> bool:
    if isinstance(left, LiteralType) and isinstance(right, LiteralType):
        return repr(left) == repr(right)  # unlike `==` it tells 1 from True
    return left == right
